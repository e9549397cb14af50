import type { Share } from './intervals.js';

/** A Markdown table; every column but the first is aligned right. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [line(head), line(head.map((_, index) => (index === 0 ? '---' : '---:'))), ...rows.map(line)].join(
    '\n',
  );
}

/** `92.4 % (88–96)`: the share with its 95 % interval. */
export function percent(share: Share | null): string {
  if (!share) return '–';
  const whole = (value: number) => (100 * value).toFixed(0);
  return `${(100 * share.share).toFixed(1)} % (${whole(share.low)}–${whole(share.high)})`;
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
