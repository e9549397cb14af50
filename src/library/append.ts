import type { AppendedTurn, Turn } from '../contract/client.js';
import type { MessagesText } from '../conversation/messages-text.js';
import { invalid } from '../errors.js';
import { parsePolicy } from '../policy/schema.js';
import { appendTurn } from '../store/append/turns.js';
import type { SessionIds } from '../contract/ids.js';
import type { Connections } from './connections.js';

/** A turn whose messages may come as JSON text. */
export type TurnOrText = Omit<Turn, 'messages'> & { messages: Turn['messages'] | MessagesText };

/** Stores a turn, then tells the session's workflow: a turn that could not be signalled is stored all the same. */
export async function append(
  { pool, workflows, deployment, turnLimits }: Connections,
  ids: SessionIds,
  { turnId, messages, at, format, policy, expectedSeq, usage }: TurnOrText,
): Promise<AppendedTurn> {
  if (typeof turnId !== 'string' || turnId === '')
    throw invalid('turnId must be a non-empty string', 'turnId');
  const stored = await appendTurn(pool, {
    ...ids,
    turnId,
    messages,
    deployment,
    limits: turnLimits,
    ...(at === undefined ? {} : { at }),
    ...(format === undefined ? {} : { format }),
    ...(usage === undefined ? {} : { usage }),
    ...(policy === undefined ? {} : { policy: parsePolicy(policy) }),
    ...(expectedSeq === undefined ? {} : { expectedSeq }),
  });
  const { fromSeq, throughSeq, due, repeated, warnings } = stored;
  const signalled = await workflows.signalTurn(ids, { turnId, seq: throughSeq, due }, stored.idleAfterMs);
  return { turnId, fromSeq, throughSeq, due, repeated, signalled, warnings };
}
