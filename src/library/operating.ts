/** What operators do with a session: first in PostgreSQL, which decides, then in its workflow. */
import { z } from 'zod';
import type { CompactionOutcome } from '../contract/workflows.js';
import { currentCaller } from '../store/connection/places.js';
import type { SessionPolicy } from '../contract/client.js';
import { policyOf } from '../policy/layers.js';
import { complain } from '../policy/issues.js';
import { parsePolicy, policySchema, type PolicyInput } from '../policy/schema.js';
import { changePolicy, findTenantPolicy } from '../store/sessions/configure.js';
import { closeSession, loadSession, setPaused } from '../store/sessions/sessions.js';
import type { SessionIds } from '../contract/ids.js';
import type { Connections } from './connections.js';

export async function compact(
  { pool, workflows }: Connections,
  ids: SessionIds,
  how: { resummarize?: boolean },
  wait?: boolean,
): Promise<CompactionOutcome | null> {
  const { policy } = await loadSession(pool, ids);
  return workflows.compact(ids, policyOf(policy).idleAfter, how, wait, currentCaller()?.signal);
}

export async function configure(
  connections: Connections,
  ids: SessionIds,
  policy: PolicyInput,
): Promise<{ policyVersion: number }> {
  const given = parsePolicy(policy);
  return change(connections, ids, () => given);
}

const pinsSchema = z.strictObject({ pins: policySchema.shape.pins.unwrap() });

/** Of the session's own policy, its pins alone. */
export async function pin(
  connections: Connections,
  ids: SessionIds,
  given: PolicyInput['pins'],
): Promise<{ policyVersion: number }> {
  const read = pinsSchema.safeParse({ pins: given });
  if (!read.success) throw complain(read.error, pinsSchema, { pins: given }, '');
  const { pins } = read.data;
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

/** What is stored counts; the workflow is told to look, so that its page and a due compaction follow at once. */
export async function hold(
  { pool, workflows }: Connections,
  ids: SessionIds,
  paused: boolean,
): Promise<void> {
  const session = await loadSession(pool, ids);
  await setPaused(pool, session, paused);
  await workflows.signalConfigured(ids, policyOf(session.policy).idleAfter);
}

export async function close({ pool, workflows }: Connections, ids: SessionIds): Promise<void> {
  await closeSession(pool, ids);
  await workflows.signalClose(ids);
}
