import type { SessionIds } from '../contract/ids.js';
import type { AppendedTurn, TurnOrText } from '../contract/turns.js';
import type { HeldList } from '../store/append/turn-input.js';
import { appendTurn } from '../store/append/turns.js';
import type { Connections } from './connections.js';

/** Stores a turn, then signals the session's workflow if it needs the turn. A turn stays stored even if the signal fails. */
export async function append(
  connections: Connections,
  ids: SessionIds,
  turn: Omit<TurnOrText, 'session'>,
): Promise<AppendedTurn> {
  const { stored, signalled } = await store(connections, ids, turn);
  return { ...stored, signalled: await signalled };
}

/** A stored turn, and whether its signal has arrived, which other work need not wait for. */
export interface StoredTurn {
  stored: Omit<AppendedTurn, 'signalled'>;
  /** Never rejects. True if the workflow needs no signal. */
  signalled: Promise<boolean>;
}

/** Stores a turn, and begins to signal the session's workflow if it needs the turn. */
export async function store(
  { pool, workflows, deployment, turnLimits }: Connections,
  ids: SessionIds,
  { turnId, messages, at, format, policy, expectedSeq, usage }: Omit<TurnOrText, 'session'>,
  list?: HeldList,
): Promise<StoredTurn> {
  const { idleAfterMs, tells, ...stored } = await appendTurn(pool, {
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
  const signalled = tells
    ? workflows.signalTurn(ids, { turnId, seq: throughSeq, due }, idleAfterMs)
    : Promise.resolve(true);
  return { stored: { turnId, fromSeq, throughSeq, due, repeated, warnings }, signalled };
}
