/** Text in lines, sentences and whole words, and text made shorter without tearing a code point. */
import type { ChatMessage } from '../../conversation/message.js';

/** Sentences and lines, white space made single, list marks removed. */
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

/** At most `length` characters, an ellipsis where something is missing, never half a code point. */
export function clip(text: string, length: number): string {
  if (text.length <= length) return text;
  return `${text.slice(0, Math.max(0, length - 1)).replace(/[\uD800-\uDBFF]$/, '')}…`;
}

/** At most `length` characters: the beginning and, for people ask at the end, two fifths from the end. */
export function clipMiddle(text: string, length: number): string {
  if (text.length <= length || length < 10) return clip(text, length);
  const tail = Math.floor((length - 3) * 0.4);
  const start = clip(text, length - 2 - tail);
  return `${start} ${text.slice(text.length - tail).replace(/^[\uDC00-\uDFFF]/, '')}`;
}

/** What a message says in words; media left out, characters that a database refuses too. */
export function plainTextOf({ content }: ChatMessage): string {
  const text =
    typeof content === 'string' ? content : (content ?? []).map((part) => part.text ?? '').join('\n');
  return text.replaceAll('\0', '');
}

/** Whether a text holds an atom word for word and whole: `item_1` is not held by `item_10`, nor `src/a.ts` by `src/a.tsx`. */
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
