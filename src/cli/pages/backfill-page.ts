/** Prints the pages of a backfill, and its progress while it is watched. */
import type {
  Backfill,
  BackfillEstimate,
  BackfillItem,
  BackfillItemRequest,
} from '../../contract/backfills.js';
import { exitCodes } from '../command/exit-codes.js';
import type { Run } from '../command/run.js';
import { adviceFor } from '../terminal/failures.js';
import { ago, count, money, percent, plural, span } from '../terminal/numbers.js';
import type { Fact, Output } from '../terminal/output.js';
import type { Style } from '../terminal/style.js';
import { Progress } from '../terminal/progress.js';
import type { Column } from '../terminal/table.js';
import { showPages } from './pages.js';

/** Milliseconds between two polls of a job. */
const lookEveryMs = 1_000;

export const finishedOf = ({ counts }: Backfill): number =>
  counts.compacted + counts.unchanged + counts.failed + counts.skipped;

export async function showJob({ out, json }: Run, job: Backfill): Promise<void> {
  if (json) return out.value(job);
  await out.facts(factsOf(out, job));
}

export async function showJobs(out: Output, jobs: readonly Backfill[]): Promise<void> {
  if (jobs.length === 0) return out.note('No backfill.');
  const { style } = out;
  const columns: Column<Backfill>[] = [
    { head: 'job', value: ({ job }) => job, least: 12, shorten: 'middle' },
    { head: 'state', value: ({ state }) => state },
    { head: 'sessions', value: ({ counts }) => count(counts.selected), align: 'right' },
    { head: 'done', value: (job) => percent(finishedOf(job), job.counts.selected), align: 'right' },
    {
      head: 'failed',
      value: ({ counts }) => count(counts.failed),
      align: 'right',
      paint: (text, { counts }) => (counts.failed > 0 ? style.red(text) : text),
    },
    { head: 'per s', value: ({ perSecond }) => perSecond.toFixed(1), align: 'right', dispensable: 2 },
    { head: 'saved', value: (job) => count(savedBy(job)), align: 'right', dispensable: 1 },
    { head: 'cost', value: ({ cost }) => money(cost), align: 'right', dispensable: 3 },
    { head: 'started', value: ({ createdAt }) => `${ago(createdAt)} ago`, align: 'right' },
  ];
  await out.table(columns, jobs);
}

const savedBy = ({ tokensBefore, tokensAfter }: Backfill): number => Math.max(0, tokensBefore - tokensAfter);

function factsOf({ style }: Output, job: Backfill): (Fact | null)[] {
  const { counts, state, reason, modelCalls, cost, spendLimit, endedAt } = job;
  const failures = Object.entries(job.failures).sort((a, b) => b[1] - a[1]);
  const left = counts.pending + counts.running;
  const remaining =
    job.perSecond > 0 && left > 0 && state === 'running'
      ? `, ${span((left / job.perSecond) * 1_000)} left`
      : '';
  return [
    ['job', job.job],
    [
      'state',
      reason === null ? state : `${state}: ${reason}`,
      state === 'stopped' ? style.yellow : undefined,
    ],
    [
      'sessions',
      `${count(finishedOf(job))} of ${count(counts.selected)}${job.selecting ? ' so far' : ''} (${percent(finishedOf(job), counts.selected)}), ${job.perSecond.toFixed(1)}/s${remaining}`,
    ],
    ['', outcomesOf(job)],
    ...failures.map(([type, number]): Fact => {
      const advice = adviceFor(type);
      return [
        '',
        `${plural(number, 'session')} with ${type}${advice === undefined ? '' : ` → ${advice}`}`,
        style.red,
      ];
    }),
    [
      'tokens',
      `${count(job.tokensBefore)} → ${count(job.tokensAfter)}, ${percent(savedBy(job), job.tokensBefore)} less`,
    ],
    [
      'model',
      `${plural(modelCalls, 'call')}, ${count(job.modelInputTokens)} tokens in, ${count(job.modelOutputTokens)} out`,
    ],
    cost === null && spendLimit === null
      ? null
      : ['cost', `${money(cost)}${spendLimit === null ? '' : ` of at most ${money(spendLimit)}`}`],
    ['at once', count(job.concurrency)],
    ['started', `${job.createdAt}${endedAt === null ? '' : `, ended ${endedAt}`}`],
  ];
}

