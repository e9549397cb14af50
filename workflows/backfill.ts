import { CancellationScope, condition, continueAsNew } from '@temporalio/workflow';
import type { Backfill } from '../src/contract/backfills.js';
import { BackfillRun, type BackfillInput } from './backfill-run.js';

/** The answer of the workflow; the same is in Postgres. */
type BackfillResult = Omit<Backfill, 'request'>;

/** Compacts many sessions of one tenant: page after page of them, at most `concurrency` at once. */
export function backfill(input: BackfillInput): Promise<BackfillResult> {
  const cancelled = CancellationScope.current().cancelRequested;
  // Cancelled in the Temporal UI it ends as by the update: in order, and with a report.
  return CancellationScope.nonCancellable(() => run(input, cancelled));
}

async function run(input: BackfillInput, cancelled: Promise<never>): Promise<BackfillResult> {
  const job = new BackfillRun(input);
  const { control } = job;
  cancelled.catch(() => control.cutShort('cancelled', 'cancelled in Temporal'));
  if (input.carried) job.resume(input.carried);
  else await job.open();
  while (true) {
    job.fill();
    await condition(() => job.isWoken);
    if (control.retries.length > 0) await job.retry();
    else if (control.unsaved) await job.save();
    else if (job.mustRecord) await job.record();
    else if (job.mustHandOver) {
      const carried = await job.handOver();
      if (carried) await continueAsNew<typeof backfill>({ ...input, v: 1, carried });
    } else if (job.wantsPage) await job.nextPage();
    else {
      const report = await job.result();
      if (report === null) continue;
      const { request: _request, ...result } = report;
      return result;
    }
  }
}
