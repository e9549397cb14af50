/**
 * Erases a session: first in PostgreSQL, which is authoritative, then in Temporal, as far as Temporal answers within five
 * seconds. The sweep finishes the rest.
 */
import type { Erased } from '../contract/sessions.js';
import type { SessionIds } from '../contract/ids.js';
import { isFailure } from '../errors.js';
import { eraseSession, eraseWithForks, type ErasedRows } from '../store/sessions/erase.js';
import { findErasure, noteErasure } from '../store/sessions/erasures.js';
import { notFound } from '../store/sessions/session-row.js';
import { eraserOf } from '../store/connection/pool.js';
import { withTransaction } from '../store/connection/transaction.js';
import { finishErasure, type Connected } from './executions.js';
import { findExecutions } from '../temporal/executions.js';

/** Longest time that a caller waits for Temporal. */
const answerWithinMs = 5_000;

export async function erase(connections: Connected, ids: SessionIds, forks = false): Promise<Erased> {
  const { pool } = connections;
  const erased: { ids: SessionIds; rows: ErasedRows }[] = [];
  const note = (of: SessionIds, rows: ErasedRows): Promise<void> => {
    erased.push({ ids: of, rows });
    return Promise.resolve();
  };
  try {
    if (forks) await eraseWithForks(pool, ids, note);
    else await note(ids, await eraseSession(pool, ids));
  } catch (error) {
    if (!isFailure(error, 'Store.SessionNotFound')) throw error;
    return eraseExecutions(connections, ids);
  }
  const sum = (count: (rows: ErasedRows) => number) =>
    erased.reduce((total, { rows }) => total + count(rows), 0);
  const executions = await finishAll(connections, erased);
  return {
    messages: sum(({ messages }) => messages),
    generations: sum(({ generations }) => generations),
    digests: sum(({ digests }) => digests),
    forks: erased.length - 1,
    ...executions,
  };
}

/** Tells Temporal to delete the executions. If the time is up before the last session, the sweep handles the rest. */
async function finishAll(
  connected: Connected,
  erased: readonly { ids: SessionIds }[],
): Promise<Pick<Erased, 'executions' | 'remaining'>> {
  const until = Date.now() + answerWithinMs;
  let [executions, remaining] = [0, 0];
  for (const { ids } of erased) {
    const timeoutMs = until - Date.now();
    if (timeoutMs <= 0) return { executions, remaining: null };
    const one = await finishErasure(connected, ids, { timeoutMs });
    executions += one.executions;
    if (one.remaining === null) return { executions, remaining: null };
    remaining += one.remaining;
  }
  return { executions, remaining };
}

/**
 * Erases the executions of a session that PostgreSQL does not have: the session was erased before while Temporal did not
 * answer, or it was never stored because all its turns were refused. Throws `Store.SessionNotFound` if Temporal has no
 * executions either, or was told to delete them already.
 */
async function eraseExecutions(connections: Connected, ids: SessionIds): Promise<Erased> {
  const { pool, client } = connections;
  const until = Date.now() + answerWithinMs;
  const erasure = await findErasure(pool, ids);
  if (erasure === null) {
    if ((await findExecutions(client, ids, 1, until)).length === 0) return notFound(ids);
    await withTransaction(eraserOf(pool), ids, ({ query }) => noteErasure(query, ids, 1));
  }
  const finished = await finishAll(connections, [{ ids }]);
  if (erasure?.toldAt) return notFound(ids);
  return { messages: 0, generations: 0, digests: 0, forks: 0, ...finished };
}
