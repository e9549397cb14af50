export type Unit =
  | '×'
  | 'ms'
  | 'turns/s'
  | 'sessions/s'
  | 'sessions'
  | 'events'
  | 'actions'
  | 'calls'
  | 'chunks'
  | 'messages'
  | 'tokens'
  | 'trips'
  | 'statements'
  | 'bytes'
  | 'fsyncs'
  | 'MB'
  | 'KB'
  | 'cores';

/** One line of the result: the median of its repetitions, with the least and the largest. */
export interface Figure {
  bench: string;
  what: string;
  unit: Unit;
  median: number;
  min: number;
  max: number;
  /** Repetitions. */
  runs: number;
  /** The median must not be above it. */
  bar?: number;
}

export interface BenchResult {
  figures: Figure[];
  /** The method and the limiting factor, one sentence per line. */
  notes: string[];
}

export function figure(
  bench: string,
  what: string,
  unit: Unit,
  values: readonly number[],
  bar?: number,
): Figure {
  const sizes = { median: median(values), min: Math.min(...values), max: Math.max(...values) };
  return { bench, what, unit, ...sizes, runs: values.length, ...(bar === undefined ? {} : { bar }) };
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** The value below which the share `q` of the values lies, interpolated between neighbours. */
export function quantile(values: readonly number[], q: number): number {
  if (values.length === 0) throw new Error('no values were measured');
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length - 1) * q;
  const below = sorted[Math.floor(at)] ?? NaN;
  const above = sorted[Math.ceil(at)] ?? NaN;
  return below + (above - below) * (at - Math.floor(at));
}

/** Milliseconds that `work` takes. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

export function shown(value: number): string {
  if (value >= 100) return Math.round(value).toLocaleString('en-US');
  return value.toFixed(value >= 10 ? 1 : 2);
}
