import { setCurrentDetails, upsertSearchAttributes } from '@temporalio/workflow';
import type { Backfill, BackfillState } from '../src/contract/backfills.js';
import { count } from '../src/numbers.js';
import { searchAttributes } from '../src/temporal/names.js';
import type { Control } from './backfill-control.js';

/** The operator's page of a backfill: Markdown with a table that fits the first screen. */
function backfillPage(report: Backfill, perSecond: number | null): string {
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

/** Counts the sessions that the job has finished. */
function doneOf({ counts }: Backfill): number {
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

/** While sessions are still being selected, their total number is unknown. */
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

/** Minimum time between two reports, because each reads the sums over all sessions of the job. */
export const reportEveryMs = 5_000;

/** The operator's view of a backfill: a search attribute for its state, and a page with its latest report. */
export class Report {
  private perSecond: number | null = null;
  private shown: BackfillState | null = null;

  constructor(
    private readonly control: Control,
    public latest: Backfill | null,
    /** Unix milliseconds of `latest`. */
    public reportedAt: number,
  ) {}

  get isOld(): boolean {
    return Date.now() - this.reportedAt >= reportEveryMs;
  }

  get state(): BackfillState {
    return this.control.ended ? (this.latest?.state ?? 'completed') : this.control.state;
  }

  take(fresh: Backfill): void {
    const { latest, reportedAt } = this;
    const seconds = (Date.now() - reportedAt) / 1_000;
    if (latest && reportedAt > 0) this.perSecond = Math.max(0, doneOf(fresh) - doneOf(latest)) / seconds;
    this.reportedAt = Date.now();
    this.latest = fresh;
  }

  show(spendLimit: number | null): void {
    const { control, latest, state } = this;
    if (state !== this.shown) upsertSearchAttributes([{ key: searchAttributes.phase, value: state }]);
    this.shown = state;
    if (!latest) return;
    const { concurrency, cut, ended } = control;
    const now = ended ? latest : { ...latest, state, concurrency, spendLimit, reason: cut?.reason ?? null };
    setCurrentDetails(backfillPage(now, ended ? null : this.perSecond));
  }
}
