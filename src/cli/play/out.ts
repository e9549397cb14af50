/** What `dev --out` writes: the final context of each session. */
import { existsSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { invalid } from '../../errors.js';
import type { PlayedSession } from './played.js';

/** The final context of one session, and what its summaries took. */
export interface WrittenContext {
  session: string;
  context: PlayedSession['context'];
  calls: number;
  inputTokens: number;
  outputTokens: number;
  contextTokens: number;
}

export function contextToWrite(
  session: string,
  { context, tokens, compactions }: PlayedSession,
): WrittenContext {
  const sum = (of: (outcome: PlayedSession['compactions'][number]) => number) =>
    compactions.reduce((total, outcome) => total + of(outcome), 0);
  return {
    session,
    context,
    calls: sum(({ modelCalls }) => modelCalls),
    inputTokens: sum(({ modelInputTokens }) => modelInputTokens),
    outputTokens: sum(({ modelOutputTokens }) => modelOutputTokens),
    contextTokens: tokens,
  };
}

/** Throws `Input.Invalid` where the folder of the file is missing; a folder is written into. */
export function checkOut(out: string): void {
  const folder = isFolder(out) ? out : path.dirname(path.resolve(out));
  if (!isFolder(folder)) throw invalid(`--out: there is no folder ${folder}`, '--out');
}

/** Into a folder, one file a session. Into a file, one session: its messages; several: an array of `{session, messages}`. */
export function writeContexts(out: string, contexts: readonly WrittenContext[]): void {
  const [only, ...others] = contexts;
  if (only === undefined) return;
  if (isFolder(out)) {
    for (const one of contexts) writeJson(path.join(out, `${nameFor(one.session)}.json`), one);
    return;
  }
  const several = contexts.map(({ session, context }) => ({ session, messages: context }));
  writeJson(out, others.length === 0 ? only.context : several);
}

function nameFor(session: string): string {
  return session.replace(/[^\p{L}\p{N}._~-]+/gu, '_').slice(0, 120);
}

function writeJson(file: string, value: unknown): void {
  writeFileSync(file, `${JSON.stringify(value, null, 1)}\n`);
}

function isFolder(name: string): boolean {
  return existsSync(name) && statSync(name).isDirectory();
}
