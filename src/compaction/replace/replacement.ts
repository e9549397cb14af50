import { commonPrefix } from '../../context/view/breakdown.js';
import { type Head, sizeBeyond, sizeOf, type ViewItem, viewing } from '../../context/view/view.js';
import { type ChatMessage, isMedia, type LoggedMessage } from '../../conversation/message.js';
import { isFailure, type PalimpsestError } from '../../errors.js';
import { assertReachable } from '../../context/reductions/to-fit.js';
import type { Steps } from '../../steps.js';
import { acceptHead } from '../../summary/answer/accept.js';
import { coverageOf, type Coverage } from '../../summary/coverage.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import { newHead, type MadeHead, type Quotable } from './new-head.js';
import { type Reduced, reductionsFor } from './reductions.js';
import type { ReplacementInput, Replacement, RepairNeeded } from './input.js';
import { withoutSecrets } from '../../summary/redaction/withheld.js';

/**
 * Replaces the planned beginning of a context: makes head and reductions, and accepts or refuses them. Throws
 * `Summary.NotSmaller`, `Summary.PinsLost` or `Llm.BadOutput` if the result is refused, and `Budget.Unreachable` if no
 * reduction can make the context fit with this head, although it fits without the head. After a failure the session is
 * unchanged.
 */
export function* makeReplacement(input: ReplacementInput): Steps<Replacement | RepairNeeded> {
  const { plan, method, policy, limits, source, parent, counter } = input;
  const evicts = plan.throughSeq >= plan.fromSeq;
  const kept = source.tail.filter(({ seq }) => seq > plan.throughSeq);
  const evicted = [...source.system, ...source.tail].filter(
    ({ seq }) => seq >= plan.fromSeq && seq <= plan.throughSeq,
  );
  const replacesHead = evicts || plan.reason === 'resummarize';
  const before = yield* viewing(source, counter);
  const tokensBefore = sizeOf(before);
  const quotable = replacesHead ? yield* quotableOf(input, evicted, kept) : { evicted, kept };
  const lenient = input.force || plan.partial || plan.reason === 'resummarize';
  const minGain = lenient ? 0 : policy.summary.minGain;

  const best = yield* withinBounds();
  if ('repair' in best) return best;
  const { made, head, fit, tokensAfter, later } = best;
  if (plan.reason !== 'resummarize') {
    acceptHead({
      tokensBefore: tokensBefore - later,
      tokensAfter: tokensAfter - later,
      minGain,
      // Pins are checked only in a new head: an older head may lack newer pins.
      pins: made?.pinned ?? [],
      head: head ? firstText(head.messages) : '',
    });
  }
  if (made) yield* assertFits(fit.view, input);
  const chunks = input.written?.chunks ?? [];
  return {
    head,
    snapshot: made?.snapshot ?? parent.snapshot,
    ledger: made?.ledger ?? parent.ledger,
    state: made ? made.state : parent.state,
    layers: made ? made.layers : parent.layers,
    newLayers: made?.newLayers ?? [],
    pinned: made?.matched ?? [...parent.pinned],
    fallback: made ? made.fallback : parent.fallback,
    coverage: evicts ? coverage(input, evicted, quotable.evicted, method === 'model' ? chunks : []) : [],
    reductions: fit.reductions,
    view: fit.view,
    tokensBefore,
    tokensAfter,
    cachedTokens: commonPrefix(before, fit.view, counter),
    missed: !plan.partial && later === 0 && tokensAfter > limits.contextTarget,
  };

  /** The new head, if any, with at most `exactTokens` of exact values, and the context with it. */
  function* attempt(given: ReplacementInput, exactTokens: number): Steps<Attempted | RepairNeeded> {
    const made = replacesHead ? yield* newHead(given, quotable, exactTokens) : null;
    if (made && 'repair' in made) return made;
    const head = made?.head ?? source.head;
    const fit = yield* reductionsFor(given, kept, head, tokensBefore);
    // Messages appended after the plan do not count for its target.
    const later = sizeBeyond(plan.seenThroughSeq ?? Infinity, fit.view);
    return { made, head, fit, tokensAfter: sizeOf(fit.view), later };
  }

  /** Drops exact values, which code adds, before a summary is refused or misses its target because of them. */
  function* withinBounds(): Steps<Attempted | RepairNeeded> {
    const whole = yield* attempt(input, limits.exactTokens);
    if ('repair' in whole) return whole;
    const { gain, target } = excess(whole);
    const exactTokens = counter.count((whole.made?.ledger ?? '').split('\n', 1)[0]!);
    for (const over of new Set([Math.max(gain, target), gain])) {
      if (over <= 0 || exactTokens === 0) continue;
      const shorter = yield* attempt({ ...input, repaired: true }, Math.max(0, exactTokens - over));
      if ('repair' in shorter) continue;
      const still = excess(shorter);
      if (still.gain <= 0 && (over === gain || still.target <= 0)) return shorter;
    }
    return whole;
  }

  /** Tokens beyond the minimum gain and beyond the target. */
  function excess({ tokensAfter, later }: Attempted): { gain: number; target: number } {
    const before = tokensBefore - later;
    const allowed = Math.min(before - 1, Math.floor((1 - minGain) * before));
    return {
      gain: tokensAfter - later - allowed,
      target: plan.partial || later > 0 ? 0 : tokensAfter - limits.contextTarget,
    };
  }
}

