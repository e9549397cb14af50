/** What must hold in the database after any requests: whole turns, archives of sessions that exist, exact originals. */
import { createHash } from 'node:crypto';
import pg from 'pg';

/** Each query finds rows that must not exist. */
const strangers: Readonly<Record<string, string>> = {
  'messages without a session': `select tenant_id, session_id, seq from palimpsest.messages m where not exists
    (select from palimpsest.sessions s where (s.tenant_id, s.session_id) = (m.tenant_id, m.session_id))`,
  'messages outside of turns': `select m.tenant_id, m.session_id, m.seq from palimpsest.messages m where not exists
    (select from palimpsest.turns t where (t.tenant_id, t.session_id) = (m.tenant_id, m.session_id)
      and m.seq between t.from_seq and t.through_seq)`,
  'half-written turns': `select t.tenant_id, t.session_id, t.turn_id from palimpsest.turns t where t.through_seq - t.from_seq + 1 <>
    (select count(*) from palimpsest.messages m where (m.tenant_id, m.session_id) = (t.tenant_id, t.session_id)
      and m.seq between t.from_seq and t.through_seq)`,
  'gaps in the log': `select s.tenant_id, s.session_id from palimpsest.sessions s where s.next_seq - 1 <>
    (select count(*) from palimpsest.messages m where (m.tenant_id, m.session_id) = (s.tenant_id, s.session_id))`,
  'archive parts without a session': `select p.tenant_id, p.session_id, p.part from palimpsest.archive_parts p where not exists
    (select from palimpsest.sessions s where (s.tenant_id, s.session_id) = (p.tenant_id, p.session_id))`,
  'archive parts without a compaction': `select p.tenant_id, p.session_id, p.part from palimpsest.archive_parts p where not exists
    (select from palimpsest.compactions c where (c.tenant_id, c.session_id) = (p.tenant_id, p.session_id) and c.archive_part = p.part)`,
  'archive parts with other counts than their messages': `select p.tenant_id, p.session_id, p.part from palimpsest.archive_parts p
    where p.messages <> (select count(*) from palimpsest.messages m
      where (m.tenant_id, m.session_id) = (p.tenant_id, p.session_id) and m.seq between p.from_seq and p.through_seq)`,
  'compactions without a session': `select c.tenant_id, c.session_id, c.generation from palimpsest.compactions c where not exists
    (select from palimpsest.sessions s where (s.tenant_id, s.session_id) = (c.tenant_id, c.session_id))`,
  'sessions without their newest compaction': `select s.tenant_id, s.session_id from palimpsest.sessions s where s.generation > 0
    and not exists (select from palimpsest.compactions c
      where (c.tenant_id, c.session_id, c.generation) = (s.tenant_id, s.session_id, s.generation))`,
  // Of the rows from before its migration, messages_erased holds by construction: they were not read for it.
  'constraints that were not validated': `select conname from pg_constraint
    where not convalidated and conname <> 'messages_erased' and connamespace = 'palimpsest'::regnamespace`,
};

export interface Soundness {
  sessions: number;
  messages: number;
  archiveParts: number;
  problems: string[];
}

/** As a superuser, who sees the rows of all tenants. */
export async function checkSoundness(ownerUrl: string): Promise<Soundness> {
  const client = new pg.Client({ connectionString: ownerUrl });
  await client.connect();
  try {
    const problems: string[] = [];
    for (const [what, query] of Object.entries(strangers)) {
      const { rows } = await client.query<object>(query);
      if (rows.length > 0) problems.push(`${rows.length} ${what}, such as ${JSON.stringify(rows[0])}`);
    }
    const { rows } = await client.query<{ place: object; body: string; sha256: Buffer }>(
      'select json_build_array(tenant_id, session_id, seq) as place, body, sha256 from palimpsest.messages',
    );
    for (const { place, body, sha256 } of rows)
      if (!createHash('sha256').update(body).digest().equals(sha256))
        problems.push(`a message differs from its hash: ${JSON.stringify(place)}`);
    const count = async (table: string) =>
      Number(
        (await client.query<{ count: string }>(`select count(*) from palimpsest.${table}`)).rows[0]?.count,
      );
    return {
      ...{
        sessions: await count('sessions'),
        messages: rows.length,
        archiveParts: await count('archive_parts'),
      },
      problems,
    };
  } finally {
    await client.end();
  }
}
