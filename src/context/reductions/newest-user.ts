/**
 * The newest user message where it is larger than what there is for it: agents whose tools answer in user messages get
 * observations of any size. Only a policy with `reduce.newestUserMessage` lets it be shortened; the original stays in the
 * log, and is what a summarizer reads once the message is evicted.
 */
import type { ViewItem } from '../view/view.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { textOf } from '../../conversation/validate.js';
import type { Recovery } from '../../policy/resolve.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { countMessage, FRAMING_TOKENS } from '../../tokens/message.js';
import { excerptOf, excerptSteps } from './excerpt.js';
import { layoutOf } from './layout.js';
import { besidesText, StandIns, withContent } from './stand-ins.js';

/** Share of what is free beside system messages and head that the newest user message may fill before it is shortened. */
const mostWhole = 0.75;

/** Share of what is free in the target that an excerpt of it fills then, or all that the rest leaves. */
const leastShortened = 0.5;

/**
 * Puts an excerpt in the place of the newest user message where that fills too much of `limit` tokens. A message that was
 * shortened before stays as it is.
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

/** The view with the newest user message as short as it can be. */
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

/** Share of what a compaction keeps beside its summary that a carried request may take. */
const mostCarriedShare = 0.5;

/** Tokens of a carried request above which it is shortened. */
export function mostCarried(
  { reduce }: { reduce: { newestUserMessage: boolean } },
  { tailTarget }: { tailTarget: number },
): number {
  return reduce.newestUserMessage ? Math.floor(mostCarriedShare * tailTarget) : Infinity;
}

/** A request as a head carries it: an excerpt where it has more than `most` tokens. */
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
