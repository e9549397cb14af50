/** The texts that a head carries word for word. */
import type { LoggedMessage } from '../../conversation/message.js';
import type { Steps } from '../../steps.js';
import { mayHaveMatched, MOST_MATCHES, pinnedTexts } from '../../summary/answer/pins.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { ReplacementInput } from './input.js';

/** Everything that the head pins / what of it patterns found. */
export interface Pinned {
  pinned: string[];
  matched: string[];
}

/**
 * Texts and messages that the policy names, whatever they take, and what its patterns have found in this session: of that
 * the newest texts, at most {@link MOST_MATCHES} for each pattern, and no more of them than there is room for.
 */
export function* pinsFor(
  { policy, limits, counter, parent, referenced, source }: ReplacementInput,
  evicted: readonly LoggedMessage[],
): Steps<Pinned> {
  const patterns = policy.pins.filter(
    (pin): pin is { pattern: string } => typeof pin === 'object' && 'pattern' in pin,
  );
  const named = policy.pins.filter((pin) => !(typeof pin === 'object' && 'pattern' in pin));
  const texts = yield* pinnedTexts(named, [...referenced, ...source.system, ...source.tail]);
  const found = new Set(yield* pinnedTexts(patterns, evicted));
  const earlier: string[] = [];
  for (const text of parent.pinned) {
    yield;
    if (!found.has(text) && patterns.some(({ pattern }) => mayHaveMatched(pattern, text))) earlier.push(text);
  }
  const all = [...new Set(earlier), ...found];
  // What a pattern finds, a user has written: it may take half of what a compaction keeps, as pinned texts may.
  let room = Math.floor((limits.contextTarget - limits.headMax) / 2) - pinTokens(texts, counter);
  const beyond = all.findLastIndex((text) => (room -= pinTokens([text], counter)) < 0);
  const matched = all.slice(beyond + 1).slice(-MOST_MATCHES * patterns.length);
  return { pinned: [...new Set([...texts, ...matched])], matched };
}

export function pinTokens(pinned: readonly string[], counter: TokenCounter): number {
  const listMark = 3;
  return pinned.reduce((sum, pin) => sum + counter.count(pin) + listMark, 0);
}
