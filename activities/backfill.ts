import { Context } from '@temporalio/activity';
import { type Client, WorkflowFailedError, WorkflowNotFoundError } from '@temporalio/client';
import type { Backfill, BackfillState } from '../src/contract/backfills.js';
import type { BackfillIds } from '../src/contract/ids.js';
import type { CompactionOutcome } from '../src/contract/compactions.js';
import {
  finishBackfill as finishItems,
  reopenItems,
  retryItems,
  spentBy,
} from '../src/store/backfills/items.js';
import {
  type BackfillRow,
  checkSpendLimit,
  loadBackfill,
  loadBackfillRow,
  updateBackfill,
} from '../src/store/backfills/jobs.js';
import { withTransaction } from '../src/store/connection/transaction.js';
import { typed } from '../src/temporal/calls.js';
import { type End, endOfFailure, endOfOutcome } from '../src/temporal/failures.js';
import { type Dependencies, runStep } from './run.js';

/** The settings and the state of a job that one run of its workflow needs. */
export interface OpenedBackfill {
  mode: 'due' | 'all';
  state: BackfillState;
  reason: string | null;
  ended: boolean;
  concurrency: number;
  spendLimit: number | null;
  /** Money spent so far. */
  spent: number;
}

/** Opens a job and repairs the state of sessions that an earlier run left unfinished. */
export function openBackfill({ pool }: Dependencies) {
  return (ids: BackfillIds): Promise<OpenedBackfill> =>
    runStep('open backfill', async () => {
      const { endedAt } = await loadBackfillRow(pool, ids);
      if (endedAt === null) await reopenItems(pool, ids);
      return opened(await loadBackfillRow(pool, ids), await spentBy(pool, ids));
    });
}

function opened({ request, state, reason, endedAt, concurrency, spendLimit }: BackfillRow, spent: number) {
  return { mode: request.mode, state, reason, ended: endedAt !== null, concurrency, spendLimit, spent };
}

export interface SavedBackfill extends BackfillIds {
  state: BackfillState;
  reason: string | null;
  concurrency: number;
}

/** Stores a change to a running job made by an operator or by the job's spend limit. */
export function saveBackfill({ pool }: Dependencies) {
  return ({ state, reason, concurrency, ...ids }: SavedBackfill): Promise<void> =>
    runStep('save backfill', () =>
      withTransaction(pool, ids, ({ query }) => updateBackfill(query, ids, { state, reason, concurrency })),
    );
}

/** Queues failed and skipped sessions again. Throws `Input.Invalid` if the spend limit leaves nothing to spend. */
export function retryBackfill({ pool }: Dependencies) {
  return ({ spendLimit, ...ids }: BackfillIds & { spendLimit?: number }): Promise<OpenedBackfill> =>
    runStep('retry backfill', async () => {
      const spent = await spentBy(pool, ids);
      checkSpendLimit(spendLimit ?? (await loadBackfillRow(pool, ids)).spendLimit, spent);
      await retryItems(pool, ids, spendLimit);
      return opened(await loadBackfillRow(pool, ids), spent);
    });
}

/** Ends the job and returns its report. */
export function finishBackfill({ pool }: Dependencies) {
  return (ids: BackfillIds): Promise<Backfill> =>
    runStep('finish backfill', async () => {
      await finishItems(pool, ids);
      return loadBackfill(pool, ids);
    });
}

/** A compaction started by another parent: an earlier run of the job, or the session itself. */
export interface Followed {
  session: string;
  workflowId: string;
  /** Null means the current run. */
  runId: string | null;
  /** True if this job started it. */
  own: boolean;
}

/** Returns the compactions that have ended, with their outcomes. */
export function followCompactions(_: Dependencies) {
  return ({ followed }: { followed: Followed[] }): Promise<{ session: string; end: End }[]> =>
    runStep('follow compactions', async () => {
      const { client } = Context.current();
      const ends = await Promise.all(followed.map((one) => endOf(client, one)));
      return followed.flatMap(({ session }, index) => {
        const end = ends[index] ?? null;
        return end === null ? [] : [{ session, end }];
      });
    });
}

/** Returns null while the compaction runs. */
async function endOf(client: Client, { workflowId, runId, own }: Followed): Promise<End | null> {
  const handle = client.workflow.getHandle<() => Promise<CompactionOutcome | null>>(
    workflowId,
    runId ?? undefined,
  );
  try {
    const { status } = await handle.describe();
    if (status.name === 'RUNNING') return null;
    if (!own) return { kind: 'elsewhere' };
    return endOfOutcome(await handle.result());
  } catch (error) {
    // Its history has expired; the session's row holds the outcome.
    if (error instanceof WorkflowNotFoundError) return { kind: 'elsewhere' };
    if (error instanceof WorkflowFailedError) return endOfFailure(error);
    return typed(() => Promise.reject(error));
  }
}
