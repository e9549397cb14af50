import type { TokenCounter } from '../../tokens/counter.js';

/** A stretch of text and its size; `to` is exclusive. */
export interface Piece {
  from: number;
  to: number;
  tokens: number;
}

/**
 * The text in pieces of about `size` characters, in order and without gaps, each counted once: the sum is never far
 * above the count of the whole, and a text of any length takes linear time. No piece has more than `most` tokens,
 * unless it is a single character. Pieces depend only on the text before their end, and end at code points.
 */
export function measurePieces(text: string, size: number, most: number, counter: TokenCounter): Piece[] {
  const pieces: Piece[] = [];
  for (let from = 0; from < text.length;) {
    const to = endOf(text, from, size);
    pieces.push(...counted(text, from, to, most, counter));
    from = to;
  }
  return pieces;
}

function counted(text: string, from: number, to: number, most: number, counter: TokenCounter): Piece[] {
  const tokens = counter.count(text.slice(from, to));
  if (tokens <= most) return [{ from, to, tokens }];
  const middle = codePointAt(text, from + Math.ceil((to - from) / 2));
  if (middle <= from || middle >= to) return [{ from, to, tokens }];
  return [...counted(text, from, middle, most, counter), ...counted(text, middle, to, most, counter)];
}

/** Ends a piece after a line end or a space of its last quarter if there is one, never inside a code point. */
function endOf(text: string, from: number, size: number): number {
  const latest = from + size;
  if (latest >= text.length) return text.length;
  const earliest = from + Math.ceil((size * 3) / 4);
  for (const separator of ['\n', ' ']) {
    const at = text.slice(earliest, latest).lastIndexOf(separator);
    if (at >= 0) return earliest + at + 1;
  }
  return Math.max(codePointAt(text, latest), codePointAt(text, from + 2));
}

/** The position itself, or the one before it where it lies between the halves of a surrogate pair. */
function codePointAt(text: string, at: number): number {
  const isLow = text.charCodeAt(at) >= 0xdc00 && text.charCodeAt(at) <= 0xdfff;
  const afterHigh = at > 0 && text.charCodeAt(at - 1) >= 0xd800 && text.charCodeAt(at - 1) <= 0xdbff;
  return isLow && afterHigh ? at - 1 : at;
}
