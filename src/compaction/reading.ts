/** From where a compaction reads, and what it folds the result with. */
import type { Policy } from '../policy/schema.js';
import type { Layer } from '../summary/layers.js';
import type { ChainLink, Plan } from './plan-types.js';

export type Reading = Pick<Plan, 'readFromSeq' | 'foldGeneration' | 'previousTokens' | 'layers'>;

/**
 * `incremental` folds the snapshot of the head, or where the fallback wrote that, the last one that it did not write
 * together with all that came since. `full_rewrite` reads the whole archive: its chunks are cut from the first message
 * on, so all but the newest are found among the stored digests. `layered` keeps what a model wrote and reads on from there.
 */
export function readingOf(
  mode: Policy['summary']['mode'],
  chain: readonly ChainLink[],
  useModel: boolean,
): Reading {
  const head = chain[0];
  if (head === undefined || head.throughSeq === 0) return afresh;
  if (mode === 'layered') return layeredReading(head, useModel);
  if (!useModel) return after(head);
  if (mode === 'full_rewrite') return afresh;
  return after(chain.find(({ fallback }) => !fallback) ?? head);
}

const afresh: Reading = { readFromSeq: 1, foldGeneration: null, previousTokens: 0, layers: [] };

function after({ generation, throughSeq, snapshotTokens }: ChainLink): Reading {
  if (throughSeq === 0) return afresh;
  return {
    readFromSeq: throughSeq + 1,
    foldGeneration: generation,
    previousTokens: snapshotTokens,
    layers: [],
  };
}

/** A session that was not layered until now starts afresh: its snapshot has no layers to keep. */
function layeredReading({ layers, throughSeq }: ChainLink, useModel: boolean): Reading {
  if (layers === null) return afresh;
  const byRule = useModel ? layers.findIndex(({ extractive }) => extractive === true) : -1;
  const kept: Layer[] = byRule === -1 ? layers : layers.slice(0, byRule);
  const readFromSeq = byRule === -1 ? throughSeq + 1 : layers[byRule]!.fromSeq;
  return { readFromSeq, foldGeneration: null, previousTokens: 0, layers: [...kept] };
}
