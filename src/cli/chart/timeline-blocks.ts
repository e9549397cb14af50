/** Draws a timeline in block characters, as wide as the terminal. */
import type { Timeline } from '../../contract/compactions.js';
import { niceCeiling } from './chart.js';
import type { Output } from '../terminal/output.js';
import { count } from '../terminal/numbers.js';
import { padded } from '../terminal/table.js';

const height = 10;

/** Width of outputs without a known width, and the maximum: wider charts are harder to read. */
const widest = 160;
const eighths = ' ▁▂▃▄▅▆▇█';

interface Cell {
  /** First turn of this column. */
  from: number;
  through: number;
  /** The largest context of its turns. */
  size: number;
  generation: number | null;
}

/**
 * Draws a column for each turn or group of turns, as high as their largest context. The generation of a compaction is below the
 * column in which it was committed. The budget, and the size at which the session is measured next, are drawn as lines if they lie
 * within the scale.
 */
export function blocks(found: Timeline, { width, style }: Pick<Output, 'width' | 'style'>): string[] {
  const { turns, budget, measureAt } = found;
  if (turns.length === 0) return [];
  const largest = Math.max(...turns.map(({ contextTokens }) => contextTokens));
  const top = niceCeiling(Math.max(largest, Math.min(budget, largest * 1.5)));
  const scale = count(top).length;
  const room = Math.max(10, Math.min(widest, width === Infinity ? 80 : width) - scale - 2);
  const cells = cellsOf(found, room);
  const rules = new Map<number, { size: number; name: string }>();
  for (const [size, name] of [
    [measureAt, 'measured'],
    [budget, 'budget'],
  ] as const)
    if (size !== null && size <= top) rules.set(rowOf(size, top), { size, name });
  const lines: string[] = [];
  for (let row = height - 1; row >= 0; row--) {
    const rule = rules.get(row);
    const label = rule ? count(rule.size) : row === height - 1 ? count(top) : row === 0 ? '0' : '';
    const drawn = cells.map((cell) => blockOf(cell, row, top, rule !== undefined, style)).join('');
    const line = rule === undefined ? drawn : withRule(drawn, cells.length, room, rule.name, style);
    lines.push(`${style.dim(padded(label, scale, 'right'))} ${line}`.trimEnd());
  }
  lines.push(`${' '.repeat(scale)} ${style.dim(axisOf(cells, room))}`.trimEnd());
  const marks = marksOf(cells);
  if (marks.trim() !== '') lines.push(`${padded('gen', scale, 'right')} ${style.cyan(marks)}`.trimEnd());
  return lines;
}

const rowOf = (size: number, top: number): number => Math.min(height - 1, Math.floor((size / top) * height));

function cellsOf({ turns, compactions }: Timeline, room: number): Cell[] {
  const perCell = Math.max(1, Math.ceil(turns.length / room));
  const wide = perCell === 1 ? Math.max(1, Math.min(4, Math.floor(room / turns.length))) : 1;
  const cells: Cell[] = [];
  for (let from = 0; from < turns.length; from += perCell) {
    const here = turns.slice(from, from + perCell);
    const through = from + here.length;
    const size = Math.max(...here.map(({ contextTokens }) => contextTokens));
    const committed = compactions.filter(
      ({ turn }) => Math.max(1, turn) > from && Math.max(1, turn) <= through,
    );
    const cell = { from: from + 1, through, size, generation: null };
    const generation = committed.at(-1)?.generation ?? null;
    cells.push({ ...cell, generation }, ...Array.from({ length: wide - 1 }, () => cell));
  }
  return cells;
}

function blockOf(
  { size, generation }: Cell,
  row: number,
  top: number,
  ruled: boolean,
  style: Output['style'],
): string {
  const eighth = Math.round((size / top) * height * 8) - row * 8;
  const block = eighths[Math.max(0, Math.min(8, eighth))] ?? ' ';
  if (block === ' ') return ruled ? style.dim('╌') : ' ';
  return generation === null ? block : style.cyan(block);
}

/** The rule's name is at its right end if there is room after the blocks; its size is at the axis. */
function withRule(drawn: string, cells: number, room: number, name: string, style: Output['style']): string {
  const free = room - cells;
  if (free >= name.length + 1) return `${drawn}${style.dim(`${'╌'.repeat(free - name.length - 1)} ${name}`)}`;
  return drawn;
}

/** `1      50      100`: the first turn of a column. */
function axisOf(cells: readonly Cell[], room: number): string {
  let axis = '';
  const step = Math.max(8, Math.floor(room / 6));
  for (let at = 0; at < cells.length; at += step) {
    const label = `└${count(cells[at]?.from ?? 1)}`;
    if (at + label.length > room) break;
    axis = axis.padEnd(at) + label;
  }
  return axis;
}

/** Writes generations below the columns in which they were committed, as far as there is room. */
function marksOf(cells: readonly Cell[]): string {
  let marks = '';
  cells.forEach(({ generation }, at) => {
    if (generation === null) return;
    const label = String(generation);
    if (at > 0 && marks.length >= at) return;
    if (at + label.length <= cells.length) marks = marks.padEnd(at) + label;
    else if (marks.length < at) marks = marks.padEnd(at) + '▴';
  });
  return marks;
}
