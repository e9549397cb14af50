/** Tables without rules between the cells, easy to pipe and read: one line of text per row, never wider than the terminal. */
import stringWidth from 'string-width';

export interface Column<Row> {
  head: string;
  value: (row: Row) => string;
  /** Numbers are aligned right. @default 'left' */
  align?: 'left' | 'right';
  /**
   * Minimum width in terminal columns. Absent: the column is narrowed only on a terminal that is too narrow for every other
   * way.
   */
  least?: number;
  /** Place where a text is shortened: ids in the middle, texts at the end. @default 'middle' */
  shorten?: 'middle' | 'end' | ((text: string, width: number) => string);
  /** Order in which columns are dropped if the width is too small, highest first. Absent: never dropped. */
  dispensable?: number;
  /** Colours a cell. */
  paint?: (text: string, row: Row) => string;
}

/** Columns and widths chosen for the first rows; further rows are shortened to them. */
export interface Layout<Row> {
  head: string;
  line: (row: Row) => string;
}

const gap = '  ';

export function layout<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width: number,
): Layout<Row> {
  const chosen = fitting(columns, rows, width);
  const join = (cells: readonly string[]): string => cells.join(gap).trimEnd();
  const alone = chosen.length === 1;
  return {
    head: join(chosen.map(({ column, size }) => padded(shortenEnd(column.head, size), size, column.align))),
    line: (row) =>
      join(
        chosen.map(({ column, size }, index) => {
          const text = cut(column, cellOf(column, row), size);
          const last = index === chosen.length - 1 && column.align !== 'right';
          const cell = last && !alone ? text : padded(text, size, column.align);
          return column.paint ? column.paint(cell, row) : cell;
        }),
      ),
  };
}

const cellOf = <Row>({ value }: Column<Row>, row: Row): string => printable(value(row)).replaceAll('\n', ' ');

function cut<Row>({ shorten }: Column<Row>, text: string, size: number): string {
  if (typeof shorten === 'function') return shorten(text, size);
  return shorten === 'end' ? shortenEnd(text, size) : shortenMiddle(text, size);
}

interface Sized<Row> {
  column: Column<Row>;
  size: number;
}

function fitting<Row>(columns: readonly Column<Row>[], rows: readonly Row[], width: number): Sized<Row>[] {
  let natural: Sized<Row>[] = columns.map((column) => ({
    column,
    size: Math.max(widthOf(column.head), ...rows.map((row) => widthOf(cellOf(column, row)))),
  }));
  for (;;) {
    const sized = shrunk(natural, width);
    if (total(sized) <= width) return sized;
    const leaving = Math.max(...natural.map(({ column }) => column.dispensable ?? 0));
    if (leaving === 0) return forced(sized, width);
    natural = natural.filter(({ column }) => column.dispensable !== leaving);
  }
}

const total = <Row>(sized: readonly Sized<Row>[]): number =>
  sized.reduce((sum, { size }) => sum + size, gap.length * (sized.length - 1));

/** Returns the columns with the widest narrowed first, each at most to its `least`. */
function shrunk<Row>(natural: readonly Sized<Row>[], width: number): Sized<Row>[] {
  const sized = natural.map((one) => ({ ...one }));
  for (let over = total(sized) - width; over > 0; over--) {
    const widest = sized
      .filter(({ column, size }) => column.least !== undefined && size > column.least)
      .sort((a, b) => b.size - a.size)[0];
    if (widest === undefined) break;
    widest.size -= 1;
  }
  return sized;
}

/** On a very narrow terminal, every column is cut. */
function forced<Row>(sized: Sized<Row>[], width: number): Sized<Row>[] {
  while (total(sized) > width) {
    const widest = [...sized].sort((a, b) => b.size - a.size)[0];
    if (widest === undefined || widest.size <= 1) break;
    widest.size -= 1;
  }
  return sized;
}

// Control characters and direction marks of an id or a message: stored text must not control the reader's terminal.
const unprintable = /[^\P{Cc}\n]|\p{Bidi_Control}/gu;

export const printable = (text: string): string => text.replace(unprintable, '\uFFFD');

/** Returns the terminal columns of a text; wide characters and emoji take two, combining characters none. */
export const widthOf = (text: string): number => stringWidth(text);

const segmenter = new Intl.Segmenter();

/** Returns the part of the text that fits. A character that consists of several code points is not cut. */
function taken(text: string, width: number, from: 'start' | 'end' = 'start'): string {
  const segments = segmenter.segment(text);
  let room = width;
  for (const { segment, index } of from === 'start' ? segments : Array.from(segments).reverse()) {
    room -= widthOf(segment);
    if (room < 0) return from === 'start' ? text.slice(0, index) : text.slice(index + segment.length);
  }
  return text;
}

/** `0198f3aa…d9c4`: ids differ at both ends. */
export function shortenMiddle(text: string, width: number): string {
  if (widthOf(text) <= width) return text;
  if (width <= 1) return '…'.slice(0, Math.max(0, width));
  const head = taken(text, Math.ceil((width - 1) / 2));
  return `${head}…${taken(text, width - 1 - widthOf(head), 'end')}`;
}

export const shortenEnd = (text: string, width: number): string =>
  widthOf(text) <= width ? text : `${taken(text, width - 1)}…`;

/** Returns a part of the text that starts shortly before `at`, an index in code units. */
export function shortenAround(text: string, width: number, at: number): string {
  if (widthOf(text) <= width || at <= width / 2) return shortenEnd(text, width);
  return shortenEnd(`…${taken(text.slice(0, at), Math.floor(width / 4), 'end')}${text.slice(at)}`, width);
}

/** Fills a text with blanks up to the width, which it must not exceed. */
export function padded(text: string, width: number, align: 'left' | 'right' = 'left'): string {
  const blanks = ' '.repeat(Math.max(0, width - widthOf(text)));
  return align === 'right' ? blanks + text : text + blanks;
}

/**
 * Wraps at blanks into lines of at most `width` columns; a longer word is cut. Each line has at least one character, even if
 * that character is wider.
 */
export function wrapped(text: string, width: number): string[] {
  const lines = text.split('\n');
  return width === Infinity ? lines : lines.flatMap((line) => wrappedLine(line, width));
}

function wrappedLine(line: string, width: number): string[] {
  const lines: string[] = [];
  for (let rest = line; ;) {
    // Looking at all of the rest for each line would take quadratic time.
    const most =
      taken(rest.slice(0, 20 * (width + 1)), width) || (segmenter.segment(rest).containing(0)?.segment ?? '');
    if (most.length === rest.length) return [...lines, rest];
    const blank = rest.lastIndexOf(' ', most.length);
    const end = blank > 0 && rest.slice(0, blank).trim() !== '' ? blank : most.length;
    lines.push(rest.slice(0, end).trimEnd());
    rest = rest.slice(end).trimStart();
  }
}
