/** `palimpsest timeline` shows the context's size over the turns, in the terminal or as a chart. */
import { writeFileSync } from 'node:fs';
import { invalid } from '../../errors.js';
import type { Timeline, TimelineCompaction } from '../../contract/compactions.js';
import { type ChartPoint, chartSvg } from '../chart/chart.js';
import { checkOutFile } from '../command/flags.js';
import { ago, count, percent, plural } from '../terminal/numbers.js';
import type { Output } from '../terminal/output.js';
import type { Run } from '../command/run.js';
import type { Column } from '../terminal/table.js';
import { blocks } from '../chart/timeline-blocks.js';

/** Number of newest compactions in the table; the chart has all of them. */
const mostRows = 12;

export async function showTimeline(run: Run, session: string, svg: string | undefined): Promise<void> {
  if (svg !== undefined) checkOutFile(svg, '--svg');
  const { out } = run;
  const found = await (await run.client()).timeline({ session });
  if (svg !== undefined) writeChart(svg, found);
  if (run.json) return out.value(found);
  await show(out, found);
  if (svg !== undefined) out.note(`chart written to ${svg}`);
}

async function show(out: Output, found: Timeline): Promise<void> {
  const { session, tokens, budget, measureAt, turns, compactions } = found;
  const log = turns.at(-1)?.logTokens ?? 0;
  const next = measureAt === null ? 'no compaction will be triggered' : `measured at ${count(measureAt)}`;
  await out.paragraph(
    `${session}: ${plural(turns.length, 'turn')}, ${count(log)} tokens, ${plural(compactions.length, 'compaction')}; ` +
      `context ${count(tokens)} of ${count(budget)} (${percent(tokens, budget)}), ${next}`,
  );
  const beyond = beyondBudget(found);
  if (beyond !== null) await out.paragraph(beyond);
  await out.line();
  for (const line of blocks(found, out)) await out.line(line);
  if (compactions.length === 0) return;
  await out.line();
  await out.table(columns, compactions.slice(-mostRows));
  if (compactions.length > mostRows)
    out.note(`the last ${mostRows} of ${compactions.length}; --json has them all`);
}

/**
 * Returns a note on sizes above the budget, or null. The timeline has the sizes of the stored context; a read shortens a
 * context above the budget.
 */
function beyondBudget({ turns, budget }: Timeline): string | null {
  const above = turns.filter(({ contextTokens }) => contextTokens > budget);
  if (above.length === 0) return null;
  const first = above[0]!.turn;
  return (
    `turns that left the context above the budget: ${count(above.length)} (first: turn ${count(first)}); ` +
    'a read at such a time returned a context shortened to the budget'
  );
}

const columns: Column<TimelineCompaction>[] = [
  { head: 'gen', value: ({ generation }) => String(generation), align: 'right' },
  { head: 'turn', value: ({ turn }) => count(turn), align: 'right' },
  { head: 'when', value: ({ at }) => `${ago(at)} ago`, align: 'right', dispensable: 2 },
  { head: 'reason', value: ({ reason }) => reason, least: 6 },
  { head: 'method', value: methodOf, least: 6 },
  { head: 'before', value: ({ tokensBefore }) => count(tokensBefore), align: 'right' },
  { head: 'after', value: ({ tokensAfter }) => count(tokensAfter), align: 'right' },
  {
    head: 'saved',
    value: ({ tokensBefore, tokensAfter }) => percent(tokensBefore - tokensAfter, tokensBefore),
    align: 'right',
  },
  { head: 'evicted', value: ({ evicted }) => count(evicted), align: 'right', dispensable: 1 },
  { head: 'part', value: ({ part }) => (part === null ? '–' : String(part)), align: 'right' },
];

/** Returns `model, 1 by rule` if the fallback wrote one of the texts. */
function methodOf({ method, chunksByRule }: TimelineCompaction): string {
  return chunksByRule > 0 && method === 'model' ? `${method}, ${chunksByRule} by rule` : method;
}

function writeChart(file: string, found: Timeline): void {
  const { session, budget, measureAt, turns, compactions, tokens } = found;
  const beyond = beyondBudget(found);
  const svg = chartSvg({
    title: `Context of ${session}`,
    subtitle: `${plural(turns.length, 'turn')}, ${count(turns.at(-1)?.logTokens ?? 0)} tokens; a dot is a compaction`,
    ...(beyond === null ? {} : { remark: beyond }),
    xLabel: 'turn',
    yLabel: 'context, tokens',
    series: [
      {
        name: 'without compaction',
        note: `${count(turns.at(-1)?.logTokens ?? 0)} tokens`,
        points: turns.map(({ turn, logTokens }) => ({ turn, size: logTokens })),
        marks: [],
        rule: null,
        reference: true,
      },
      {
        name: 'context',
        note: `${plural(compactions.length, 'compaction')}, now ${count(tokens)}`,
        points: pointsOf(found),
        marks: compactions.map(({ turn, tokensBefore }) => ({ turn: Math.max(1, turn), size: tokensBefore })),
        rule: measureAt,
        reference: false,
      },
    ],
    rules: [{ size: budget, label: `budget ${count(budget)}` }],
  });
  try {
    writeFileSync(file, svg);
  } catch (error) {
    throw invalid(
      `The chart could not be written: ${error instanceof Error ? error.message : String(error)}`,
      '--svg',
    );
  }
}

/** Returns the context after each turn, then the context after the compactions that follow it. */
function pointsOf({ turns, compactions }: Timeline): ChartPoint[] {
  const after = new Map<number, TimelineCompaction[]>();
  for (const one of compactions) {
    const turn = Math.max(1, one.turn);
    after.set(turn, [...(after.get(turn) ?? []), one]);
  }
  return turns.flatMap(({ turn, contextTokens }) => [
    { turn, size: contextTokens },
    ...(after.get(turn) ?? []).flatMap(({ tokensBefore, tokensAfter }) => [
      { turn, size: tokensBefore },
      { turn, size: tokensAfter },
    ]),
  ]);
}
