import { ScheduleNotFoundError, type Client, type ScheduleDescription } from '@temporalio/client';
import type { Pool } from 'pg';
import { countOverdue } from '../../store/sessions/overdue.js';
import { sweepId } from '../../temporal/names.js';
import { ago, plural, span } from '../terminal/numbers.js';
import { fail, ok, warn, type Finding } from './doctor-finding.js';

const check = 'sweep';

/** Sweeps that may be missing before it counts as standing still: one may be under way, one skipped beside it. */
const missedSweeps = 3;

/** What waits longer has been passed over by several sweeps of the default interval. Milliseconds. */
const longestWaitMs = 15 * 60_000;

/** Whether the schedule is there, and whether what it starts comes to an end. */
export async function checkSweep(client: Client, queuePrefix: string): Promise<Finding> {
  const scheduleId = sweepId(queuePrefix);
  const start = 'Start a worker, which makes it: palimpsest worker --role workflow';
  try {
    const schedule = await client.schedule.getHandle(scheduleId).describe();
    return await findingOf(client, schedule);
  } catch (error) {
    if (!(error instanceof ScheduleNotFoundError)) throw error;
    return fail(
      check,
      `there is no schedule ${scheduleId}: sessions whose signal is lost wait for a turn`,
      start,
    );
  }
}

async function findingOf(
  client: Client,
  { scheduleId, spec, state, info }: ScheduleDescription,
): Promise<Finding> {
  const [interval] = spec.intervals ?? [];
  const every = interval?.every ?? 0;
  const name = `${scheduleId}, every ${span(every)}`;
  if (state.paused)
    return warn(
      check,
      `${name}: paused`,
      'Resume the schedule in the Temporal UI, or with `temporal schedule toggle`.',
    );
  const latest = info.recentActions.at(-1);
  const changed = info.lastUpdatedAt ?? info.createdAt;
  const since = latest && latest.takenAt > changed ? latest.takenAt : changed;
  if (Date.now() - since.getTime() > missedSweeps * every + 60_000)
    return warn(
      check,
      `${name}: none was started for ${ago(since.toISOString())}`,
      'Look at the schedule in the Temporal UI.',
    );
  if (latest === undefined) return ok(check, `${name}: none was due yet`);
  const { workflowId } = latest.action.workflow;
  const { status } = await client.workflow.getHandle(workflowId).describe();
  if (status.name === 'COMPLETED' || status.name === 'RUNNING')
    return ok(check, `${name}, the last ${ago(since.toISOString())} ago`);
  return warn(
    check,
    `${name}: the last one ended as ${status.name}`,
    `Look at ${workflowId} in the Temporal UI; it needs workers with the roles workflow and database.`,
  );
}

/** Sessions that several sweeps have not brought to a measurement. */
export async function checkOverdue(pool: Pool): Promise<Finding> {
  const { sessions, since } = await countOverdue(pool);
  if (since === null) return ok('overdue', 'no session waits without a workflow');
  const detail = `${plural(sessions, 'session')}, the longest for ${ago(since.toISOString())}`;
  if (Date.now() - since.getTime() < longestWaitMs)
    return ok('overdue', `${detail}: the next sweep signals them`);
  return warn(
    'overdue',
    detail,
    'Is the sweep running, and do workers serve the queues workflow and database?',
  );
}
