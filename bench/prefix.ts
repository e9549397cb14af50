/**
 * `PALIMPSEST_TRANSCRIPTS=<folder> node --import tsx bench/prefix.ts [--quick]`: measures the share of the agent's next request
 * that a provider's prompt cache serves across a commit, by mode and size of the system prompt, on every recorded session, with
 * a scripted model. The tools are left out. Writes Markdown to stdout; `--quick` plays every sixth session.
 */
import { Conversation } from '../src/compaction/in-memory/index.js';
import { cutTurns } from '../src/conversation/groups.js';
import type { ChatMessage } from '../src/conversation/message.js';
import { isFailure } from '../src/errors.js';
import { counter, percent, recordedSessions, scriptedNotes, scriptedSummary } from './recorded.js';

const window = 16_384;

interface Commit {
  /** Entries of the journal were rewritten. */
  merged: boolean;
  /** Tokens of the request after the commit, and of its beginning that the one before it had as well. */
  request: number;
  repeated: number;
}

async function commitsOf(
  messages: readonly ChatMessage[],
  mode: 'journal' | 'incremental',
  systemTokens: number,
): Promise<Commit[]> {
  const conversation = new Conversation({
    policy: { contextWindow: window, tokenizer: 'chars/4', summary: { mode, contextWindow: 128_000 } },
    counter,
  });
  const write = mode === 'journal' ? scriptedNotes : scriptedSummary;
  const commits: Commit[] = [];
  const said = messages.filter(({ role }) => role !== 'system' && role !== 'developer');
  const system: ChatMessage = { role: 'system', content: 'You are an agent. '.repeat(systemTokens / 4.5) };
  for (const { from, to } of cutTurns(said)) {
    conversation.append(from === 0 ? [system, ...said.slice(from, to)] : said.slice(from, to));
    while (conversation.isDue()) {
      const before = conversation.context(Infinity).messages;
      const generation = await conversation.compact(write).catch((error: unknown) => {
        if (isFailure(error)) return null;
        throw error;
      });
      if (generation === null) break;
      if (generation.generation === 1 || generation.evicted === 0) continue;
      const after = conversation.context(Infinity).messages;
      const stood = conversation.generations.at(-2)?.layers ?? [];
      const merged = (generation.layers ?? []).some(
        ({ rank, key }) => rank > 0 && stood.every((layer) => layer.key !== key),
      );
      commits.push({ merged, request: tokensOf(after), repeated: sharedTokens(before, after) });
    }
  }
  return commits;
}

const textOf = (message: ChatMessage): string => JSON.stringify(message);
const tokensOf = (messages: readonly ChatMessage[]): number =>
  messages.reduce((sum, message) => sum + counter.count(textOf(message)), 0);

function sharedTokens(before: readonly ChatMessage[], after: readonly ChatMessage[]): number {
  let tokens = 0;
  for (const [index, message] of after.entries()) {
    const [text, was] = [textOf(message), before[index] ? textOf(before[index]) : ''];
    if (text !== was) {
      const length = [...text].findIndex((letter, at) => letter !== was[at]);
      return tokens + counter.count(text.slice(0, length));
    }
    tokens += counter.count(text);
  }
  return tokens;
}

function shareOf(commits: readonly Commit[]): string {
  const sum = (of: (commit: Commit) => number) => commits.reduce((total, one) => total + of(one), 0);
  return commits.length === 0
    ? '–'
    : `${percent(
        sum(({ repeated }) => repeated),
        sum(({ request }) => request),
      )} (${commits.length})`;
}

const sessions = await recordedSessions();
console.log(`${sessions.length} recorded sessions, window ${window}\n`);
console.log('| system prompt | `journal`, nothing merged | `journal`, merged | `incremental` |');
console.log('|---|---|---|---|');
for (const systemTokens of [200, 2_000, 6_000]) {
  const byMode = { journal: [] as Commit[], incremental: [] as Commit[] };
  for (const session of sessions)
    for (const mode of ['journal', 'incremental'] as const)
      byMode[mode].push(...(await commitsOf(session, mode, systemTokens)));
  const { journal, incremental } = byMode;
  const kept = journal.filter(({ merged }) => !merged);
  const merged = journal.filter((commit) => commit.merged);
  console.log(`| ${systemTokens} tokens | ${shareOf(kept)} | ${shareOf(merged)} | ${shareOf(incremental)} |`);
}
