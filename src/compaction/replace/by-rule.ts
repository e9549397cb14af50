/** Limits the effect of a model's failure: the rules write the digest of the chunk, with a mark, or merge the notes. */
import { createHash } from 'node:crypto';
import type { LoggedMessage } from '../../conversation/message.js';
import { isFailure } from '../../errors.js';
import { readBy, type ChunkRef } from '../../summary/ask/chunk.js';
import { extractiveSnapshot, mergedSnapshots } from '../../summary/extractive/extractive.js';
import { sections } from '../../summary/answer/sections.js';
import { headingOf } from '../../summary/answer/snapshot.js';
import type { Asking } from '../summarize/answers.js';
import { digestTokens } from '../summarize/questions.js';
import { linesWithin, readNotes } from '../../summary/journal/notes.js';
import { readable } from '../../summary/redaction/withheld.js';
import { clip } from '../../summary/text/sentences.js';
import type { TokenCounter } from '../../tokens/counter.js';

/**
 * Whether a failure concerns one question only, so that another chunk may succeed. An unreachable endpoint, a refused key, or
 * a window too small for any chunk is not such a failure.
 */
export function isOfChunk(error: unknown): boolean {
  if (!isFailure(error)) return false;
  if (error.type === 'Llm.Rejected') return error.details?.['filtered'] === true;
  return error.type === 'Llm.BadOutput' || error.type === 'Summary.NotSmaller';
}

/** A digest by rule and its key. Null if the rules find no content. */
export async function digestByRule(
  { counter, redact, summarizer }: Asking,
  { chunk, maxTokens }: { chunk: ChunkRef; maxTokens: number },
  originals: readonly LoggedMessage[],
): Promise<{ key: string; text: string } | null> {
  const messages = readBy(chunk, await readable(originals, summarizer, redact));
  const limit = digestTokens(chunk, maxTokens);
  const text = redact(extractiveSnapshot({ previous: null, messages, maxTokens: limit, counter }));
  if (!/\S/.test(text)) return null;
  return { key: keyByRule(text), text };
}

/**
 * Merges entries by rule, or shortens a single one: snapshots by rule keep items of every section, and notes of a model keep
 * their first lines, each within its share of the length.
 */
export function mergedByRule(
  { counter, redact }: Pick<Asking, 'counter' | 'redact'>,
  texts: readonly string[],
  maxTokens: number,
): { key: string; text: string } {
  const notes = texts.map((text) => redact(readNotes(text).notes));
  const share = Math.floor(maxTokens / notes.length);
  const shortened = (one: string) =>
    isSnapshot(one)
      ? mergedSnapshots([one], share, counter)
      : clipTo(linesWithin(one, share, counter), share, counter);
  const merged = notes.every(isSnapshot)
    ? mergedSnapshots(notes, maxTokens, counter)
    : notes.map(shortened).join('\n');
  const text = /\S/.test(merged) ? merged : linesWithin(notes.join('\n'), maxTokens, counter);
  return { key: keyByRule(text), text };
}

const sectionHeadings = new Set(sections.map(({ key }) => headingOf(key)));

function isSnapshot(text: string): boolean {
  return text.split('\n').some((line) => sectionHeadings.has(line));
}

/** `linesWithin` keeps a first line of any length. */
function clipTo(text: string, maxTokens: number, counter: TokenCounter): string {
  let shown = text;
  while (counter.count(shown) > maxTokens && shown.length > SHORTEST_LINE)
    shown = clip(shown, Math.max(SHORTEST_LINE, Math.floor(shown.length * 0.8)));
  return shown;
}

const SHORTEST_LINE = 60;

/** A key that no question has, so that a model can still be asked the same question later. */
export function keyByRule(text: string): string {
  return createHash('sha256').update(`by rule\n${text}`).digest('hex');
}
