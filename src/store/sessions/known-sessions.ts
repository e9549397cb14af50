import type { Pool } from 'pg';
import type { FormatName } from '../../conversation/format-names.js';
import type { TokenizerName } from '../../tokens/counter.js';
import type { SessionIds } from '../../contract/ids.js';

/**
 * What an append needs to know of a session before its transaction: its format and tokenizer. Both rarely change, and
 * the transaction notices when they have, so a process that has seen the session need not ask.
 */
export interface KnownSession {
  format: FormatName;
  tokenizer: TokenizerName;
}

/**
 * Sessions remembered for each pool, some 200 bytes each; the one used least recently is forgotten first.
 * @internal A test goes beyond it.
 */
export const mostKnown = 10_000;

const byPool = new WeakMap<Pool, Map<string, KnownSession>>();

export function recall(pool: Pool, ids: SessionIds): KnownSession | undefined {
  const known = byPool.get(pool)?.get(keyOf(ids));
  if (known) remember(pool, ids, known);
  return known;
}

export function remember(pool: Pool, ids: SessionIds, { format, tokenizer }: KnownSession): void {
  const known = byPool.get(pool) ?? new Map<string, KnownSession>();
  byPool.set(pool, known);
  const key = keyOf(ids);
  // A map keeps the order of insertion: what is put in anew comes last.
  known.delete(key);
  known.set(key, { format, tokenizer });
  const [oldest] = known.keys();
  if (known.size > mostKnown && oldest !== undefined) known.delete(oldest);
}

export function forget(pool: Pool, ids: SessionIds): void {
  byPool.get(pool)?.delete(keyOf(ids));
}

function keyOf({ tenant, session }: SessionIds): string {
  return JSON.stringify([tenant, session]);
}
