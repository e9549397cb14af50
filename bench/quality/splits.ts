/** Where a recorded session is split into evicted messages, tail, and the future that shows what was needed. */
import { legalCuts } from '../../test/support/cuts.js';
import type { ChatMessage, LoggedMessage, MessageMeta } from '../../src/conversation/message.js';
import { metaOf } from '../../src/conversation/validate.js';
import type { Recorded } from './sessions.js';

/** Messages before `evictedTo` are evicted, those up to `now` stay, the rest is the future. Indexes from 0, exclusive. */
export interface Split {
  evictedTo: number;
  now: number;
}

/** The product's defaults for `keep` at a window that just holds what was said: six messages, a quarter of the tokens. */
const KEEP = { messages: 6, fraction: 0.25 };

/** Splits where a third, a half and two thirds of the tokens were said, at boundaries between groups. */
export function splitsOf(session: Recorded): Split[] {
  const metas = metasOf(session);
  const cuts = legalCuts(metas, { now: 0, deadCallAfterMs: 0, closed: true });
  const splits = [1 / 3, 1 / 2, 2 / 3].flatMap((share) => {
    const now = cuts.find((cut) => sum(session.tokens.slice(0, cut)) >= share * session.total);
    if (now === undefined || now >= session.messages.length) return [];
    const said = sum(session.tokens.slice(0, now));
    const evictedTo = cuts.find(
      (cut) => now - cut <= KEEP.messages && sum(session.tokens.slice(cut, now)) <= KEEP.fraction * said,
    );
    return evictedTo === undefined || evictedTo > now ? [] : [{ evictedTo, now }];
  });
  return splits.filter(({ now }, index) => splits.findIndex((one) => one.now === now) === index);
}

function metasOf({ messages, tokens }: Recorded): MessageMeta[] {
  return messages.map((message, index) => ({
    seq: index + 1,
    tokens: tokens[index]!,
    ...metaOf(message),
    at: 0,
  }));
}

export function logged({ messages, tokens }: Recorded, from: number, to: number): LoggedMessage[] {
  return messages.slice(from, to).map((message: ChatMessage, index) => ({
    seq: from + index + 1,
    message,
    tokens: tokens[from + index]!,
  }));
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
