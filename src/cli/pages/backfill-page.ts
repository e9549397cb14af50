import type { Backfill, BackfillEstimate } from '../../contract/backfills.js';
import { adviceFor } from '../terminal/failures.js';
import { ago, count, money, percent, plural, span } from '../terminal/numbers.js';
import type { Fact, Output } from '../terminal/output.js';
import { Progress } from '../terminal/progress.js';
import { exitCodes, type Run } from '../command/run.js';
import type { Column } from '../terminal/table.js';

/** Milliseconds between two looks at a job. */
const lookEveryMs = 1_000;

/** What a backfill says of itself, and its progress while somebody looks on. */
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

/** A progress bar until the job has ended, then its page. Exit code 1 where it stopped or sessions failed. */
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
