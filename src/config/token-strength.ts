/** How hard a token is to guess. The estimate errs on the low side: it refuses some good tokens, so that weak ones fail. */

/** Bits that a token of the configuration needs. */
export const leastTokenBits = 128;

const bitsOf = { digit: Math.log2(10), character: 4, mixed: 5, word: 11 } as const;

/** Of the 128 bits of a UUID, six are fixed, and more in most versions. */
const uuidBits = 122;

/**
 * A letter or digit counts 4 bits, as in hex, 5 bits if there are capitals and small letters, and less if there are only digits. A
 * row of letters, such as a word, counts as one choice from a list of two thousand. Punctuation, and a part of four or more
 * characters that occurs earlier, count nothing.
 */
export function tokenBits(token: string): number {
  if (/^[\da-f]{8}-(?:[\da-f]{4}-){3}[\da-f]{12}$/i.test(token)) return uuidBits;
  const fresh = withoutRepeats(token);
  const hex = /\d/.test(token) && /^[^g-z]+$/i.test(token);
  // In hex digits, rows of letters come by chance.
  const words = hex ? [] : [...fresh.matchAll(/[A-Z]?[a-z]{4,}|[A-Z]{5,}/g)].map(([word]) => word);
  const others = fresh.replace(/[^a-z\d]/gi, '').length - words.join('').length;
  return words.length * bitsOf.word + others * bitsOf[kindOf(token)];
}

function kindOf(token: string): 'digit' | 'character' | 'mixed' {
  if (/[a-z]/.test(token) && /[A-Z]/.test(token)) return 'mixed';
  return /[a-z]/i.test(token) ? 'character' : 'digit';
}

/** The token without every part of four or more characters that occurs earlier, such as `aaaa` after an `a`. */
function withoutRepeats(token: string): string {
  let fresh = '';
  for (let at = 0; at < token.length;) {
    let length = 0;
    while (
      at + length < token.length &&
      token.slice(0, at + length).includes(token.slice(at, at + length + 1))
    )
      length++;
    if (length < 4) fresh += token[at];
    at += length < 4 ? 1 : length;
  }
  return fresh;
}
