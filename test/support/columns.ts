/** Where a database keeps a text: every column of every table of the schema, from the catalogue. */
import type { Pool } from 'pg';

interface Column {
  table: string;
  name: string;
  type: string;
}

/** Types that cannot hold a text. */
const withoutText = new Set([
  ...['boolean', 'integer', 'bigint', 'double precision', 'uuid', 'uuid[]', 'integer[]', 'real'],
  ...['timestamp with time zone', 'serial'],
]);

/** The columns that could hold a text, as `table.column`. */
export async function textColumns(pool: Pool): Promise<Column[]> {
  const { rows } = await pool.query<Column>(
    `select c.relname as table, a.attname as name, format_type(a.atttypid, null) as type
     from pg_attribute a join pg_class c on c.oid = a.attrelid
     where c.relnamespace = 'palimpsest'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
       and c.relname <> 'migrations'
     order by 1, 2`,
  );
  return rows.filter(({ type }) => !withoutText.has(type));
}

/** The columns, as `table.column`, that hold one of these texts in rows of the tenant. Letter case makes no difference. */
export async function columnsHolding(pool: Pool, texts: readonly string[]): Promise<string[]> {
  const found: string[] = [];
  for (const { table, name, type } of await textColumns(pool)) {
    const column = `"${name}"`;
    const holds =
      type === 'bytea'
        ? `position(convert_to(sought, 'UTF8') in ${column}) > 0`
        : `strpos(lower(${column}::text), lower(sought)) > 0`;
    const { rows } = await pool.query(
      `select from palimpsest.${table} where exists (select from unnest($1::text[]) sought where ${holds}) limit 1`,
      [texts],
    );
    if (rows.length > 0) found.push(`${table}.${name}`);
  }
  return found;
}
