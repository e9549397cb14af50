import { viewing } from '../../context/view/view.js';
import { largeMessages } from '../../context/reductions/large-message.js';
import type { MessageMeta } from '../../conversation/message.js';
import { renderMessage } from '../../conversation/render.js';
import { inSlices } from '../../steps.js';
import {
  cutChunks,
  MESSAGE_LABEL_TOKENS,
  MESSAGE_MARK_TOKENS,
  type ChunkRef,
} from '../../summary/ask/chunk.js';
import { readable } from '../../summary/redaction/withheld.js';
import type { CutChoice } from './cut.js';
import type { LargeMessage, SummarizerSettings } from './plan-types.js';
import { seenThrough, type Planning } from './planning.js';
import { readingOf, shortReading, type Reading } from './reading.js';

/**
 * Maximum eviction of one compaction, in tokens and in full chunks (there may be twice as many half-full ones). It bounds the
 * workflow history, the payloads, and the time for which a commit blocks the worker, including its heartbeats.
 */
const mostEvicted = { tokens: 2_000_000, chunks: 500 };

/**
 * Maximum tokens that a cut with this mean message size may evict, so that its messages fit into the chunks together with
 * their labels.
 */
export function mostEvictable(
  { evictedTokens, evictedMessages }: CutChoice,
  { chunkTokens }: SummarizerSettings,
): number {
  const labelled = evictedTokens + evictedMessages * MESSAGE_LABEL_TOKENS;
  const inChunks = mostEvicted.chunks * chunkTokens * (evictedTokens / labelled);
  return Math.min(mostEvicted.tokens, Math.floor(inChunks));
}

/** The base that a model builds on, and the archived messages that it reads again; no messages if there are too many. */
export async function readAgain(
  { state, policy, reads, settings, reason }: Planning,
  evictedTokens: number,
): Promise<{ reading: Reading; again: MessageMeta[] }> {
  const reading = readingOf(policy.summary.mode, state.chain, true, reason === 'resummarize');
  if (reading.readFromSeq > state.throughSeq) return { reading, again: [] };
  const again = await reads.metas(reading.readFromSeq, state.throughSeq);
  const tokens = again.reduce((sum, meta) => sum + meta.tokens + MESSAGE_LABEL_TOKENS, evictedTokens);
  const most = Math.min(mostEvicted.tokens, mostEvicted.chunks * settings.chunkTokens);
  return tokens <= most
    ? { reading, again }
    : { reading: shortReading(policy.summary.mode, state.chain), again: [] };
}

/**
 * Chunks of all messages that a model reads. They end where earlier chunks and chunks written ahead ended, so that stored
 * digests are found again; `full_rewrite` always reads the whole archive in full chunks.
 */
export async function chunksToRead(
  planning: Planning,
  again: readonly MessageMeta[],
  evicted: readonly MessageMeta[],
): Promise<ChunkRef[]> {
  const { state, policy } = planning;
  if (policy.summary.mode === 'full_rewrite') return chunksOf(planning, [...again, ...evicted]);
  const earlierEnds = state.chain.flatMap((link, index) =>
    link.readByModel ? [link.throughSeq, state.chain[index + 1]?.throughSeq ?? 0] : [],
  );
  const ends = new Set([...earlierEnds, planning.writtenThroughSeq ?? 0]);
  const parts: MessageMeta[][] = [[]];
  for (const meta of [...again, ...evicted]) {
    parts.at(-1)?.push(meta);
    if (ends.has(meta.seq)) parts.push([]);
  }
  const labels = policy.summary.mode === 'journal' ? MESSAGE_MARK_TOKENS : MESSAGE_LABEL_TOKENS;
  return (await Promise.all(parts.map((part) => chunksOf(planning, part, labels)))).flat();
}

/** Messages of the tail after the cut that exceed `limits.messageTokens`, with their chunks. */
export async function messagesToSummarize(planning: Planning, throughSeq: number): Promise<LargeMessage[]> {
  const { state, policy, limits, counter, reads } = planning;
  const { messageTokens } = limits;
  if (messageTokens === null) return [];
  if (!state.tail.some(({ seq, tokens }) => seq > throughSeq && tokens > messageTokens)) return [];
  const source = await reads.source();
  const seen = seenThrough(state);
  const tail = source.tail.filter(({ seq }) => seq > throughSeq && seq <= seen);
  const view = await inSlices(viewing({ ...source, tail, metas: undefined }, counter));
  const large = largeMessages(view, messageTokens, policy);
  return Promise.all(
    large.map(async ({ seq, tokens }) => {
      const metas = state.tail.filter((meta) => meta.seq === seq);
      return { seq, tokens, chunks: await chunksOf(planning, metas) };
    }),
  );
}

/** Reads the texts only of messages above half a chunk, since a chunk may end inside them. */
async function chunksOf(
  { settings, reads, counter, redact }: Planning,
  metas: readonly MessageMeta[],
  labelTokens = MESSAGE_LABEL_TOKENS,
): Promise<ChunkRef[]> {
  const texts = new Map<number, string>();
  for (const { seq, tokens } of metas) {
    if (tokens <= settings.chunkTokens / 2) continue;
    const [logged] = await readable(await reads.messages(seq, seq), settings, redact);
    if (logged) texts.set(seq, renderMessage(logged));
  }
  const items = metas.map(({ seq, tokens }) => ({ seq, tokens, text: () => texts.get(seq) ?? '' }));
  return cutChunks(items, settings.chunkTokens, counter, labelTokens);
}
