import type { AppendedTurn, Turn } from '../client.js';
import { invalid } from '../errors.js';
import { parsePolicy } from '../policy/schema.js';
import { appendTurn } from '../store/turns.js';
import type { SessionIds } from '../temporal/names.js';
import type { Connections } from './connections.js';

/** Stores a turn, then tells the session's workflow: a turn that could not be signalled is stored all the same. */
export async function append(
  { pool, workflows, deployment }: Connections,
  ids: SessionIds,
  { turnId, messages, format, policy, expectedSeq, usage }: Turn,
): Promise<AppendedTurn> {
  if (typeof turnId !== 'string' || turnId === '')
    throw invalid('turnId must be a non-empty string', 'turnId');
  const stored = await appendTurn(pool, {
    ...ids,
    turnId,
    messages,
    deployment,
    ...(format === undefined ? {} : { format }),
    ...(usage === undefined ? {} : { usage }),
    ...(policy === undefined ? {} : { policy: parsePolicy(policy) }),
    ...(expectedSeq === undefined ? {} : { expectedSeq }),
  });
  const { fromSeq, throughSeq, due, repeated, warnings } = stored;
  const signalled = await workflows.signalTurn(ids, { turnId, seq: throughSeq, due }, stored.idleAfterMs);
  return { turnId, fromSeq, throughSeq, due, repeated, signalled, warnings };
}
