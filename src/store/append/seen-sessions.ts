import { LRUCache } from 'lru-cache';
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import type { SessionRow } from '../sessions/session-row.js';

/** A session as this process saw it last. Another writer may have changed it since: the next append finds out by the version. */
export interface SeenSession {
  row: SessionRow;
  /** The transaction that wrote this version of the row (`xmin`). */
  version: string;
  /** Whether a compaction came after the last turn, as `hasMoved` says. */
  moved: boolean;
  /** The list of a caller that stands for the whole log. `shown`: the context has all its messages, none shortened. */
  list?: { digest: string; items: number; shown?: boolean } | undefined;
}

/** Maximum number of sessions for each pool, some kilobytes each. */
const mostSeen = 2_000;

const byPool = new WeakMap<Pool, LRUCache<string, SeenSession>>();

const keyOf = ({ tenant, session }: SessionIds): string => JSON.stringify([tenant, session]);

export function lastSeen(pool: Pool, ids: SessionIds): SeenSession | undefined {
  return byPool.get(pool)?.get(keyOf(ids));
}

export function noteSeen(pool: Pool, seen: SeenSession): void {
  const known = byPool.get(pool) ?? new LRUCache<string, SeenSession>({ max: mostSeen });
  byPool.set(pool, known);
  known.set(keyOf(seen.row), seen);
}

export function forgetSeen(pool: Pool, ids: SessionIds): void {
  byPool.get(pool)?.delete(keyOf(ids));
}
