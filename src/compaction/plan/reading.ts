import type { Policy } from '../../policy/defaults.js';
import type { Layer } from '../../summary/ask/layers.js';
import type { ChainLink, Plan } from './plan-types.js';

/** The first message that a compaction reads, and the snapshot or entries that it builds on. */
export type Reading = Pick<Plan, 'mode' | 'readFromSeq' | 'foldGeneration' | 'previousTokens' | 'layers'>;

/**
 * `incremental` merges the snapshot of the head. If the fallback wrote it, the last snapshot by a model and all later messages
 * are merged, unless a model has failed at parts of them twice. `full_rewrite` reads the whole archive. Its first
 * chunk always begins at message 1, so all chunks but the newest are the same each time, and their digests are already stored.
 * `journal` keeps the entries that a model
 * wrote and reads the messages after them, with the same number of retries.
 */
export function readingOf(
  mode: Policy['summary']['mode'],
  chain: readonly ChainLink[],
  useModel: boolean,
  /** Whether an operator requested the reading: if so, the model is retried regardless of earlier failures. */
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

/** Maximum number of compactions that ask a model to read messages at which it fails; a request by an operator is not counted. */
const MOST_TRIES = 2;

/** Number of attempts of a model since the newest generation without a fallback. */
function triesOf(chain: readonly ChainLink[]): number {
  const base = chain.findIndex(({ fallback }) => !fallback);
  return chain.slice(0, Math.max(0, base)).filter(({ readByModel }) => readByModel).length;
}

/** Used if one compaction cannot read everything: continues from the current head, even if the fallback wrote it. */
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

/** Prefix of the key of an entry whose text is the snapshot of a generation. */
export const snapshotKey = 'generation ';

/** Makes the snapshot of a session without a journal its first entry. */
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

/** A snapshot by the fallback is not an entry: a model reads its messages again. */
function journalReading({ layers, throughSeq }: ChainLink, useModel: boolean): Reading {
  if (layers === null) return afresh('journal');
  const byRule = useModel ? layers.findIndex(({ extractive }) => extractive === true) : -1;
  const kept: Layer[] = byRule === -1 ? layers : layers.slice(0, byRule);
  const readFromSeq = byRule === -1 ? throughSeq + 1 : layers[byRule]!.fromSeq;
  return { ...afresh('journal'), readFromSeq, layers: [...kept] };
}
