import { counterFor, type TokenCounter, type TokenizerName } from '../tokens/counter.js';

/** Shorter texts are counted faster than they are found. */
const shortest = 32;

/**
 * Counters that remember what they have counted, because one session is counted under every policy. Drop them with the
 * session: they hold its texts.
 */
export function rememberingCounters(): (name: TokenizerName) => TokenCounter {
  const counters = new Map<TokenizerName, TokenCounter>();
  return (name) => {
    const known = counters.get(name);
    if (known) return known;
    const counter = remembering(counterFor(name));
    counters.set(name, counter);
    return counter;
  };
}

function remembering(counter: TokenCounter): TokenCounter {
  const sizes = new Map<string, number>();
  return {
    name: counter.name,
    count(text) {
      if (text.length < shortest) return counter.count(text);
      const known = sizes.get(text);
      if (known !== undefined) return known;
      const size = counter.count(text);
      sizes.set(text, size);
      return size;
    },
  };
}
