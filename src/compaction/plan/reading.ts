import type { Policy } from '../../policy/resolve.js';
import type { Layer } from '../../summary/ask/layers.js';
import type { ChainLink, Plan } from './plan-types.js';

/** The first message that a compaction reads, and the snapshot or layers that it builds on. */
export type Reading = Pick<Plan, 'mode' | 'readFromSeq' | 'foldGeneration' | 'previousTokens' | 'layers'>;

/**
 * `incremental` folds the snapshot of the head. Where the fallback wrote that one, it folds the last snapshot by a model
 * together with all that came since, unless a model has failed at parts of that twice. `full_rewrite` reads the whole
 * archive: its chunks are cut from the first message on, so all but the newest are found among the stored digests.
 * `journal` keeps the entries that a model wrote and reads on from there, as often.
 */
export function readingOf(
  mode: Policy['summary']['mode'],
  chain: readonly ChainLink[],
  useModel: boolean,
  /** Asked for by hand: whatever the model has failed at is tried again. */
  persists = false,
): Reading {
  const head = chain[0];
  if (head === undefined || head.throughSeq === 0) return afresh(mode);
  const isTriedEnough = !persists && triesOf(chain) >= MOST_TRIES;
  if (mode === 'journal' && head.layers === null && (!head.fallback || isTriedEnough)) return takenOver(head);
  if (mode === 'journal' && (useModel || head.layers !== null))
    return journalReading(head, useModel && !isTriedEnough);
  if (!useModel) return after(mode, head);
  if (mode === 'full_rewrite') return afresh(mode);
  return after(mode, (isTriedEnough ? head : chain.find(({ fallback }) => !fallback)) ?? head);
}

/** Most times that a model is given a part again, unasked, that it has failed at. */
const MOST_TRIES = 2;

/** How often a model has read on from the newest generation that no fallback had a part in. */
function triesOf(chain: readonly ChainLink[]): number {
  const base = chain.findIndex(({ fallback }) => !fallback);
  return chain.slice(0, Math.max(0, base)).filter(({ readByModel }) => readByModel).length;
}

/** For more than one compaction can read: goes on from the head as it stands, even where the fallback wrote it. */
export function shortReading(mode: Policy['summary']['mode'], chain: readonly ChainLink[]): Reading {
  const [head] = chain;
  if (head === undefined) return afresh(mode);
  if (mode !== 'journal') return after('incremental', head);
  return head.layers === null ? takenOver(head) : journalReading(head, false);
}

function afresh(mode: Plan['mode']): Reading {
  return { mode, readFromSeq: 1, foldGeneration: null, previousTokens: 0, layers: [] };
}

function after(mode: Plan['mode'], { generation, throughSeq, snapshotTokens }: ChainLink): Reading {
  if (throughSeq === 0) return afresh(mode);
  return {
    mode,
    readFromSeq: throughSeq + 1,
    foldGeneration: generation,
    previousTokens: snapshotTokens,
    layers: [],
  };
}

/** Beginning of the key of an entry whose text is the snapshot of a generation. */
export const snapshotKey = 'generation ';

/** The snapshot of a session that kept no journal until now is its first entry. */
function takenOver({ generation, throughSeq, snapshotTokens }: ChainLink): Reading {
  const entry = {
    rank: 1,
    key: `${snapshotKey}${generation}`,
    tokens: snapshotTokens,
    fromSeq: 1,
    throughSeq,
  };
  return { ...afresh('journal'), readFromSeq: throughSeq + 1, layers: snapshotTokens === 0 ? [] : [entry] };
}

/** What the fallback wrote of a snapshot is no entry: a model reads all of it anew. */
function journalReading({ layers, throughSeq }: ChainLink, useModel: boolean): Reading {
  if (layers === null) return afresh('journal');
  const byRule = useModel ? layers.findIndex(({ extractive }) => extractive === true) : -1;
  const kept: Layer[] = byRule === -1 ? layers : layers.slice(0, byRule);
  const readFromSeq = byRule === -1 ? throughSeq + 1 : layers[byRule]!.fromSeq;
  return { ...afresh('journal'), readFromSeq, layers: [...kept] };
}
