/** Limits the effect of a model's failure: the rules write the digest of the chunk, with a mark, or merge the notes. */
import { createHash } from 'node:crypto';
import type { LoggedMessage } from '../../conversation/message.js';
import { isFailure } from '../../errors.js';
import { readBy, type ChunkRef } from '../../summary/ask/chunk.js';
import { extractiveSnapshot } from '../../summary/extractive/extractive.js';
import type { Asking } from '../summarize/answers.js';
import { digestTokens } from '../summarize/questions.js';
import { linesWithin, readNotes } from '../../summary/journal/notes.js';
import { readable } from '../../summary/redaction/withheld.js';

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

/** Merges notes by rule: keeps the first lines of each entry, within its share of the length. */
export function mergedByRule(
  { counter, redact }: Asking,
  notes: readonly string[],
  maxTokens: number,
): { key: string; text: string } {
  const share = Math.floor(maxTokens / notes.length);
  const lines = (text: string) => linesWithin(redact(readNotes(text).notes), share, counter);
  const text = notes.map(lines).join('\n');
  return { key: keyByRule(text), text };
}

/** A key that no question has, so that a model can still be asked the same question later. */
export function keyByRule(text: string): string {
  return createHash('sha256').update(`by rule\n${text}`).digest('hex');
}
