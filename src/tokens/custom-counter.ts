import { invalid } from '../errors.js';
import type { TokenCounter } from './token-counter.js';

/**
 * UTF-16 code units given to a custom counter at once: between two such slices a caller may do other work.
 * @internal Tests stand on either side of it.
 */
export const SLICE_CHARACTERS = 65_536;

/** How far before its end a slice looks for white space to be cut at. */
const LOOK_BACK = 1_024;

/** The text in slices, in order and without gaps, cut at white space where there is some, never inside a surrogate pair. */
export function* textSlices(text: string): Generator<string> {
  let from = 0;
  while (text.length - from > SLICE_CHARACTERS) {
    const end = from + SLICE_CHARACTERS;
    const space = text.slice(end - LOOK_BACK, end).search(/\s\S*$/);
    const high = text.charCodeAt(end - 1);
    const insidePair = high >= 0xd800 && high <= 0xdbff;
    const cut = space === -1 ? (insidePair ? end - 1 : end) : end - LOOK_BACK + space;
    yield text.slice(from, cut);
    from = cut;
  }
  yield text.slice(from);
}

/**
 * A counter over a function of the platform's. Long texts reach it in slices, so that it is asked the same whether or
 * not its caller pauses in between. `count` throws `Input.Invalid` where the function throws or answers no size.
 */
export function customCounter(name: `custom:${string}`, count: (text: string) => number): TokenCounter {
  const counted = (text: string): number => {
    const tokens = attempt(name, count, text);
    if (typeof tokens === 'number' && Number.isFinite(tokens) && tokens >= 0) return Math.ceil(tokens);
    throw invalid(
      `The counter ${name} answered ${String(tokens)} for a text of ${text.length} characters.`,
      'policy.tokenizer',
      'A counter answers the number of tokens: 0 or more, finite.',
    );
  };
  return {
    name,
    count(text) {
      let tokens = 0;
      for (const slice of textSlices(text)) tokens += slice === '' ? 0 : counted(slice);
      return tokens;
    },
  };
}

function attempt(name: string, count: (text: string) => number, text: string): unknown {
  try {
    return count(text);
  } catch (error) {
    throw invalid(
      `The counter ${name} failed on a text of ${text.length} characters: ${error instanceof Error ? error.message : String(error)}`,
      'policy.tokenizer',
      'A counter must take every text: empty ones, megabytes, NUL and halves of surrogate pairs.',
    );
  }
}
