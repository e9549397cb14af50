/**
 * What stays readable of a split without a summarizer: by the ledger, and by simpler ways at the same number of tokens.
 * All of them show the leading system messages and the same tail.
 */
import type { TokenCounter } from '../../src/tokens/counter.js';
import { buildLedger } from '../../src/summary/ledger/ledger.js';
import type { Indexed } from './needs.js';
import { logged, sum, type Split } from './splits.js';
import type { Recorded } from './sessions.js';

/** The text that a baseline has in place of the evicted messages. */
export type Baseline = (session: Recorded, index: Indexed, split: Split, tokens: number) => string;

/** Nothing but a longer tail: the newest evicted messages, the last one cut at its beginning. */
export const longerTail: Baseline = (session, index, { evictedTo }, tokens) =>
  newest(session, index, { from: index.leading, to: evictedTo }, tokens, (at) => index.texts[at] ?? '');

/** Tool results masked, newest first: what user and assistant wrote, calls included. */
export const masking: Baseline = (session, index, { evictedTo }, tokens) =>
  newest(session, index, { from: index.leading, to: evictedTo }, tokens, (at) => {
    const role = session.messages[at]?.role;
    return role === 'tool' || role === 'function' ? '' : (index.texts[at] ?? '');
  });

/** A perfect summary of the last 4,000 evicted tokens, at whatever size: the most that a summarizer can keep that reads no more. */
export const last4000: Baseline = (session, index, split) => longerTail(session, index, split, 4_000);

/** Characters per token, where a text is cut to a number of tokens; the same for every baseline. */
const CHARS = 4;

function newest(
  { tokens: sizes }: Recorded,
  _index: Indexed,
  { from, to }: { from: number; to: number },
  tokens: number,
  textAt: (at: number) => string,
): string {
  const shown: string[] = [];
  let left = tokens;
  for (let at = to - 1; at >= from && left > 0; at--) {
    const text = textAt(at);
    const size = Math.min(sizes[at] ?? 0, Math.ceil(text.length / CHARS) + 4);
    if (text === '') continue;
    shown.unshift(size <= left ? text : text.slice(-left * CHARS));
    left -= size;
  }
  return shown.join('\n');
}

/** The ledger alone, made in `passes` compactions of equal size, each reading only what was evicted since the one before. */
export function ledgerOf(
  session: Recorded,
  index: Indexed,
  { evictedTo, now }: Split,
  { tokens, passes, counter }: { tokens: number; passes: number; counter: TokenCounter },
): string {
  let ledger = '';
  let from = index.leading;
  for (const to of cutsInto(session, index.leading, evictedTo, passes)) {
    const kept = to === evictedTo ? logged(session, to, now) : logged(session, to, Math.min(now, to + 6));
    ledger = buildLedger({
      previous: ledger,
      evicted: logged(session, from, to),
      kept,
      snapshot: '',
      maxTokens: tokens,
      counter,
    });
    from = to;
  }
  return ledger;
}

/** The ends of `passes` stretches of about equal tokens; fewer where there are not so many messages. */
function cutsInto({ tokens }: Recorded, from: number, to: number, passes: number): number[] {
  const all = sum(tokens.slice(from, to));
  const cuts: number[] = [];
  let said = 0;
  for (let at = from; at < to; at++) {
    said += tokens[at] ?? 0;
    if (said >= (all * (cuts.length + 1)) / passes) cuts.push(at + 1);
  }
  return [...new Set([...cuts.filter((cut) => cut < to), to])];
}
