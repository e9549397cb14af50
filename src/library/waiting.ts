/** Waiting for a session's workflow, which may be busy, asleep, or without a worker. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { PalimpsestError } from '../errors.js';
import { generationOf } from '../store/sessions.js';
import type { SessionIds } from '../temporal/names.js';
import type { SessionWorkflows } from '../temporal/session-workflows.js';

type LiveStatus = Awaited<ReturnType<SessionWorkflows['status']>>;

/** A compaction runs, or something is still to be looked at that may start one. */
function isBusy(live: Exclude<LiveStatus, string>): boolean {
  return live.phase !== 'idle' || live.inbox > 0 || live.compaction !== null;
}

/** Milliseconds between looks: soon at first, a compaction takes seconds. */
function* pauses(): Generator<number, never> {
  for (let pause = 10; ; pause = Math.min(250, pause * 1.5)) yield pause;
}

/**
 * Returns when another generation than the present one is committed, when no compaction is in flight or due, or when
 * the time is up, whichever is first. A workflow that cannot be asked has none in flight as far as anyone knows.
 * Throws `Store.SessionNotFound`.
 */
export async function compactionEnded(
  pool: Pool,
  workflows: SessionWorkflows,
  ids: SessionIds,
  withinMs: number,
): Promise<void> {
  const until = Date.now() + withinMs;
  const before = await generationOf(pool, ids);
  for (const pause of pauses()) {
    const live = await workflows.status(ids, until - Date.now());
    if (typeof live === 'string' || !isBusy(live)) return;
    if ((await generationOf(pool, ids)) !== before) return;
    const left = until - Date.now();
    if (left <= 0) return;
    await sleep(Math.min(pause, left));
  }
}

/** Throws `Temporal.Unavailable` where the session is not at rest in time. */
export async function atRest(workflows: SessionWorkflows, ids: SessionIds, timeoutMs: number): Promise<void> {
  const until = Date.now() + timeoutMs;
  for (const pause of pauses()) {
    const live = await workflows.status(ids);
    if (live === 'asleep' || (live !== 'unknown' && !isBusy(live))) return;
    if (Date.now() > until) {
      const state = live === 'unknown' ? 'unanswered' : live.phase;
      throw new PalimpsestError(
        'Temporal.Unavailable',
        `session ${ids.session} is still ${state} after ${timeoutMs} ms`,
        { hint: 'Is a worker running? Look at the session in the Temporal UI.' },
      );
    }
    await sleep(pause);
  }
}
