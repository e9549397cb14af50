import {
  ScheduleAlreadyRunning,
  ScheduleOverlapPolicy,
  type Client,
  type ScheduleDescription,
  type ScheduleUpdateOptions,
} from '@temporalio/client';
import type { SweepStart } from '../contract/workflows.js';
import { typed } from './calls.js';
import { defaultQueuePrefix, sweepId, taskQueues } from './names.js';

/** Settings of the schedule that starts the sweep. A deployment has one schedule, however many workers it has. */
export interface SweepSettings {
  queuePrefix?: string;
  /** @default 180,000 */
  sweepIntervalMs?: number;
}

const defaultIntervalMs = 180_000;

/** Maximum attempts of a worker while others change the schedule at the same moment. */
const attempts = 5;

/**
 * Creates the schedule or updates an existing one, even if many workers start at once. An operator's pause is kept. Throws
 * `Temporal.Unavailable`.
 */
export async function ensureSweep(client: Client, settings: SweepSettings): Promise<void> {
  const { queuePrefix = defaultQueuePrefix, sweepIntervalMs = defaultIntervalMs } = settings;
  const scheduleId = sweepId(queuePrefix);
  const wanted = scheduleOf(queuePrefix, sweepIntervalMs);
  for (let attempt = 1; ; attempt++) {
    try {
      return await typed(() => createOrUpdate(client, scheduleId, wanted));
    } catch (error) {
      if (attempt === attempts) throw error;
    }
  }
}

type Wanted = ReturnType<typeof scheduleOf>;

async function createOrUpdate(client: Client, scheduleId: string, wanted: Wanted): Promise<void> {
  try {
    await client.schedule.create({ scheduleId, ...wanted });
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error;
    const schedule = client.schedule.getHandle(scheduleId);
    if (isUpToDate(await schedule.describe(), wanted)) return;
    const update = ({ state }: ScheduleDescription): ScheduleUpdateOptions => ({ ...wanted, state });
    await schedule.update(update);
  }
}

function scheduleOf(queuePrefix: string, every: number) {
  const args: [SweepStart] = [{ v: 1 }];
  return {
    spec: { intervals: [{ every }] },
    action: {
      type: 'startWorkflow' as const,
      workflowType: 'sweep',
      workflowId: sweepId(queuePrefix),
      taskQueue: taskQueues(queuePrefix).workflow,
      args,
      // If no worker has the role `database`, a stuck run must not block the next one for ever.
      workflowRunTimeout: 10 * 60_000,
      staticSummary: 'signals waiting sessions that no workflow handles',
    },
    policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: 60_000, pauseOnFailure: false },
  };
}

function isUpToDate({ spec, action }: ScheduleDescription, wanted: Wanted): boolean {
  const [interval, ...more] = spec.intervals ?? [];
  return (
    more.length === 0 &&
    interval?.every === wanted.spec.intervals[0]?.every &&
    action.workflowType === wanted.action.workflowType &&
    action.taskQueue === wanted.action.taskQueue
  );
}
