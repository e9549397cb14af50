/**
 * Reads the rows of the database as JSON: those of one session in a form that can be compared with another session, or those
 * that contain a text.
 */
import type { Pool } from 'pg';
import type { SessionIds } from '../../src/contract/ids.js';

/** Columns that differ between two sessions with the same operations: times, durations, random ids. */
const volatile = [
  ...['created_at', 'updated_at', 'started_at', 'ended_at', 'closed_at', 'paused_at', 'retry_at'],
  ...['incarnation', 'run_id', 'model_ms', 'overhead_ms', 'ms'],
];

async function tables(pool: Pool): Promise<{ name: string; sessionColumn: string | null }[]> {
  const { rows } = await pool.query<{ name: string; sessionColumn: string | null }>(
    `select t.table_name as name, (select column_name from information_schema.columns c
       where c.table_schema = 'palimpsest' and c.table_name = t.table_name
         and c.column_name in ('session_id', 'payer_session')) as "sessionColumn"
     from information_schema.tables t where t.table_schema = 'palimpsest' order by 1`,
  );
  return rows;
}

/** Returns the rows of this session in each table, with its id replaced everywhere. */
export async function rowsOfSession(pool: Pool, ids: SessionIds): Promise<Record<string, string[]>> {
  const found: Record<string, string[]> = {};
  for (const { name, sessionColumn } of await tables(pool)) {
    if (sessionColumn === null || name === 'erasures') continue;
    const { rows } = await pool.query<{ row: string }>(
      `select (to_jsonb(t) - $3::text[])::text as row from palimpsest.${name} t
       where tenant_id = $1 and ${sessionColumn} = $2 order by 1`,
      [ids.tenant, ids.session, volatile],
    );
    const texts = rows.map(({ row }) => row.replaceAll(ids.session, '‹session›'));
    if (texts.length > 0) found[name] = texts;
  }
  return found;
}

/** Returns the tables with rows that contain one of these texts, and the number of these rows. */
export async function rowsHolding(pool: Pool, texts: readonly string[]): Promise<Record<string, number>> {
  const found: Record<string, number> = {};
  for (const { name } of await tables(pool)) {
    const { rows } = await pool.query<{ count: number }>(
      `select count(*)::int as count from palimpsest.${name} t
       where exists (select from unnest($1::text[]) as sought where strpos(t::text, sought) > 0)`,
      [texts],
    );
    if (rows[0] && rows[0].count > 0) found[name] = rows[0].count;
  }
  return found;
}
