/** The reductions of a context from one commit on. */
import {
  buildView,
  type Head,
  type Reduction,
  sizeBeyond,
  sizeOf,
  type ViewItem,
} from '../../context/view/view.js';
import type { LoggedMessage } from '../../conversation/message.js';
import type { Limits } from '../../limits/limits.js';
import { summarizedMessage } from '../../context/reductions/large-message.js';
import { commitReductions } from '../../context/reductions/retention.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { ReplacementInput } from './input.js';

/** The reductions in force with this head: those that stand and still hold, and what the policy shortens now. */
export function reductionsFor(
  { plan, written, policy, limits, source, counter }: ReplacementInput,
  kept: LoggedMessage[],
  head: Head | null,
  tokensBefore: number,
): { reductions: Reduction[]; view: ViewItem[] } {
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
  // With the head the provider reads the tail anew as well: nothing is gained by what was shortened before, but for
  // what a model was paid for.
  const paid = carried.filter(({ kind }) => kind === 'summary');
  if (plan.throughSeq >= plan.fromSeq || plan.reason === 'resummarize') return applied(paid);
  const gentle = applied(carried);
  const target = limits.contextTarget + sizeBeyond(seenThroughSeq, gentle.view);
  if (what === 'policy' || sizeOf(gentle.view) <= target) return gentle;
  // What was shortened before stays as it is in a view: begin anew where that reaches further.
  const anew = applied(paid);
  return sizeOf(anew.view) < sizeOf(gentle.view) ? anew : gentle;

  function applied(base: Reduction[]): { reductions: Reduction[]; view: ViewItem[] } {
    const view = buildView({ system: source.system, head, tail: kept, reductions: base }, counter);
    // Reducing what the next compaction evicts would be work for nothing.
    if (plan.partial) return { reductions: base, view };
    const options = { policy, limits, tokensBefore, what, seenThroughSeq };
    const fit = commitReductions(view, options, counter);
    return { reductions: [...base, ...fit.reductions], view: fit.view };
  }
}

/** Tokens beside the digest for head, tail and pointer of a message that is summarized by itself. */
const leastAround = 400;

function summarizedTokens({ messageTokens }: Limits, digest: string, counter: TokenCounter): number {
  return Math.max(counter.count(digest) + leastAround, Math.floor((messageTokens ?? 0) / 4));
}
