/** Waiting for a session's workflow, which may be busy, asleep, or without a worker. */
import { currentCaller } from '../store/connection/places.js';
import { PalimpsestError } from '../errors.js';
import { generationOf } from '../store/sessions/sessions.js';
import type { SessionIds } from '../contract/ids.js';
import type { Connections } from './connections.js';
import type { Look } from './session-watch.js';

/** Whether a compaction is running, or input that may start one is not yet processed. */
function isBusy({ live }: Look): boolean {
  return typeof live === 'object' && (live.phase !== 'idle' || live.inbox > 0 || live.compaction !== null);
}

/**
 * Returns at the first of three events: a new generation is committed, no compaction is running or due, or the time is over. A
 * workflow that does not answer counts as idle. Throws `Store.SessionNotFound`.
 */
export async function compactionEnded(
  { pool, watch }: Pick<Connections, 'pool' | 'watch'>,
  ids: SessionIds,
  withinMs: number,
): Promise<void> {
  const until = Date.now() + withinMs;
  const before = await generationOf(pool, ids);
  await watch.until(ids, (look) => !isBusy(look) || look.generation !== before, {
    ...{ withinMs: Math.max(0, until - Date.now()), generation: true },
    signal: currentCaller()?.signal,
  });
}

/** Waits until no compaction is running or due. Throws `Temporal.Unavailable` if this takes longer than `timeoutMs`. */
export async function atRest(
  { watch }: Pick<Connections, 'watch'>,
  ids: SessionIds,
  timeoutMs: number,
): Promise<void> {
  const { done, look } = await watch.until(ids, (seen) => seen.live !== 'unknown' && !isBusy(seen), {
    withinMs: timeoutMs,
    atLeastOnce: true,
    signal: currentCaller()?.signal,
  });
  if (done) return;
  const message =
    typeof look?.live === 'object'
      ? `session ${ids.session} is still busy after ${timeoutMs} ms (phase ${look.live.phase})`
      : `the workflow of session ${ids.session} has not answered within ${timeoutMs} ms`;
  throw new PalimpsestError('Temporal.Unavailable', message, {
    hint: 'Check that a worker is running, and look at the session in the Temporal UI.',
  });
}
