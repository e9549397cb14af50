/** What the model fails at costs no more than that: the rules write the digest of a chunk, marked, or merge notes, and all else stays. */
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
 * Failures that lie in what was asked about: another chunk may well be answered. An endpoint that is away, a key that is
 * not accepted, or a window that holds not even the smallest chunk is no such failure.
 */
export function isOfChunk(error: unknown): boolean {
  if (!isFailure(error)) return false;
  if (error.type === 'Llm.Rejected') return error.details?.['filtered'] === true;
  return error.type === 'Llm.BadOutput' || error.type === 'Summary.NotSmaller';
}

/** A digest by rule and its key. Null where the rules find nothing to say. */
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

/** Notes merged by rule: of each as many of its first lines as its share of the length holds. */
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

/** No question has it: a model may be asked for the same again. */
export function keyByRule(text: string): string {
  return createHash('sha256').update(`by rule\n${text}`).digest('hex');
}
