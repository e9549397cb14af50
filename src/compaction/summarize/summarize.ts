/**
 * The order in which a summarizer is asked, by references only: the same for workflow activities and for a session in
 * memory. Every chunk is read once, at most `concurrency` at a time, and the digests are consolidated as a tree. A chunk
 * that does not fit is halved, never retried unchanged; a tree deeper than `depthLimit` is refused.
 */
import { FAN_IN, layerTokens, nextMerge, type Layer } from '../../summary/ask/layers.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import type { Plan } from '../plan/plan-types.js';
import { count } from '../../numbers.js';

/** A stored model result, by reference. */
export interface DigestRef {
  /** Content key of the stored text (hex sha256). */
  key: string;
  /** Tokens of the stored text. */
  tokens: number;
  /** True when it was there already and nothing was paid. */
  cached: boolean;
  /** Unix milliseconds of the model call; equal where none was made. */
  startedAt: number;
  endedAt: number;
  /** Type of the failure for which the rules wrote it; absent where a model did. */
  byRule?: string;
}

export interface ChunkStep {
  chunk: ChunkRef;
  /** The whole reading fits one request: fold it with the previous snapshot right away, the result is the new snapshot. */
  fold: boolean;
  foldGeneration: number | null;
  /** Tokens of the answer at most. */
  maxTokens: number;
  /** Where the model fails at this chunk for good, its digest is made by rule and says so. Absent in steps of earlier versions. */
  rulesServe?: boolean;
}

export interface MergeStep {
  /** Keys of neighbouring digests, in the order of the log. */
  digests: string[];
  /** Tokens of the originals that they stand for. */
  coveredTokens: number;
  /** The root of the tree: folds the previous snapshot too, its result is the new snapshot. */
  root: boolean;
  foldGeneration: number | null;
  maxTokens: number;
}

/** Who does the asking. `label` is for people who watch. */
export interface ModelSteps {
  readChunk(step: ChunkStep, label: string): Promise<DigestRef>;
  merge(step: MergeStep, label: string): Promise<DigestRef>;
  /** Null: not an overflow. Otherwise the halves of the chunk that did not fit; null inside where it cannot be halved. */
  overflow(error: unknown): { halves: [ChunkRef, ChunkRef] | null } | null;
  /** A failure that no retry helps; `type` is the one of each chunk's own where the model failed at all of them. */
  failed(type: string, message: string): Error;
}

/** Live numbers for whoever watches. */
export interface Progress {
  chunk(index: number, of: number, tokensIn: number, tokensOut: number): void;
  consolidating(digests: number, depth: number): void;
}

/** What the model phase of a compaction produced, by reference. */
export interface Summarized {
  /** Chunks as they were read in the end, in order. */
  chunks: ChunkRef[];
  /** Key of the new snapshot; null in `layered` mode, and where only messages were summarized. */
  snapshot: string | null;
  /** `layered` mode: all layers that stand now, oldest first. */
  layers: Layer[];
  /** Summaries of single messages. */
  messages: { seq: number; key: string }[];
  /** Keys of every digest used. */
  digests: string[];
  /** Chunks whose digest the rules made, because the model failed at them; and the type of the first failure. */
  chunksByRule: number;
  failure: string | null;
}

interface Leaf {
  chunk: ChunkRef;
  digest: DigestRef;
}

