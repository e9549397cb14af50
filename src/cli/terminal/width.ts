/** How much room text takes in a terminal, and how to make it take less. */

const wide =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u3000-\u303F\uFF01-\uFF60\uFFE0-\uFFE6]|\p{Emoji_Presentation}/u;
const noWidth = /[\p{Mn}\p{Me}\p{Cf}]/u;
// Control characters and direction marks of an id or a message: what is stored does not steer the reader's terminal.
const unprintable = /[^\P{Cc}\n]|\p{Bidi_Control}/gu;

/** Columns of a stream that is a terminal; null where it is none, or does not know. */
export const columnsOfTerminal = ({
  isTTY,
  columns,
}: {
  isTTY?: boolean;
  columns?: number;
}): number | null => (isTTY === true && columns !== undefined && columns > 0 ? columns : null);

export const printable = (text: string): string => text.replace(unprintable, '\uFFFD');

/** Columns of a terminal; wide characters take two, combining ones none. */
export function widthOf(text: string): number {
  if (/^[\x20-\x7E]*$/.test(text)) return text.length;
  let width = 0;
  for (const character of text) width += columnsOf(character);
  return width;
}

function columnsOf(character: string): number {
  if (noWidth.test(character)) return 0;
  return wide.test(character) ? 2 : 1;
}

/** `0198f3aa…d9c4`: ids differ at both ends. */
export function shortenMiddle(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  if (width <= 1) return '…'.slice(0, Math.max(0, width));
  const characters = Array.from(text);
  const head = taken(characters, Math.ceil((width - 1) / 2));
  const tail = taken(characters.toReversed(), width - 1 - widthOf(head.join('')));
  return `${head.join('')}…${tail.reverse().join('')}`;
}

export function shortenEnd(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  return `${taken(Array.from(text), width - 1).join('')}…`;
}

/** A stretch of the text that begins shortly before `at`, a code unit. */
export function shortenAround(text: string, width: number, at: number): string {
  if (widthOf(text) <= width || at <= width / 2) return shortenEnd(text, width);
  const before = Array.from(text.slice(0, at));
  const lead = taken(before.toReversed(), Math.floor(width / 4))
    .reverse()
    .join('');
  return shortenEnd(`…${lead}${text.slice(at)}`, width);
}

function taken(characters: readonly string[], width: number): string[] {
  let room = width;
  const end = characters.findIndex((character) => (room -= columnsOf(character)) < 0);
  return characters.slice(0, end === -1 ? characters.length : end);
}

/** Filled up with blanks to the width, which the text does not exceed. */
export function padded(text: string, width: number, align: 'left' | 'right' = 'left'): string {
  const blanks = ' '.repeat(Math.max(0, width - widthOf(text)));
  return align === 'right' ? blanks + text : text + blanks;
}

/** Broken at blanks into lines of at most `width`, and at least one character; a longer word is cut. */
export function wrapped(text: string, width: number): string[] {
  if (width === Infinity) return text.split('\n');
  return text.split('\n').flatMap((line) => {
    const lines: string[] = [];
    let present = '';
    for (const word of line.split(' ')) {
      let rest = word;
      const joined = present === '' ? rest : `${present} ${rest}`;
      if (widthOf(joined) <= width) {
        present = joined;
        continue;
      }
      if (present !== '') lines.push(present);
      while (widthOf(rest) > width) {
        const characters = Array.from(rest);
        const head = taken(characters, width).join('') || (characters[0] ?? '');
        if (head === rest) break;
        lines.push(head);
        rest = rest.slice(head.length);
      }
      present = rest;
    }
    return [...lines, present];
  });
}
