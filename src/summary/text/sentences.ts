/** Splits text into lines, sentences and words, and shortens it without splitting a code point. */
import type { ChatMessage } from '../../conversation/message.js';

/** Sentences and lines with single spaces and without list marks. */
export function* sentencesOf(text: string): Generator<string> {
  for (const line of linesOf(text)) {
    const plain = line.slice(0, 20_000).replace(/\s+/g, ' ').trim();
    let from = 0;
    for (const end of plain.matchAll(/[.!?](?=\s|$)|[。！？]/g)) {
      const to = end.index + 1;
      if (to - from < 12 && to < plain.length) continue;
      yield withoutMark(plain.slice(from, to));
      from = to;
    }
    if (from < plain.length) yield withoutMark(plain.slice(from));
  }
}

function withoutMark(text: string): string {
  return text.trim().replace(/^(?:[-*•>]|\d{1,2}[.)]|#{1,6})\s+/, '');
}

/** Lines without their ends. */
export function* linesOf(text: string): Generator<string> {
  for (let from = 0; from < text.length;) {
    const end = text.indexOf('\n', from);
    const to = end < 0 ? text.length : end;
    yield text.slice(from, to);
    from = to + 1;
  }
}

/** At most `length` characters, with an ellipsis if text is missing; code points stay whole. */
export function clip(text: string, length: number): string {
  if (text.length <= length) return text;
  return `${text.slice(0, Math.max(0, length - 1)).replace(/[\uD800-\uDBFF]$/, '')}…`;
}

/** At most `length` characters: three fifths from the beginning and two fifths from the end, where people put their question. */
export function clipMiddle(text: string, length: number): string {
  if (text.length <= length || length < 10) return clip(text, length);
  const tail = Math.floor((length - 3) * 0.4);
  const start = clip(text, length - 2 - tail);
  return `${start} ${text.slice(text.length - tail).replace(/^[\uDC00-\uDFFF]/, '')}`;
}

/** The text of a message, without media and without characters that a database refuses. */
export function plainTextOf({ content }: ChatMessage): string {
  const text =
    typeof content === 'string' ? content : (content ?? []).map((part) => part.text ?? '').join('\n');
  return text.replaceAll('\0', '');
}

/** Whether a text contains a whole atom: `item_10` does not contain `item_1`, nor `src/a.tsx` `src/a.ts`. */
export function containsAtom(text: string, atom: string): boolean {
  if (atom === '') return true;
  for (let at = text.indexOf(atom); at >= 0; at = text.indexOf(atom, at + 1)) {
    const before = isWordChar(text.charCodeAt(at - 1)) && isWordChar(atom.charCodeAt(0));
    const end = at + atom.length;
    const after = isWordChar(text.charCodeAt(end)) && isWordChar(atom.charCodeAt(atom.length - 1));
    if (!before && !after) return true;
  }
  return false;
}

function isWordChar(code: number): boolean {
  return (
    (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122) || code === 95
  );
}

/** Normalizes white space and letter case for comparisons. */
export function spaced(text: string): string {
  return text.replace(/\s+/g, ' ').trim().toLowerCase();
}
