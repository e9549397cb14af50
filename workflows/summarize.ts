import { ApplicationFailure } from '@temporalio/workflow';
import type { DigestRef } from '../activities/digest.js';
import type { Plan } from '../activities/plan.js';
import type { ChunkRef } from '../src/summary/chunk.js';
import { failureOf } from '../src/temporal/failures.js';
import type { SessionIds } from '../src/temporal/names.js';
import { modelActivities } from './options.js';

/** What the model phase of a compaction produced, by reference. */
export interface Summarized {
  /** Chunks as they were read in the end, in order. */
  chunks: ChunkRef[];
  /** Keys of all digests used, the snapshot's last. */
  digests: string[];
  modelSpans: [number, number][];
}

/** Live numbers for the operator's page. */
export interface Progress {
  chunk(index: number, of: number, tokensIn: number, tokensOut: number): void;
  consolidating(digests: number, depth: number): void;
}

/**
 * Reads every chunk once, at most `concurrency` at a time, and consolidates the digests as a tree into one snapshot.
 * A chunk that does not fit is halved, never retried unchanged; a tree deeper than `depthLimit` is refused.
 */
export async function summarize(
  ids: SessionIds,
  plan: Plan,
  deadlineMs: number,
  progress: Progress,
): Promise<Summarized> {
  const { summarizer, baseGeneration } = plan;
  const { summarizeChunk, consolidate } = modelActivities(deadlineMs);
  const used: DigestRef[] = [];
  /** Tokens of the originals behind each digest. */
  const covered = new Map<string, number>();
  const slots = limiter(summarizer.concurrency);

  let chunks = plan.chunks;
  const [only, ...others] = chunks;
  if (only && others.length === 0 && only.tokens + plan.previousTokens <= summarizer.foldTokens) {
    try {
      await readChunk(only, 1, 1, true);
      return result([only]);
    } catch (error) {
      const halves = halvesOf(error);
      if (!halves) throw error;
      chunks = halves;
    }
  }

  const read = await Promise.all(chunks.map((chunk, index) => readOrHalve(chunk, index + 1, chunks.length)));
  const leaves = read.flat();
  await merge(leaves.map(({ digest }) => digest));
  return result(leaves.map(({ chunk }) => chunk));

  async function readChunk(chunk: ChunkRef, number: number, of: number, fold: boolean): Promise<DigestRef> {
    const most = fold ? summarizer.snapshotTokens : summarizer.digestTokens;
    const digest = await slots(() =>
      summarizeChunk.executeWithOptions(
        {
          summary: `chunk ${number}/${of}${fold ? ' and fold' : ''} · ${count(chunk.tokens)} → at most ${count(most)} tokens`,
        },
        [{ ...ids, baseGeneration, chunk, fold, summarizer }],
      ),
    );
    used.push(digest);
    covered.set(digest.key, chunk.tokens);
    progress.chunk(number, of, chunk.tokens, digest.tokens);
    return digest;
  }

  async function readOrHalve(
    chunk: ChunkRef,
    number: number,
    of: number,
  ): Promise<{ chunk: ChunkRef; digest: DigestRef }[]> {
    try {
      return [{ chunk, digest: await readChunk(chunk, number, of, false) }];
    } catch (error) {
      const halves = halvesOf(error);
      if (!halves) throw error;
      return (await Promise.all(halves.map((half) => readOrHalve(half, number, of)))).flat();
    }
  }

  async function merge(leafDigests: DigestRef[]): Promise<void> {
    let level = leafDigests;
    /** Tokens that one consolidation may read; half of what has turned out not to fit. */
    let room = summarizer.foldTokens;
    for (let depth = 1; depth <= summarizer.depthLimit; depth++) {
      progress.consolidating(level.length, depth);
      const whole = level.reduce((sum, { tokens }) => sum + tokens, plan.previousTokens);
      if (level.length === 1 || whole <= room) {
        try {
          await mergeOnce(level, true, depth);
          return;
        } catch (error) {
          if (!isOverflow(error) || level.length === 1) throw error;
          room = Math.floor(whole / 2);
        }
      }
      const merged = batches(level, room - plan.previousTokens).map((group) => mergeOrHalve(group, depth));
      level = (await Promise.all(merged)).flat();
    }
    throw ApplicationFailure.nonRetryable(
      `${level.length} digests are left after ${summarizer.depthLimit} levels of consolidation`,
      'Summary.DepthExceeded',
    );
  }

  /** One digest for the group; two halves' where it does not fit, and nothing where two digests do not. */
  async function mergeOrHalve(group: DigestRef[], depth: number): Promise<DigestRef[]> {
    if (group.length === 1) return group;
    try {
      return [await mergeOnce(group, false, depth)];
    } catch (error) {
      if (!isOverflow(error) || group.length === 2) throw error;
      const middle = Math.ceil(group.length / 2);
      const halves = [group.slice(0, middle), group.slice(middle)];
      return (await Promise.all(halves.map((half) => mergeOrHalve(half, depth)))).flat();
    }
  }

  async function mergeOnce(digests: DigestRef[], root: boolean, depth: number): Promise<DigestRef> {
    const tokens = digests.reduce((sum, digest) => sum + digest.tokens, root ? plan.previousTokens : 0);
    const coveredTokens = digests.reduce((sum, { key }) => sum + (covered.get(key) ?? 0), 0);
    const merged = await slots(() =>
      consolidate.executeWithOptions(
        {
          summary: `${root ? 'snapshot' : 'merge'} of ${digests.length} digests · level ${depth} · ${count(tokens)} tokens`,
        },
        [{ ...ids, baseGeneration, digests: digests.map(({ key }) => key), coveredTokens, root, summarizer }],
      ),
    );
    used.push(merged);
    covered.set(merged.key, coveredTokens);
    return merged;
  }

  function result(chunks: ChunkRef[]): Summarized {
    const paid = used.filter(({ startedAt, endedAt }) => endedAt > startedAt);
    return {
      chunks,
      digests: [...new Set(used.map(({ key }) => key))],
      modelSpans: paid.map(({ startedAt, endedAt }) => [startedAt, endedAt]),
    };
  }
}

function isOverflow(error: unknown): boolean {
  return failureOf(error)?.type === 'Llm.ContextOverflow';
}

/** The two parts of a chunk that did not fit; null for other failures and where it cannot be halved any more. */
function halvesOf(error: unknown): [ChunkRef, ChunkRef] | null {
  if (!isOverflow(error)) return null;
  const [detail] = failureOf(error)?.details as [{ halves?: [ChunkRef, ChunkRef] | null }?];
  return detail?.halves ?? null;
}

/** Neighbours in batches of at most `room` tokens, at least two a batch, so that each level has fewer. */
function batches(digests: readonly DigestRef[], room: number): DigestRef[][] {
  const groups: DigestRef[][] = [];
  let size = 0;
  for (const digest of digests) {
    const last = groups.at(-1);
    if (last && (last.length < 2 || size + digest.tokens <= room)) {
      last.push(digest);
      size += digest.tokens;
    } else {
      groups.push([digest]);
      size = digest.tokens;
    }
  }
  return groups;
}

/** Runs at most `most` tasks at once, in the order they were asked for. */
function limiter(most: number): <T>(task: () => Promise<T>) => Promise<T> {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (task) => {
    if (running >= most) await new Promise<void>((resolve) => waiting.push(resolve));
    else running++;
    try {
      return await task();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  };
}

/** 7912 → "7,912"; Intl is not deterministic across workers. */
export function count(tokens: number): string {
  return String(tokens).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}
