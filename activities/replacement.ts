import type { Method, Plan } from '../src/compaction/plan/plan-types.js';
import type { LayerText, ReplacementInput, Written } from '../src/compaction/replace/input.js';
import { redactionOf } from '../src/compaction/plan/summarizer-settings.js';
import type { LoggedMessage } from '../src/conversation/message.js';
import { PalimpsestError } from '../src/errors.js';
import { limitsOf } from '../src/limits/limits.js';
import { policyOf } from '../src/policy/layers.js';
import type { Policy } from '../src/policy/defaults.js';
import { loadCompaction } from '../src/store/compactions/generations.js';
import { readContextSource } from '../src/store/reading/context.js';
import { readMessages } from '../src/store/log/messages.js';
import { factsOf, type SessionRow } from '../src/store/sessions/session-row.js';
import type { ChunkRef } from '../src/summary/ask/chunk.js';
import type { Layer } from '../src/summary/ask/layers.js';
import type { SessionIds } from '../src/contract/ids.js';
import { counterFor } from '../src/tokens/counter.js';
import { digestTexts, redactorOf } from './asking.js';
import type { Dependencies } from './run.js';

/** References to the texts that the model wrote for one compaction. */
interface WrittenRefs {
  /** Chunks as they were summarized, after halving. */
  chunks: ChunkRef[];
  /** Key of the new snapshot; null in `journal` mode and if only messages were summarized. */
  snapshot: string | null;
  layers: Layer[];
  /** `journal` mode: the answer that holds the changes to the state. Absent in requests of earlier versions. */
  changes?: string | null;
  messages: { seq: number; key: string }[];
}

export interface ReplacementRequest extends SessionIds {
  plan: Omit<Plan, 'chunks' | 'messages' | 'method'>;
  method: Method;
  written: WrittenRefs | null;
  /** True if the model was asked to write the summary and failed. */
  failed: boolean;
  /** Number of texts that the rules wrote because the model failed at them. Absent in requests of earlier versions. */
  chunksByRule?: number;
  force: boolean;
  repaired: boolean;
}

export function idsOf({ tenant, session, incarnation }: SessionIds): SessionIds {
  return { tenant, session, incarnation };
}

/**
 * Reads from the database all facts on which the replacement of the prefix depends. Throws `Store.StaleGeneration` if another
 * compaction was committed first, if the model received text that is redacted now, or if the policy was switched off. `known`:
 * texts of digests, by key.
 */
export async function loadReplacement(
  { pool }: Pick<Dependencies, 'pool'>,
  request: ReplacementRequest,
  signal: AbortSignal,
  known?: ReadonlyMap<string, string>,
): Promise<{ session: SessionRow; input: ReplacementInput }> {
  const { plan, method, failed, force, repaired, chunksByRule = 0 } = request;
  const ids = idsOf(request);
  const writing = request.written === null ? null : textsOf(request.written);
  // A stale plan is the first reason to fail.
  writing?.catch(() => undefined);
  const [{ session, source }, parent] = await Promise.all([
    readContextSource(pool, ids, 0),
    loadCompaction(pool, ids, plan.baseGeneration),
  ]);
  if (session.generation !== plan.baseGeneration) {
    throw new PalimpsestError(
      'Store.StaleGeneration',
      `generation ${session.generation} was committed while generation ${plan.baseGeneration + 1} was prepared`,
    );
  }
  const policy = policyOf(session.policy);
  if (plan.summarizer.redaction !== redactionOf(policy) || (!policy.enabled && !force)) {
    throw new PalimpsestError(
      'Store.StaleGeneration',
      'the policy redacts other things than when this was planned, or was switched off',
    );
  }
  const limits = limitsOf(policy, factsOf(session));
  // The plan leaves out entries whose messages a model was to read again. No model read them, so all entries are needed.
  const layers =
    method !== 'model' && (plan.mode === 'layered' || plan.mode === 'journal') ? parent.layers : null;
  const [written, standing, referenced] = await Promise.all([
    writing,
    layers && layerTexts(layers),
    messagesNamed(policy),
  ]);
  return {
    session,
    input: {
      ...{ plan, method, failed, force, repaired, chunksByRule, policy, limits, source },
      counter: counterFor(limits.tokenizer),
      ...{ written, standing, referenced },
      parent: { ...parent, pinned: parent.pinned ?? [] },
      redact: redactorOf(policy, ids.tenant, signal),
    },
  };

  async function textsOf({ chunks, snapshot, layers, changes, messages }: WrittenRefs): Promise<Written> {
    const refs = [...layers, ...messages].map(({ key }) => key);
    const keys = [...new Set([...refs, snapshot, changes].filter((key) => typeof key === 'string'))];
    const found = await digestTexts({ pool }, ids, keys, known);
    const texts = new Map(keys.map((key, index) => [key, found[index]!]));
    const textOf = (key: string) => texts.get(key)!;
    return {
      chunks,
      snapshot: snapshot === null ? null : textOf(snapshot),
      layers: layers.map((layer) => ({ layer, text: textOf(layer.key) })),
      changes: changes ? textOf(changes) : null,
      messages: messages.map(({ seq, key }) => ({ seq, text: textOf(key) })),
    };
  }

  async function layerTexts(layers: readonly Layer[]): Promise<LayerText[]> {
    const texts = await digestTexts(
      { pool },
      ids,
      layers.map(({ key }) => key),
    );
    return layers.map((layer, index) => ({ layer, text: texts[index]! }));
  }

  /** Loads the carried request and the messages that the policy pins, wherever they are in the log. */
  async function messagesNamed({ pins }: Policy): Promise<LoggedMessage[]> {
    const pinned = pins.flatMap((pin) => (typeof pin === 'object' && 'seq' in pin ? [pin.seq] : []));
    const seqs = [...(plan.carriedSeq === null ? [] : [plan.carriedSeq]), ...pinned];
    const read = [...new Set(seqs)].map((seq) => readMessages(pool, ids, seq, seq));
    return (await Promise.all(read)).flat();
  }
}
