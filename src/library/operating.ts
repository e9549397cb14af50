/** Operations on a session. They change PostgreSQL first, which is authoritative, and then tell the workflow. */
import type { CompactionOutcome } from '../contract/compactions.js';
import type { EraseMessagesRequest, MessagesErased } from '../contract/erasing.js';
import { isFailure } from '../errors.js';
import { eraseMessages as eraseInStore } from '../erase/erase-messages.js';
import type { Pins, SessionPolicy } from '../contract/policies.js';
import type { SessionIds } from '../contract/ids.js';
import { currentCaller } from '../store/connection/places.js';
import { policyOf } from '../policy/layers.js';
import { parsePolicy, type PolicyInput } from '../policy/schema.js';
import { changePolicy, findTenantPolicy } from '../store/sessions/configure.js';
import { closeSession, loadSession, setPaused, standOf } from '../store/sessions/sessions.js';
import type { Connections } from './connections.js';
import { committedAfter } from './waiting.js';

/**
 * Compacts; with `wait`, returns the outcome as soon as the commit shows in the row or the workflow answers, whichever comes first.
 */
export async function compact(
  connections: Connections,
  ids: SessionIds,
  how: { resummarize?: boolean },
  wait = true,
): Promise<CompactionOutcome | null> {
  const { pool, workflows } = connections;
  const { policy, generation: after } = await loadSession(pool, ids);
  const answered = await workflows.requestCompaction(ids, policyOf(policy).idleAfter, { ...how, after });
  if (!wait) return null;
  const over = new AbortController();
  const caller = currentCaller()?.signal;
  const signal = caller ? AbortSignal.any([caller, over.signal]) : over.signal;
  const committed = async () => {
    // Read after the request was accepted: an earlier commit is the answer only if the workflow says so.
    const from = await standOf(pool, ids);
    return from && committedAfter(connections, ids, from, how, signal);
  };
  const answer = answered(signal);
  try {
    // The workflow also answers if the row cannot be read.
    return await Promise.race([
      answer,
      committed().then(
        (outcome) => outcome ?? answer,
        () => answer,
      ),
    ]);
  } finally {
    over.abort(new Error('the wait is over'));
  }
}

export async function configure(
  connections: Connections,
  ids: SessionIds,
  policy: PolicyInput,
): Promise<{ policyVersion: number }> {
  const given = parsePolicy(policy);
  return change(connections, ids, () => given);
}

/** Changes only the pins of the session's own policy. */
export async function pin(
  connections: Connections,
  ids: SessionIds,
  { pins }: Pins,
): Promise<{ policyVersion: number }> {
  return change(connections, ids, (own) => ({ ...own, pins }));
}

async function change(
  { pool, workflows, deployment }: Connections,
  ids: SessionIds,
  make: (own: PolicyInput) => PolicyInput,
): Promise<{ policyVersion: number }> {
  const row = await changePolicy(pool, ids, make, deployment);
  await workflows.signalConfigured(ids, policyOf(row.policy).idleAfter);
  return { policyVersion: row.policyVersion };
}

export async function ownPolicy({ pool }: Connections, ids: SessionIds): Promise<SessionPolicy> {
  const { policy, policyVersion } = await loadSession(pool, ids);
  return { policy: policy.session ?? {}, policyVersion };
}

export async function tenantPolicy({ pool }: Connections, tenant: string): Promise<SessionPolicy> {
  const found = await findTenantPolicy(pool, tenant);
  return { policy: found?.policy ?? {}, policyVersion: found?.version ?? 0 };
}

/** The stored state is authoritative. The signal makes the workflow show it and start a due compaction at once. */
export async function hold(
  { pool, workflows }: Connections,
  ids: SessionIds,
  paused: boolean,
): Promise<void> {
  const session = await loadSession(pool, ids);
  await setPaused(pool, session, paused);
  await workflows.signalConfigured(ids, policyOf(session.policy).idleAfter);
}

/** The signal makes the workflow drop what it knows of the session as it was. A failure to tell it changes nothing. */
export async function eraseMessages(
  { pool, workflows }: Connections,
  ids: SessionIds,
  request: EraseMessagesRequest,
): Promise<MessagesErased> {
  return eraseInStore(pool, ids, request, async (changed) => {
    const { policy } = await loadSession(pool, changed);
    await workflows.signalMeasure(changed, policyOf(policy).idleAfter).catch((error: unknown) => {
      if (!isFailure(error, 'Temporal.Unavailable')) throw error;
    });
  });
}

export async function close({ pool, workflows }: Connections, ids: SessionIds): Promise<void> {
  await closeSession(pool, ids);
  await workflows.signalClose(ids);
}
