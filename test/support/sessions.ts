/** For tests of the invariants: fills a session, reads it back, and reads its rows in the database. */
import type { Pool } from 'pg';
import type { PalimpsestClient } from '../../src/contract/client.js';
import type { ChatMessage, Json } from '../../src/conversation/message.js';
import { isFailure } from '../../src/errors.js';
import { originalItems } from '../../src/formats/native.js';
import type { Palimpsest } from '../../src/library/palimpsest.js';
import type { SessionContext } from '../../src/contract/context.js';
import type { PolicyInput } from '../../src/policy/schema.js';
import type { Coverage } from '../../src/summary/coverage.js';

/** Appends each turn under the id `t-<index>`, counted from `from`. */
export async function appendTurns(
  palimpsest: Palimpsest,
  session: string,
  turns: readonly ChatMessage[][],
  { policy, from = 0, at }: { policy?: PolicyInput; from?: number; at?: string } = {},
): Promise<void> {
  for (const [index, messages] of turns.entries()) {
    const given = {
      ...(policy && from + index === 0 ? { policy } : {}),
      ...(at === undefined ? {} : { at }),
    };
    await palimpsest.appendTurn({ session, turnId: `t-${from + index}`, messages, ...given });
  }
}

/** Returns the messages of the replay as JSON texts, in order. */
export async function replayed(palimpsest: Palimpsest, session: string): Promise<string[]> {
  const texts: string[] = [];
  for await (const { message } of palimpsest.replay({ session })) texts.push(JSON.stringify(message));
  return texts;
}

/** Returns the items of a session as they were stored, in its own format. */
export async function storedItems(
  client: Pick<PalimpsestClient, 'replay'>,
  session: string,
): Promise<Json[]> {
  const items: Json[] = [];
  for await (const item of originalItems(client.replay({ session }))) items.push(item);
  return items;
}

/** Returns the context; null if not even the smallest possible context fits. */
export async function contextOrNull(palimpsest: Palimpsest, session: string): Promise<SessionContext | null> {
  try {
    return await palimpsest.context({ session });
  } catch (error) {
    if (isFailure(error, 'Budget.Unreachable')) return null;
    throw error;
  }
}

/** Compacts any session on request; does nothing if no compaction could make it fit. */
export async function compactIfPossible(palimpsest: Palimpsest, session: string): Promise<void> {
  try {
    await palimpsest.compact({ session });
  } catch (error) {
    if (!isFailure(error, 'Budget.Unreachable')) throw error;
  }
}

/** Rows of a session that a refused or broken commit must not change. */
export interface Rows {
  /** Generations of all compactions, the genesis included. */
  generations: number[];
  parts: number[];
  reductions: number;
  links: number;
  /** Generation of the session and last seq that it has evicted. */
  head: { generation: number; throughSeq: number };
}

export async function rowsOf(pool: Pool, tenant: string, session: string): Promise<Rows> {
  const select = async (columns: string, table: string) => {
    const text = `select ${columns} from palimpsest.${table} where tenant_id = $1 and session_id = $2`;
    return (await pool.query<Record<string, number>>(text, [tenant, session])).rows;
  };
  const [head] = await select('generation, through_seq', 'sessions');
  return {
    generations: (await select('generation', 'compactions')).map((row) => row['generation'] ?? -1).sort(),
    parts: (await select('part', 'archive_parts')).map((row) => row['part'] ?? -1).sort(),
    reductions: (await select('position', 'reductions')).length,
    links: (await select('position', 'compaction_digests')).length,
    head: { generation: head?.['generation'] ?? -1, throughSeq: head?.['through_seq'] ?? -1 },
  };
}

export interface Committed {
  generation: number;
  fromSeq: number;
  throughSeq: number;
  method: string;
  snapshot: string | null;
  coverage: Coverage[];
}

/** The stored row of each compaction except the genesis, oldest first. */
export async function committed(pool: Pool, tenant: string, session: string): Promise<Committed[]> {
  const { rows } = await pool.query<Committed>(
    `select generation, from_seq as "fromSeq", through_seq as "throughSeq", method, snapshot, coverage
     from palimpsest.compactions where tenant_id = $1 and session_id = $2 and generation > 0 order by generation`,
    [tenant, session],
  );
  return rows;
}
