/** The sizes of a session's requests under several policies, as a chart. */
import { chartSvg } from '../chart/chart.js';
import type { ChartPoint, ChartSeries } from '../chart/series.js';
import { baseline } from './policies.js';
import type { PlanRow } from './report.js';
import type { Rehearsal } from '../../rehearsal/rehearse.js';
import { count, plural } from '../terminal/numbers.js';

/** SVG: a line a policy, its compactions marked where they begin, windows and triggers ruled. */
export function planChart(session: string, messages: number, rows: readonly PlanRow[]): string {
  const first = rows[0]?.rehearsal;
  const overhead = first?.limits.overhead ?? 0;
  return chartSvg({
    title: `Context of ${session}`,
    subtitle:
      `${plural(messages, 'message')}, ${plural(first?.turns.length ?? 0, 'turn')}, ${count(first?.rawTokens ?? 0)} tokens; ` +
      'a dot is a compaction, a dotted rule the size that triggers it',
    xLabel: 'turn',
    yLabel: overhead > 0 ? 'overhead + context, tokens' : 'context, tokens',
    series: rows.map(seriesOf),
    rules: windowRules(rows, Math.max(...rows.map(({ rehearsal }) => rehearsal.largest))),
  });
}

function seriesOf({ name, rehearsal }: PlanRow): ChartSeries {
  const { compactions, threshold, largest } = rehearsal;
  return {
    name,
    note: `${plural(compactions.length, 'compaction')}, largest ${count(largest)}`,
    points: pointsOf(rehearsal),
    marks: marksOf(rehearsal),
    rule: threshold,
    reference: name === baseline,
  };
}

/** The request of each turn, and what the compactions after it make of the context. */
function pointsOf({ turns, compactions, limits }: Rehearsal): ChartPoint[] {
  // What is above that is shortened when the context is read.
  const largest = limits.budget + limits.overhead;
  const after = new Map<number, ChartPoint[]>();
  for (const { turn, tokensAfter } of compactions) {
    after.set(turn, [...(after.get(turn) ?? []), { turn, size: Math.min(tokensAfter, largest) }]);
  }
  return turns.flatMap(({ turn, tokens }) => [{ turn, size: tokens }, ...(after.get(turn) ?? [])]);
}

/** Where the line falls: at the request behind which a compaction runs. */
function marksOf({ turns, compactions }: Rehearsal): ChartPoint[] {
  return compactions.map(({ turn, tokensBefore }) => ({
    turn,
    size: turns[turn - 1]?.tokens ?? tokensBefore,
  }));
}

/** Each window once; one far above every request would flatten the lines, and is left to the table. */
function windowRules(rows: readonly PlanRow[], largest: number): { size: number; label: string }[] {
  const compacting = rows.filter(({ name }) => name !== baseline || rows.length === 1);
  const windows = new Map<number, string[]>();
  for (const { name, rehearsal } of compacting) {
    const { window } = rehearsal.limits;
    windows.set(window, [...(windows.get(window) ?? []), name]);
  }
  const near = [...windows].filter(([size]) => size <= 2 * largest);
  return near.map(([size, names]) => ({
    size,
    label: windows.size === 1 ? `window ${count(size)}` : `window ${count(size)} (${names.join(', ')})`,
  }));
}
