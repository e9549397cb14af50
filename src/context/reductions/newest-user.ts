/**
 * Shortens a newest user message that is too large for the context: agents whose tools answer in user messages get
 * observations of any size. It is shortened only if the policy sets `reduce.newestUserMessage`. The original stays in the log;
 * the summarizer reads the original once the message is evicted.
 */
import type { ViewItem } from '../view/view.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { textOf } from '../../conversation/validate.js';
import type { Recovery } from '../../policy/defaults.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { countMessage, FRAMING_TOKENS } from '../../tokens/message.js';
import { excerptOf, excerptSteps } from './excerpt.js';
import { layoutOf } from './layout.js';
import { besidesText, StandIns, withContent } from './stand-ins.js';

/** The newest user message is shortened if it takes more than this share of the room that system messages and head leave. */
const mostWhole = 0.75;

/** Share of the target's free room that the excerpt may always take; it may also fill all room that other messages leave. */
const leastShortened = 0.5;

/**
 * Replaces the newest user message by an excerpt if it fills too much of `limit` tokens. A message shortened before stays
 * unchanged.
 */
export function shortenNewest(work: StandIns, { limit, target }: { limit: number; target: number }): void {
  const { newest, untouchableTokens } = layoutOf(work.view());
  if (newest === null) return;
  const fixed = untouchableTokens - newest.tokens;
  if (newest.tokens <= mostWhole * (limit - fixed)) return;
  const free = target - fixed;
  const rest = work.tokens - untouchableTokens;
  shortenTo(work, newest, Math.floor(Math.max(leastShortened * free, free - rest)));
}

/** The view with the shortest form of the newest user message. */
export function withShortestNewest(
  view: readonly ViewItem[],
  counter: TokenCounter,
  recovery: Recovery,
): ViewItem[] {
  const { newest } = layoutOf(view);
  const work = new StandIns(view, counter, recovery);
  if (newest !== null) shortenTo(work, newest, 0);
  return work.view();
}

function shortenTo(work: StandIns, newest: ViewItem, most: number): void {
  const steps = [most - 2 * FRAMING_TOKENS, ...excerptSteps].filter(
    (step) => step === 0 || (step > 0 && step < most),
  );
  const others = work.tokens - newest.tokens;
  work.shrink('message', ({ fromSeq }) => fromSeq === newest.fromSeq, others + Math.max(0, most), steps);
}

/** Maximum share of the tail's target for a carried request. */
const mostCarriedShare = 0.5;

/** Tokens of a carried request above which it is shortened. */
export function mostCarried(
  { reduce }: { reduce: { newestUserMessage: boolean } },
  { tailTarget }: { tailTarget: number },
): number {
  return reduce.newestUserMessage ? Math.floor(mostCarriedShare * tailTarget) : Infinity;
}

/** The request that a head carries: an excerpt if it has more than `most` tokens. */
export function carriedWithin(
  logged: LoggedMessage,
  most: number,
  counter: TokenCounter,
  recovery: Recovery,
): LoggedMessage {
  const { seq, message, tokens } = logged;
  if (tokens <= most) return logged;
  const text = textOf(message);
  const original = { seq, callId: null, besides: besidesText(message), recovery };
  const excerptWithin = (room: number) => excerptOf(text, counter.count(text), room, original, counter);
  const excerpt = excerptWithin(Math.max(0, most - FRAMING_TOKENS)) ?? excerptWithin(0);
  if (excerpt === null) return logged;
  const shorter = withContent(message, excerpt);
  const size = countMessage(shorter, counter);
  return size < tokens ? { seq, message: shorter, tokens: size } : logged;
}
