/** The reductions of a context after a commit. */
import {
  type Head,
  type Reduction,
  sizeBeyond,
  sizeOf,
  type ViewItem,
  viewing,
} from '../../context/view/view.js';
import type { LoggedMessage } from '../../conversation/message.js';
import type { Limits } from '../../limits/limits.js';
import { summarizedMessage } from '../../context/reductions/large-message.js';
import { commitReductions } from '../../context/reductions/retention.js';
import type { Steps } from '../../steps.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { ReplacementInput } from './input.js';

/** A context and the reductions in it. */
export interface Reduced {
  reductions: Reduction[];
  view: ViewItem[];
}

/** The reductions in force with this head: existing reductions that still apply, and new reductions of the policy. */
export function* reductionsFor(
  { plan, written, policy, limits, source, counter }: ReplacementInput,
  kept: LoggedMessage[],
  head: Head | null,
  tokensBefore: number,
): Steps<Reduced> {
  const { reductions: what, seenThroughSeq = Infinity } = plan;
  const standing = source.reductions.filter(({ fromSeq }) => fromSeq > plan.throughSeq);
  const summaries = (written?.messages ?? []).flatMap(({ seq, text }) => {
    const logged = kept.find((message) => message.seq === seq);
    const reduction =
      logged &&
      summarizedMessage(logged, text, summarizedTokens(limits, text, counter), counter, policy.recovery);
    return reduction ? [reduction] : [];
  });
  const replaced = new Set(summaries.map(({ fromSeq }) => fromSeq));
  const carried = [...standing.filter(({ fromSeq }) => !replaced.has(fromSeq)), ...summaries];
  // With a new head the provider's cache does not serve the tail, so keeping earlier reductions unchanged saves nothing: they
  // are made anew. Only summaries are kept, because they were paid for.
  const paid = carried.filter(({ kind }) => kind === 'summary');
  if (plan.throughSeq >= plan.fromSeq || plan.reason === 'resummarize') return yield* applied(paid);
  const gentle = yield* applied(carried);
  const target = limits.contextTarget + sizeBeyond(seenThroughSeq, gentle.view);
  if (what === 'policy' || sizeOf(gentle.view) <= target) return gentle;
  // A view keeps earlier reductions unchanged: start from the originals if that saves more.
  const anew = yield* applied(paid);
  return sizeOf(anew.view) < sizeOf(gentle.view) ? anew : gentle;

  function* applied(base: Reduction[]): Steps<Reduced> {
    const view = yield* viewing({ system: source.system, head, tail: kept, reductions: base }, counter);
    // The next compaction evicts these messages, so reducing them would be useless.
    if (plan.partial) return { reductions: base, view };
    const options = { policy, limits, tokensBefore, what, seenThroughSeq };
    const fit = yield* commitReductions(view, options, counter);
    return { reductions: [...base, ...fit.reductions], view: fit.view };
  }
}

/** Minimum tokens for the beginning, the end and the pointer that surround the digest of a separately summarized message. */
const leastAround = 400;

function summarizedTokens({ messageTokens }: Limits, digest: string, counter: TokenCounter): number {
  return Math.max(counter.count(digest) + leastAround, Math.floor((messageTokens ?? 0) / 4));
}
