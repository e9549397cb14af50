/** Merges digests level by level into one; a tree deeper than `depthLimit` is refused. */
import { count } from '../../numbers.js';
import type { Digests } from './digests.js';
import type { DigestRef } from './model-steps.js';

/** Merges the digests and the previous snapshot; returns the key of the new snapshot. */
export async function consolidate(digests: Digests, leaves: readonly DigestRef[]): Promise<string> {
  const { plan, steps, progress } = digests;
  const { previousTokens, summarizer } = plan;
  let level = leaves;
  /** Tokens that one consolidation may read; after an overflow, half of the tokens that did not fit. */
  let room = summarizer.foldTokens;
  for (let depth = 1; depth <= summarizer.depthLimit; depth++) {
    progress.consolidating(level.length, depth);
    const whole = level.reduce((sum, { tokens }) => sum + tokens, previousTokens);
    if (level.length === 1 || whole <= room) {
      try {
        return (await mergeGroup(digests, level, { root: true, depth })).key;
      } catch (error) {
        if (!steps.overflow(error) || level.length === 1) throw error;
        room = Math.floor(whole / 2);
      }
    }
    level = await mergeLevel(digests, level, room - previousTokens, depth);
  }
  throw tooDeep(
    digests,
    `${level.length} digests are left after ${summarizer.depthLimit} levels of consolidation`,
  );
}

/** Merges the digests of one large message, without the previous snapshot. */
export async function mergeMessage(
  digests: Digests,
  leaves: readonly DigestRef[],
  seq: number,
): Promise<DigestRef> {
  const { foldTokens, depthLimit } = digests.plan.summarizer;
  let level = leaves;
  for (let depth = 1; depth <= depthLimit && level.length !== 1; depth++)
    level = await mergeLevel(digests, level, foldTokens, depth);
  const [merged, ...rest] = level;
  if (!merged || rest.length > 0)
    throw tooDeep(digests, `message ${seq} takes too many levels of consolidation`);
  return merged;
}

async function mergeLevel(
  digests: Digests,
  level: readonly DigestRef[],
  room: number,
  depth: number,
): Promise<DigestRef[]> {
  const merged = batches(level, room).map((group) => mergeOrHalve(digests, group, depth));
  return (await Promise.all(merged)).flat();
}

/** One digest for the group, or those of its halves if it does not fit. Throws if even two digests do not fit. */
async function mergeOrHalve(digests: Digests, group: DigestRef[], depth: number): Promise<DigestRef[]> {
  if (group.length === 1) return group;
  try {
    return [await mergeGroup(digests, group, { root: false, depth })];
  } catch (error) {
    if (!digests.steps.overflow(error) || group.length === 2) throw error;
    const middle = Math.ceil(group.length / 2);
    const halves = [group.slice(0, middle), group.slice(middle)];
    return (await Promise.all(halves.map((half) => mergeOrHalve(digests, half, depth)))).flat();
  }
}

function mergeGroup(
  digests: Digests,
  group: readonly DigestRef[],
  { root, depth }: { root: boolean; depth: number },
): Promise<DigestRef> {
  const { previousTokens, summarizer } = digests.plan;
  const tokens = group.reduce((sum, digest) => sum + digest.tokens, root ? previousTokens : 0);
  const maxTokens = root ? summarizer.snapshotTokens : summarizer.digestTokens;
  return digests.merge(group, { root, maxTokens }, `level ${depth} · ${count(tokens)} tokens`);
}

/** Batches of neighbours with at most `room` tokens, but at least two digests, so that each level has fewer. */
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

function tooDeep({ steps }: Digests, message: string): Error {
  return steps.failed('Summary.DepthExceeded', message);
}
