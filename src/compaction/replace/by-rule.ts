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
import type { TokenCounter } from '../../tokens/counter.js';

/**
 * Failures that lie in what was asked about: another chunk may well be answered. An endpoint that is away, a key that is
 * not accepted, or a window that holds not even the smallest chunk is no such failure.
 */
export function isOfChunk(error: unknown): boolean {
  if (!isFailure(error)) return false;
  if (error.type === 'Llm.Rejected') return error.details?.['filtered'] === true;
  return error.type === 'Llm.BadOutput' || error.type === 'Summary.NotSmaller';
}

/** A digest by rule and its key, which no question has: the model is asked again. Null where the rules find nothing to say. */
export async function digestByRule(
  { counter, redact, summarizer }: Asking,
  { chunk, maxTokens }: { chunk: ChunkRef; maxTokens: number },
  originals: readonly LoggedMessage[],
): Promise<{ key: string; text: string } | null> {
  const messages = readBy(chunk, await readable(originals, summarizer, redact));
  const limit = digestTokens(chunk, maxTokens);
  const text = redact(extractiveSnapshot({ previous: null, messages, maxTokens: limit, counter }));
  if (!/\S/.test(text)) return null;
  return keyed(text);
}

/** Notes merged by rule: of each as many of its first lines as its share of the length holds. */
export function mergedByRule(
  notes: readonly string[],
  maxTokens: number,
  counter: TokenCounter,
): { key: string; text: string } {
  const share = Math.floor(maxTokens / notes.length);
  return keyed(notes.map((text) => linesWithin(readNotes(text).notes, share, counter)).join('\n'));
}

function keyed(text: string): { key: string; text: string } {
  return { key: createHash('sha256').update(`by rule\n${text}`).digest('hex'), text };
}
