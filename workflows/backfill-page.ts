import { count } from '../src/numbers.js';
import type { Backfill } from '../src/contract/backfills.js';

/** The operator's page of a backfill: Markdown, a table that fits the first screen. */
export function backfillPage(report: Backfill, perSecond: number | null): string {
  const { state, reason, counts, selecting, concurrency, spendLimit } = report;
  const done = doneOf(report);
  const why = reason === null ? '' : ` (${reason})`;
  const rows: [string, string][] = [
    ['selected', `${count(counts.selected)}${selecting ? ', and more to come' : ''}`],
    ['done', `${count(done)} (${share(done, counts.selected)})`],
    ['compacted', count(counts.compacted)],
    ['unchanged', count(counts.unchanged)],
    ['failed', `${count(counts.failed)}${byType(report.failures)}`],
    ['running', `${count(counts.running)} of ${concurrency} at once`],
    ['waiting', count(counts.pending)],
    ['skipped', count(counts.skipped)],
    ['tokens', `${count(report.tokensBefore)} → ${count(report.tokensAfter)}`],
    [
      'model',
      `${count(report.modelCalls)} calls, tokens ${count(report.modelInputTokens)} in, ${count(report.modelOutputTokens)} out`,
    ],
    ['cost', costOf(report.cost, spendLimit)],
    ['sessions/s', (perSecond ?? report.perSecond).toFixed(1)],
    ['remaining', remaining(report, perSecond)],
  ];
  return [
    `Backfill \`${report.job}\`: **${state}**${why}`,
    '',
    '| | |',
    '|---|---|',
    ...rows.map(([name, value]) => `| ${name} | ${value} |`),
  ].join('\n');
}

/** Sessions that the job is done with. */
export function doneOf({ counts }: Backfill): number {
  return counts.compacted + counts.unchanged + counts.failed;
}

function share(part: number, whole: number): string {
  return whole === 0 ? '–' : `${Math.floor((100 * part) / whole)} %`;
}

function byType(failures: Record<string, number>): string {
  const types = Object.entries(failures).map(([type, sessions]) => `${count(sessions)} × \`${type}\``);
  return types.length === 0 ? '' : `: ${types.join(', ')}`;
}

function costOf(cost: number | null, limit: number | null): string {
  const spent = cost === null ? 'no prices' : cost.toFixed(4);
  return limit === null ? spent : `${spent} of ${limit}`;
}

/** As long as sessions are still being selected, nobody knows how many there are. */
function remaining({ state, counts, selecting, endedAt }: Backfill, perSecond: number | null): string {
  if (endedAt !== null) return '–';
  if (state !== 'running') return `${count(counts.running)} compactions in flight`;
  if (perSecond === null || perSecond <= 0) return 'not known yet';
  const seconds = Math.ceil((counts.pending + counts.running) / perSecond);
  const time =
    seconds < 120
      ? `${seconds} s`
      : seconds < 7_200
        ? `${Math.ceil(seconds / 60)} min`
        : `${Math.ceil(seconds / 3_600)} h`;
  return selecting ? `${time} for those selected so far` : time;
}
