/** The second half of an erasure: deletes the executions in Temporal of a session that PostgreSQL no longer has. */
import type { Client } from '@temporalio/client';
import type { Pool } from 'pg';
import { isFailure } from '../errors.js';
import { releaseLeftDigests } from '../store/sessions/erase.js';
import {
  findErasure,
  forgetErasure,
  isBegunAnew,
  noteTold,
  pendingErasures,
  type Erasure,
} from '../store/sessions/erasures.js';
import { deleteExecutions, findExecutions, type Execution } from '../temporal/executions.js';
import type { SessionIds } from '../contract/ids.js';

export interface Connected {
  pool: Pool;
  client: Client;
}

export interface FinishOptions {
  /**
   * An erasure is complete when nothing is found this many milliseconds after it: the server deletes with a delay,
   * its search index lags, and a turn stored before may have started a workflow since. @default 60,000
   */
  settleMs?: number;
  /** Milliseconds for each session, including waiting for the server. The next call finds the rest. @default 10,000 */
  timeoutMs?: number;
}

export interface FinishedErasure {
  /** Runs whose deletion the server has accepted. */
  executions: number;
  /** Runs whose deletion it has not accepted yet; null if it did not answer. */
  remaining: number | null;
}

const reason = 'the session is erased';

/**
 * Makes the server delete the executions of one erased session. Never throws for failures of Temporal; a later call
 * finds the rest.
 */
export async function finishErasure(
  connected: Connected,
  ids: SessionIds,
  options: FinishOptions = {},
): Promise<FinishedErasure> {
  const erasure = await findErasure(connected.pool, ids);
  if (!erasure) return { executions: 0, remaining: 0 };
  const told = new Set<string>();
  try {
    const remaining = await tell(connected, erasure, told, options);
    return { executions: told.size, remaining };
  } catch (error) {
    if (!isFailure(error, 'Temporal.Unavailable')) throw error;
    return { executions: told.size, remaining: null };
  }
}

/** After this many sessions for which Temporal does not answer, the call gives up. */
const mostUnanswered = 3;

/**
 * Continues at most `most` incomplete erasures, and begins none after `forMs`. Erasures of which the server was never told come
 * first. Returns the number of sessions handled, of runs that the server was told to delete, and of sessions with a remainder.
 */
export async function finishErasures(
  connected: Connected,
  {
    most = 100,
    forMs = Infinity,
    signal,
    ...options
  }: FinishOptions & { most?: number; forMs?: number; signal?: AbortSignal } = {},
): Promise<{ erasures: number; executions: number; unfinished: number }> {
  const sums = { erasures: 0, executions: 0, unfinished: 0 };
  const until = Date.now() + forMs;
  let unanswered = 0;
  for (const erasure of await pendingErasures(connected.pool, most)) {
    if (signal?.aborted || Date.now() > until) break;
    const { executions, remaining } = await finishErasure(connected, erasure, options);
    sums.erasures++;
    sums.executions += executions;
    if (remaining !== 0) sums.unfinished++;
    if (remaining === null && ++unanswered === mostUnanswered) break;
  }
  return sums;
}

/** Deletes the executions page by page. Returns the number of runs that the server could not be told of in time. */
async function tell(
  { pool, client }: Connected,
  erasure: Erasure,
  told: Set<string>,
  { settleMs = 60_000, timeoutMs = 10_000 }: FinishOptions,
): Promise<number> {
  const until = Date.now() + timeoutMs;
  for (;;) {
    const lookedAt = Date.now();
    const found = await findExecutions(client, erasure, erasure.generation, until);
    const begunAnew = await isBegunAnew(pool, erasure);
    // Executions that began after the erasure belong to the new session. If there is no new session, a late signal has started
    // them in vain; but one that has just begun may be about to recreate the session.
    const isErased = ({ startedAt }: Execution) =>
      startedAt < erasure.erasedAt || (!begunAnew && startedAt.getTime() < lookedAt - settleMs);
    const erased = found.filter(isErased);
    const fresh = erased.filter(({ runId }) => !told.has(runId));
    if (fresh.length > 0 && Date.now() > until) return fresh.length;
    await deleteExecutions(client, fresh, reason, until);
    for (const { runId } of fresh) told.add(runId);
    if (fresh.length > 0) continue;
    const settled = lookedAt - erasure.erasedAt.getTime() >= settleMs;
    const nothingLeft = erased.length === 0 && (begunAnew || found.length === 0);
    const released = await releaseDigests(pool, erasure);
    if (settled && nothingLeft && released) await forgetErasure(pool, erasure);
    else await noteTold(pool, erasure);
    return 0;
  }
}

/** Returns false if another transaction holds a digest for long. A later call then handles it. */
async function releaseDigests(pool: Pool, erasure: Erasure): Promise<boolean> {
  try {
    await releaseLeftDigests(pool, erasure);
    return true;
  } catch (error) {
    if (!isFailure(error, 'Store.Busy')) throw error;
    return false;
  }
}
