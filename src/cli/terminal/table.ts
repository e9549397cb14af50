/** Tables without lines, as operators pipe and read them: one row a line, never wider than the terminal. */
import { padded, printable, shortenEnd, shortenMiddle, widthOf } from './width.js';

export interface Column<Row> {
  head: string;
  value: (row: Row) => string;
  /** Numbers stand right. @default 'left' */
  align?: 'left' | 'right';
  /** May be shortened to this many columns: ids in the middle, texts at their end. */
  least?: number;
  shorten?: 'middle' | 'end' | ((text: string, width: number) => string);
  /** Leaves the table where there is no room for it; the highest first. Absent: stays. */
  dispensable?: number;
  /** Colour of a cell. */
  paint?: (text: string, row: Row) => string;
}

/** Columns and widths chosen for some rows; further rows are shortened to them. */
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

/** The widest of those that may be shorter gives way first. */
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

/** A terminal of a few columns: everything is cut. */
function forced<Row>(sized: Sized<Row>[], width: number): Sized<Row>[] {
  while (total(sized) > width) {
    const widest = [...sized].sort((a, b) => b.size - a.size)[0];
    if (widest === undefined || widest.size <= 1) break;
    widest.size -= 1;
  }
  return sized;
}