export async function summarize(plan: Plan, steps: ModelSteps, progress: Progress): Promise<Summarized> {
  const { summarizer, foldGeneration, previousTokens } = plan;
  const used: DigestRef[] = [];
  /** Tokens of the originals behind each digest. */
  const covered = new Map<string, number>();
  const slots = limiter(summarizer.concurrency);
  const rulesServe = plan.fallback === 'extractive';

  const [history, messages] = await Promise.all([
    plan.mode === 'layered' ? layered() : plan.chunks.length > 0 ? folded() : noHistory(),
    Promise.all(plan.messages.map(largeMessage)),
  ]);
  const byRule = used.flatMap((digest) => digest.byRule ?? []);
  const [failure = null] = byRule;
  const summarized = messages.filter((message) => message !== null);
  if (failure !== null && history.chunks.length + summarized.length === 0)
    throw steps.failed(failure, 'the model failed at every message');
  const digests = [...new Set(used.map(({ key }) => key))];
  return { ...history, messages: summarized, digests, chunksByRule: byRule.length, failure };

  function noHistory(): Pick<Summarized, 'chunks' | 'snapshot' | 'layers'> {
    return { chunks: [], snapshot: null, layers: plan.layers };
  }

  async function folded(): Promise<Pick<Summarized, 'chunks' | 'snapshot' | 'layers'>> {
    let { chunks } = plan;
    const [only, ...others] = chunks;
    if (only && others.length === 0 && only.tokens + previousTokens <= summarizer.foldTokens) {
      try {
        const { key } = await readChunk(only, 1, 1, true, summarizer.snapshotTokens);
        return { chunks: [only], snapshot: key, layers: [] };
      } catch (error) {
        const halves = steps.overflow(error)?.halves;
        if (!halves) throw error;
        chunks = halves;
      }
    }
    const leaves = await readAll(chunks, summarizer.digestTokens);
    const snapshot = await consolidate(leaves.map(({ digest }) => digest));
    return { chunks: leaves.map(({ chunk }) => chunk), snapshot, layers: [] };
  }

  /** New leaves behind the layers that stand; four of a rank become one of the next. */
  async function layered(): Promise<Pick<Summarized, 'chunks' | 'snapshot' | 'layers'>> {
    const leaves = await readAll(plan.chunks, summarizer.digestTokens);
    const layers: Layer[] = [
      ...plan.layers,
      ...leaves.map(({ chunk, digest }) => ({
        rank: 0,
        key: digest.key,
        tokens: digest.tokens,
        fromSeq: chunk.fromSeq,
        throughSeq: chunk.throughSeq,
        ...(digest.byRule === undefined ? {} : { extractive: true }),
      })),
    ];
    for (let next = nextMerge(layers); next; next = nextMerge(layers)) {
      const members = layers.slice(next.first, next.first + FAN_IN);
      const rank = next.rank + 1;
      progress.consolidating(members.length, rank);
      const coveredTokens = members.reduce((sum, { key, tokens }) => sum + (covered.get(key) ?? tokens), 0);
      const merged = await mergeOnce(
        members.map(({ key }) => key),
        { root: false, coveredTokens, maxTokens: layerTokens(rank, summarizer.snapshotTokens) },
        `rank ${rank}`,
      );
      const layer: Layer = {
        rank,
        key: merged.key,
        tokens: merged.tokens,
        fromSeq: members[0]!.fromSeq,
        throughSeq: members.at(-1)!.throughSeq,
        // What holds a part by rule is read again with it.
        ...(members.some(({ extractive }) => extractive === true) ? { extractive: true } : {}),
      };
      layers.splice(next.first, FAN_IN, layer);
    }
    return { chunks: leaves.map(({ chunk }) => chunk), snapshot: null, layers };
  }

  /** Null where the model failed at all of it: the message is shortened as the rules shorten others. */
  async function largeMessage({
    seq,
    chunks,
  }: Plan['messages'][number]): Promise<{ seq: number; key: string } | null> {
    const leaves = await readEach(chunks, summarizer.digestTokens);
    const digests = leaves.map(({ digest }) => digest);
    if (digests.every(({ byRule }) => byRule !== undefined)) return null;
    const [only] = digests;
    if (only && digests.length === 1) return { seq, key: only.key };
    const [merged, ...rest] = await reduceLevels(
      digests,
      summarizer.foldTokens,
      (level) => level.length === 1,
    );
    if (!merged || rest.length > 0) throw tooDeep(`message ${seq} takes too many levels of consolidation`);
    return { seq, key: merged.key };
  }

  async function readAll(chunks: readonly ChunkRef[], maxTokens: number): Promise<Leaf[]> {
    const leaves = await readEach(chunks, maxTokens);
    const [first, ...others] = leaves.map(({ digest }) => digest.byRule);
    // From the messages themselves the rules write a better summary than from digests by rule.
    if (first !== undefined && others.every((type) => type !== undefined))
      throw steps.failed(first, `the model failed at ${chunks.length === 1 ? 'the chunk' : 'every chunk'}`);
    return leaves;
  }

  async function readEach(chunks: readonly ChunkRef[], maxTokens: number): Promise<Leaf[]> {
    const read = chunks.map((chunk, index) => readOrHalve(chunk, index + 1, chunks.length, maxTokens));
    return (await Promise.all(read)).flat();
  }

  function tooDeep(message: string): Error {
    return steps.failed('Summary.DepthExceeded', message);
  }

  async function readChunk(
    chunk: ChunkRef,
    number: number,
    of: number,
    fold: boolean,
    maxTokens: number,
  ): Promise<DigestRef> {
    const label = `chunk ${number}/${of}${fold ? ' and fold' : ''} · ${count(chunk.tokens)} → at most ${count(maxTokens)} tokens`;
    const step = { chunk, fold, foldGeneration, maxTokens, rulesServe: rulesServe && !fold };
    const digest = await slots(() => steps.readChunk(step, label));
    used.push(digest);
    covered.set(digest.key, chunk.tokens);
    progress.chunk(number, of, chunk.tokens, digest.tokens);
    return digest;
  }

  async function readOrHalve(
    chunk: ChunkRef,
    number: number,
    of: number,
    maxTokens: number,
  ): Promise<Leaf[]> {
    try {
      return [{ chunk, digest: await readChunk(chunk, number, of, false, maxTokens) }];
    } catch (error) {
      const halves = steps.overflow(error)?.halves;
      if (!halves) throw error;
      return (await Promise.all(halves.map((half) => readOrHalve(half, number, of, maxTokens)))).flat();
    }
  }

  /** The digests and the previous snapshot as one; the key of the new snapshot. */
  async function consolidate(leaves: DigestRef[]): Promise<string> {
    let level = leaves;
    /** Tokens that one consolidation may read; half of what has turned out not to fit. */
    let room = summarizer.foldTokens;
    for (let depth = 1; depth <= summarizer.depthLimit; depth++) {
      progress.consolidating(level.length, depth);
      const whole = level.reduce((sum, { tokens }) => sum + tokens, previousTokens);
      if (level.length === 1 || whole <= room) {
        try {
          return (await mergeRefs(level, true, depth)).key;
        } catch (error) {
          if (!steps.overflow(error) || level.length === 1) throw error;
          room = Math.floor(whole / 2);
        }
      }
      level = await mergeLevel(level, room - previousTokens, depth);
    }
    throw tooDeep(`${level.length} digests are left after ${summarizer.depthLimit} levels of consolidation`);
  }

  /** Levels of merging until `done`, or until the depth limit. */
  async function reduceLevels(
    leaves: DigestRef[],
    room: number,
    done: (level: DigestRef[]) => boolean,
  ): Promise<DigestRef[]> {
    let level = leaves;
    for (let depth = 1; depth <= summarizer.depthLimit && !done(level); depth++) {
      level = await mergeLevel(level, room, depth);
    }
    return level;
  }

  async function mergeLevel(level: DigestRef[], room: number, depth: number): Promise<DigestRef[]> {
    const merged = batches(level, room).map((group) => mergeOrHalve(group, depth));
    return (await Promise.all(merged)).flat();
  }

  /** One digest for the group; two halves' where it does not fit, and nothing where two digests do not. */
  async function mergeOrHalve(group: DigestRef[], depth: number): Promise<DigestRef[]> {
    if (group.length === 1) return group;
    try {
      return [await mergeRefs(group, false, depth)];
    } catch (error) {
      if (!steps.overflow(error) || group.length === 2) throw error;
      const middle = Math.ceil(group.length / 2);
      const halves = [group.slice(0, middle), group.slice(middle)];
      return (await Promise.all(halves.map((half) => mergeOrHalve(half, depth)))).flat();
    }
  }

  function mergeRefs(digests: DigestRef[], root: boolean, depth: number): Promise<DigestRef> {
    const tokens = digests.reduce((sum, digest) => sum + digest.tokens, root ? previousTokens : 0);
    const coveredTokens = digests.reduce((sum, { key }) => sum + (covered.get(key) ?? 0), 0);
    return mergeOnce(
      digests.map(({ key }) => key),
      { root, coveredTokens, maxTokens: root ? summarizer.snapshotTokens : summarizer.digestTokens },
      `level ${depth} · ${count(tokens)} tokens`,
    );
  }

  async function mergeOnce(
    digests: string[],
    about: { root: boolean; coveredTokens: number; maxTokens: number },
    where: string,
  ): Promise<DigestRef> {
    const label = `${about.root ? 'snapshot' : 'merge'} of ${digests.length} digests · ${where}`;
    const merged = await slots(() =>
      steps.merge({ ...about, digests, foldGeneration: about.root ? foldGeneration : null }, label),
    );
    used.push(merged);
    covered.set(merged.key, about.coveredTokens);
    return merged;
  }
}

/** Unix milliseconds of each model call behind these. */
export function spansOf(digests: readonly DigestRef[]): [from: number, to: number][] {
  const asked = digests.filter(({ startedAt, endedAt }) => endedAt > startedAt);
  return asked.map(({ startedAt, endedAt }) => [startedAt, endedAt]);
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
