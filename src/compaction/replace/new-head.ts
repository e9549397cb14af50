import type { Head } from '../../context/view/view.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { carriedWithin, mostCarried } from '../../context/reductions/newest-user.js';
import type { Steps } from '../../steps.js';
import type { Snapshot } from '../../summary/answer/accept.js';
import { buildHead } from '../../summary/head.js';
import { droppedAtoms } from '../../summary/ledger/integrity.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import { buildLedger, rankedAtoms } from '../../summary/ledger/ledger.js';
import { draftSnapshot } from './draft.js';
import { pinsFor, pinTokens } from './pins.js';
import type { LayerText, ReplacementInput, RepairNeeded } from './input.js';
import { mentionsWithoutSecrets, withoutSecrets } from '../../summary/redaction/withheld.js';

/** Most dropped atoms that one repair is told. */
const mostMissing = 40;

/** The head of a new generation: snapshot, pins, ledger; or what of the snapshot must be asked for once more. */
export interface MadeHead {
  head: Head;
  snapshot: Snapshot;
  ledger: string;
  layers: KeptLayer[] | null;
  state: string | null;
  newLayer: LayerText | null;
  /** Everything the head holds word for word / what of it patterns found. */
  pinned: string[];
  matched: string[];
  fallback: boolean;
}

export function* newHead(
  input: ReplacementInput,
  evicted: readonly LoggedMessage[],
  kept: readonly LoggedMessage[],
  ledgerTokens: number,
): Steps<MadeHead | RepairNeeded> {
  const { plan, policy, limits, parent, redact, source, counter } = input;
  const quotable = policy.redact === null ? evicted : yield* withoutSecrets(evicted, redact);
  const stays = policy.redact === null ? kept : yield* withoutSecrets(kept, redact);
  const drafted = draftSnapshot(input, quotable, stays, counter);
  if ('repair' in drafted) return drafted;
  const { snapshot, layers, state, method, newLayer } = drafted;
  const { pinned, matched } = yield* pinsFor(input, evicted);
  const carried = messageOf(plan.carriedSeq, input);
  const common = {
    snapshot,
    state,
    pins: pinned,
    archive: { parts: parent.parts + (plan.throughSeq >= plan.fromSeq ? 1 : 0), throughSeq: plan.throughSeq },
    method,
    carried: carried && carriedWithin(carried, mostCarried(policy, limits), counter, policy.recovery),
    acknowledgment: policy.summary.acknowledgment,
    form: policy.summary.form,
    recovery: policy.recovery,
  };
  const bare = buildHead({ ...common, ledger: '' }, counter);
  const fallback = isFallback(input, layers);
  if (state !== null)
    return { head: bare, snapshot, ledger: '', state, layers, newLayer, pinned, matched, fallback };
  const room =
    limits.headMax + Math.max(limits.pinTokens, pinTokens(pinned, counter)) - (bare.tokens[0] ?? 0);
  const mentions = yield* mentionsWithoutSecrets(input, { previousSnapshot: parent.snapshot, evicted, kept });
  // What is evicted next is visible no longer than until then.
  const seen = { ...mentions, previous: parent.ledger, kept: plan.partial ? [] : mentions.kept };
  const atoms = rankedAtoms(seen);
  const ledger = redact(
    buildLedger({
      ...seen,
      atoms,
      snapshot,
      maxTokens: Math.max(0, Math.min(ledgerTokens, room)),
      counter,
    }),
  );
  if (policy.summary.integrityCheck && method === 'model' && !input.repaired && layers === null) {
    const missing = droppedAtoms({
      ...mentions,
      previous: mentions.previousSnapshot,
      snapshot,
      ledger,
      atoms,
      limit: mostMissing,
    });
    if (missing.length > 0) return { repair: 'dropped', snapshot, missing: missing.map(redact) };
  }
  return {
    head: buildHead({ ...common, ledger }, counter),
    snapshot,
    ledger,
    state,
    layers,
    newLayer,
    pinned,
    matched,
    fallback,
  };

  function messageOf(seq: number | null, { referenced }: ReplacementInput): LoggedMessage | null {
    if (seq === null) return null;
    return [...source.tail, ...referenced].find((logged) => logged.seq === seq) ?? null;
  }
}

/** Whether a model should write this summary anew once one answers. */
function isFallback(
  { plan, method, failed, chunksByRule, policy, parent }: ReplacementInput,
  layers: readonly KeptLayer[] | null,
): boolean {
  if (layers !== null) return layers.some(({ extractive }) => extractive === true);
  const leftOut = failed || (plan.withoutModel !== null && policy.summary.method === 'model');
  if (method !== 'model') return leftOut || parent.fallback;
  if (chunksByRule > 0) return true;
  // Too much to read anew: what the fallback wrote was folded as it stood.
  return parent.fallback && plan.foldGeneration === plan.baseGeneration;
}