const outcomesOf = ({ counts }: Backfill): string =>
  (['compacted', 'unchanged', 'failed', 'skipped', 'running', 'pending'] as const)
    .filter((state) => counts[state] > 0)
    .map((state) => `${count(counts[state])} ${state}`)
    .join(' · ') || 'none yet';

/** Shows a progress bar until the job has ended, then its page. Returns exit code 1 if the job stopped or sessions failed. */
export async function watchJob(run: Run, job: string): Promise<number> {
  const client = await run.client();
  const progress = new Progress({ unit: 'sessions' });
  let before = '';
  try {
    for (;;) {
      const seen = await client.backfill({ job });
      if (seen.state !== 'running' && seen.state !== 'paused') {
        progress.stop();
        await showJob(run, seen);
        return seen.state === 'stopped' || seen.counts.failed > 0 ? exitCodes.failed : exitCodes.done;
      }
      if (seen.state !== before && before !== '') progress.say(`${job} is ${seen.state}`);
      before = seen.state;
      const failed = seen.counts.failed > 0 ? `${count(seen.counts.failed)} failed` : '';
      const state = seen.state === 'paused' ? 'paused' : seen.selecting ? 'selecting' : '';
      const cost = seen.cost === null ? '' : money(seen.cost);
      progress.update(
        finishedOf(seen),
        seen.counts.selected,
        [state, failed, cost].filter(Boolean).join(' · '),
      );
      await pause(run.signal);
    }
  } finally {
    progress.stop();
  }
}

function pause(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, lookEveryMs);
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}

export async function showEstimate(out: Output, estimate: BackfillEstimate): Promise<void> {
  const { selected, due, tokensBefore, tokensAfter, cost, currency } = estimate;
  await out.facts([
    ['sessions', `${count(due)} of ${count(selected)} that match would be compacted`],
    [
      'tokens',
      `${count(tokensBefore)} → ${count(tokensAfter)}, ${percent(tokensBefore - tokensAfter, tokensBefore)} less`,
    ],
    [
      'model',
      `${plural(estimate.modelCalls, 'call')}, ${count(estimate.modelInputTokens)} tokens in, at most ${count(estimate.modelOutputTokens)} out`,
    ],
    ['cost', cost === null ? 'unknown: a policy has no prices (`prices.input`)' : money(cost, currency)],
  ]);
}

export async function listItems(
  run: Run,
  { after, ...request }: Omit<BackfillItemRequest, 'limit'>,
  limit: number,
): Promise<void> {
  const client = await run.client();
  const shown = await showPages(run, columns(run.out.style), { after, limit }, async (from, most) => {
    const { items, next } = await client.backfillItems({ ...request, after: from, limit: most });
    return { rows: items, next };
  });
  if (shown === 0)
    run.out.note(request.state === undefined ? 'No session.' : `No session is ${request.state}.`);
}

function columns(style: Style): Column<BackfillItem>[] {
  const number = (value: number | null) => (value === null ? '–' : count(value));
  return [
    { head: 'session', value: ({ session }) => session, least: 26, shorten: 'middle' },
    {
      head: 'state',
      value: ({ state }) => state,
      paint: (text, { state }) => (state === 'failed' ? style.red(text) : text),
    },
    { head: 'tries', value: ({ attempts }) => String(attempts), align: 'right', dispensable: 3 },
    { head: 'gen', value: ({ generation }) => number(generation), align: 'right', dispensable: 2 },
    { head: 'before', value: ({ tokensBefore }) => number(tokensBefore), align: 'right' },
    { head: 'after', value: ({ tokensAfter }) => number(tokensAfter), align: 'right' },
    { head: 'cost', value: ({ cost }) => money(cost), align: 'right', dispensable: 4 },
    { head: 'took', value: tookOf, align: 'right', dispensable: 1 },
    {
      head: 'failure',
      value: ({ error }) => (error === null ? '' : `${error.type}: ${error.message}`),
      least: 12,
      shorten: 'end',
    },
  ];
}

const tookOf = ({ startedAt, endedAt }: BackfillItem): string =>
  startedAt === null || endedAt === null ? '–' : span(Date.parse(endedAt) - Date.parse(startedAt));
