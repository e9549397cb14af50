/** Waiting for a session's workflow, which may be busy, asleep, or without a worker. */
import { currentCaller } from '../store/connection/places.js';
import { PalimpsestError } from '../errors.js';
import { compactionAfter } from '../store/compactions/generations.js';
import { generationOf } from '../store/sessions/sessions.js';
import type { CompactionOutcome } from '../contract/compactions.js';
import type { SessionIds } from '../contract/ids.js';
import type { CompactRequest } from '../contract/workflows.js';
import type { Connections } from './connections.js';
import type { Look } from './session-watch.js';

/** Whether a compaction is running, or input that may start one is not yet processed. */
function isBusy(look: Look): boolean {
  const { live } = look;
  if (typeof live !== 'object' || live === null) return false;
  return (live.phase !== 'idle' || live.inbox > 0 || live.compaction !== null) && !hasCommitted(look);
}

/**
 * Whether the compaction in flight is committed and nothing more is due: what the workflow has yet to do changes nothing. Turns in
 * its inbox are in the row as well, unless they carry their messages.
 */
function hasCommitted({ live, row }: Look): boolean {
  if (typeof live !== 'object' || live === null || row === null || row.reachesMark) return false;
  return live.compaction?.workflowId === row.committedBy && (live.unstored ?? live.inbox) === 0;
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
  await watch.until(ids, (look) => (look.live !== null && !isBusy(look)) || look.row?.generation !== before, {
    withinMs: Math.max(0, until - Date.now()),
    signal: currentCaller()?.signal,
  });
}

/** Waits until no compaction is running or due. Throws `Temporal.Unavailable` if this takes longer than `timeoutMs`. */
export async function atRest(
  { watch }: Pick<Connections, 'watch'>,
  ids: SessionIds,
  timeoutMs: number,
): Promise<void> {
  const { done, look } = await watch.until(
    ids,
    (seen) => seen.live !== null && seen.live !== 'unknown' && !isBusy(seen) && seen.row?.unheard !== true,
    { withinMs: timeoutMs, atLeastOnce: true, signal: currentCaller()?.signal },
  );
  if (done) return;
  throw new PalimpsestError('Temporal.Unavailable', stillBusy(ids, timeoutMs, look), {
    hint: 'Check that a worker is running, and look at the session in the Temporal UI.',
  });
}

function stillBusy({ session }: SessionIds, timeoutMs: number, look: Look | null): string {
  const live = look?.live ?? 'unknown';
  if (live === 'unknown') return `the workflow of session ${session} has not answered within ${timeoutMs} ms`;
  if (live !== 'asleep' && look !== null && isBusy(look))
    return `session ${session} is still busy after ${timeoutMs} ms (phase ${live.phase})`;
  return `session ${session} is due, and after ${timeoutMs} ms its workflow has not yet heard of it`;
}

/**
 * Waits for the commit of a compaction that was requested when the session was at `from`; returns its outcome. Never returns if
 * the row cannot tell which commit is the answer to the request.
 */
export async function committedAfter(
  { pool, watch }: Pick<Connections, 'pool' | 'watch'>,
  ids: SessionIds,
  from: { generation: number; incarnation: string },
  { resummarize = false }: CompactRequest,
  signal: AbortSignal,
): Promise<CompactionOutcome> {
  let { generation } = from;
  for (;;) {
    const isNewer = ({ row }: Look) =>
      row !== null && row.incarnation === from.incarnation && row.generation > generation;
    const { look } = await watch.until(ids, isNewer, { rowOnly: true, signal });
    const found = await compactionAfter(pool, ids, generation, resummarize);
    if (found) return found;
    generation = look?.row?.generation ?? generation;
  }
}
