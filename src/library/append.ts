import type { SessionIds } from '../contract/ids.js';
import type { AppendedTurn, TurnOrText } from '../contract/turns.js';
import type { HeldList } from '../store/append/turn-input.js';
import { appendTurn } from '../store/append/turns.js';
import type { Connections } from './connections.js';

/** Stores a turn, then signals the session's workflow. A turn stays stored even if the signal fails. */
export async function append(
  { pool, workflows, deployment, turnLimits }: Connections,
  ids: SessionIds,
  { turnId, messages, at, format, policy, expectedSeq, usage }: Omit<TurnOrText, 'session'>,
  list?: HeldList,
): Promise<AppendedTurn> {
  const stored = await appendTurn(pool, {
    ...ids,
    turnId,
    messages,
    deployment,
    limits: turnLimits,
    ...(at === undefined ? {} : { at }),
    ...(format === undefined ? {} : { format }),
    ...(usage === undefined ? {} : { usage }),
    ...(policy === undefined ? {} : { policy }),
    ...(expectedSeq === undefined ? {} : { expectedSeq }),
    ...(list === undefined ? {} : { list }),
  });
  const { fromSeq, throughSeq, due, repeated, warnings } = stored;
  const signalled = await workflows.signalTurn(ids, { turnId, seq: throughSeq, due }, stored.idleAfterMs);
  return { turnId, fromSeq, throughSeq, due, repeated, signalled, warnings };
}