/** The context with a new head. */
interface Attempted {
  made: MadeHead | null;
  head: Head | null;
  fit: Reduced;
  tokensAfter: number;
  /** Tokens of messages appended after the plan. */
  later: number;
}

/** Refuses a head whose verbatim texts fill the window: no head is ever reduced, so it must not replace a context that fits. */
function* assertFits(
  view: readonly ViewItem[],
  { source, policy, limits, counter }: Pick<ReplacementInput, 'source' | 'policy' | 'limits' | 'counter'>,
): Steps<void> {
  const options = { newestUser: policy.reduce.newestUserMessage, recovery: policy.recovery };
  const unreachable = yield* failureOf(view);
  if (unreachable !== null && (yield* failureOf(yield* viewing(source, counter))) === null) throw unreachable;

  function* failureOf(shown: readonly ViewItem[]): Steps<PalimpsestError | null> {
    try {
      yield* assertReachable(shown, limits.budget, counter, options);
      return null;
    } catch (error) {
      if (isFailure(error)) return error;
      throw error;
    }
  }
}

function* quotableOf(
  { policy, redact }: ReplacementInput,
  evicted: readonly LoggedMessage[],
  kept: readonly LoggedMessage[],
): Steps<Quotable> {
  if (policy.redact === null) return { evicted, kept };
  return { evicted: yield* withoutSecrets(evicted, redact), kept: yield* withoutSecrets(kept, redact) };
}

function coverage(
  input: ReplacementInput,
  evicted: readonly LoggedMessage[],
  shown: readonly LoggedMessage[],
  chunks: ChunkRef[],
): Coverage[] {
  const first = evicted[0]?.seq ?? 1;
  const inContext = input.source.system
    .filter(({ seq }) => seq >= first)
    .map(({ seq }) => ({ seq, reason: 'in context' }));
  const withMedia = evicted
    .filter(({ message: { content } }) => Array.isArray(content) && content.some(isMedia))
    .map(({ seq }) => ({ seq, reason: 'media withheld' }));
  const redacted = evicted
    .filter((logged, index) => shown[index] !== logged)
    .map(({ seq }) => ({ seq, reason: 'redacted' }));
  return coverageOf(chunks, {
    messages: evicted.map(({ seq }) => seq),
    excluded: inContext,
    partly: [...withMedia, ...redacted],
  });
}

function firstText(messages: readonly ChatMessage[]): string {
  const content = messages[0]?.content;
  return typeof content === 'string' ? content : '';
}
