/**
 * The guarantees that the database enforces: the tests break them with SQL, as a bug or an operator could. Each refusal is
 * checked by the name of its constraint, so that no other error in the statement counts.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listArchiveParts } from '../../../src/store/compactions/archive.js';
import { storeDigest } from '../../../src/store/compactions/digests.js';
import { openPool } from '../../support/pool.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { compactThrough, newSession, replayed, sessionWith, talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

/** Runs one statement with the ids as $1 and $2 in a separate transaction. */
function attempt({ tenant, session }: SessionIds, statement: string): Promise<unknown> {
  return pool.query(statement, statement.includes('$1') ? [tenant, session] : []);
}

const restrictViolation = { code: '23001' };
const violates = (constraint: string) => ({ constraint });
const mine = 'where tenant_id = $1 and session_id = $2';

describe('invariant 1: nothing is lost', () => {
  it.each([
    ['a changed body', `update palimpsest.messages set body = '{}' ${mine}`],
    [
      'a changed body with its hash',
      `update palimpsest.messages set body = '{}', sha256 = sha256('{}') ${mine}`,
    ],
    ['a changed role', `update palimpsest.messages set role = 'system' ${mine}`],
    ['a changed seq', `update palimpsest.messages set seq = seq + 100 ${mine}`],
    ['a deleted message', `delete from palimpsest.messages ${mine} and seq = 2`],
    ['a deleted turn', `delete from palimpsest.turns ${mine}`],
    ['a changed turn', `update palimpsest.turns set through_seq = 9 ${mine}`],
    ['a changed summary', `update palimpsest.compactions set snapshot = 'x' ${mine}`],
    ['a deleted compaction', `delete from palimpsest.compactions ${mine}`],
    ['a changed archive part', `update palimpsest.archive_parts set sha256 = '\\x00' ${mine}`],
    ['a deleted archive part', `delete from palimpsest.archive_parts ${mine}`],
    ['a truncated log', 'truncate palimpsest.messages cascade'],
  ])('refuses %s', async (_, statement) => {
    const ids = await sessionWith(pool, talk(4));
    await compactThrough(pool, ids, 2);
    await expect(attempt(ids, statement)).rejects.toMatchObject(restrictViolation);
    expect(await replayed(pool, ids)).toHaveLength(4);
  });

  const rewriting = `select palimpsest.rewrite_only('$1', '$2');`;
  const tombstone = `body = '{}', sha256 = sha256('{}'), erased_at = now()`;

  /** As the role, in one transaction that may rewrite a session. */
  async function rewrite(ids: SessionIds, of: SessionIds, statement: string, role = 'palimpsest_eraser') {
    const filled = (text: string, { tenant, session }: SessionIds) =>
      text.replaceAll('$1', tenant).replaceAll('$2', session);
    const where = filled("where tenant_id = '$1' and session_id = '$2'", ids);
    const named = `set local role ${role}; set local palimpsest.tenant = '${ids.tenant}';`;
    return pool.query(`begin; ${filled(rewriting, of)} ${named} ${statement} ${where}; commit;`);
  }

  it('lets an erasure replace a body, and keeps its hash', async () => {
    const ids = await sessionWith(pool, talk(4));
    await rewrite(ids, ids, `update palimpsest.messages set ${tombstone}, received_sha256 = sha256`);
    expect(await replayed(pool, ids)).toHaveLength(4);
  });

  it.each([
    [
      'without the hash of what was received',
      `update palimpsest.messages set ${tombstone}, received_sha256 = '\\x00'`,
    ],
    [
      'together with its role',
      `update palimpsest.messages set ${tombstone}, received_sha256 = sha256, role = 'x'`,
    ],
    ['of a range', `update palimpsest.compactions set through_seq = 1`],
    ['of the hash of an archive part', `update palimpsest.archive_parts set sha256 = '\\x00'`],
  ])('refuses an erasure %s', async (_, statement) => {
    const ids = await sessionWith(pool, talk(4));
    await compactThrough(pool, ids, 2);
    await expect(rewrite(ids, ids, statement)).rejects.toMatchObject(restrictViolation);
  });

  it('refuses it in another session, and to the application', async () => {
    const [ids, other] = [await sessionWith(pool, talk(4)), await sessionWith(pool, talk(4))];
    const statement = `update palimpsest.messages set ${tombstone}, received_sha256 = sha256`;
    await expect(rewrite(ids, other, statement)).rejects.toMatchObject(restrictViolation);
    await expect(rewrite(ids, ids, statement, 'palimpsest_app')).rejects.toMatchObject({ code: '42501' });
  });

  it('lets token counts be corrected', async () => {
    const ids = await sessionWith(pool, talk(2));
    await attempt(ids, `update palimpsest.messages set tokens = 7 ${mine}`);
    expect((await replayed(pool, ids)).map(({ tokens }) => tokens)).toEqual([7, 7]);
  });

  it('refuses a body that does not match its hash', async () => {
    const ids = await sessionWith(pool, talk(1));
    const wrong = attempt(
      ids,
      `insert into palimpsest.messages (tenant_id, session_id, seq, turn_id, role, empty, tokens, sha256, body)
       values ($1, $2, 2, 'first', 'user', false, 1, sha256('other'), '{"role":"user"}')`,
    );
    await expect(wrong).rejects.toMatchObject(violates('messages_sha256'));
  });

  it('refuses a message without a turn, and a duplicate seq', async () => {
    const ids = await sessionWith(pool, talk(1));
    const insert = (seq: number, turnId: string) =>
      attempt(
        ids,
        `insert into palimpsest.messages (tenant_id, session_id, seq, turn_id, role, empty, tokens, sha256, body)
         values ($1, $2, ${seq}, '${turnId}', 'user', false, 1, sha256('{}'), '{}')`,
      );
    await expect(insert(2, 'never appended')).rejects.toMatchObject(violates('messages_of_turn'));
    await expect(insert(1, 'first')).rejects.toMatchObject(violates('messages_pk'));
  });
});

describe('invariant 2: no orphan archive', () => {
  const part = (generation: number, from: number, through: number) =>
    `insert into palimpsest.archive_parts (tenant_id, session_id, part, generation, from_seq, through_seq, messages, tokens, bytes, sha256)
     values ($1, $2, 9, ${generation}, ${from}, ${through}, ${through - from + 1}, 1, 1, sha256('x'))`;
  const compaction = (columns: string, values: string) =>
    `insert into palimpsest.compactions (tenant_id, session_id, generation, reason, method, run_id, snapshot, head, ${columns})
     values ($1, $2, 5, 'trigger', 'model', 'another run', 's', '[]', ${values})`;
  const columns = 'parent_generation, parent_through_seq, from_seq, through_seq, archive_part';

  it('refuses an archive part without its compaction', async () => {
    const ids = await sessionWith(pool, talk(4));
    await expect(attempt(ids, part(5, 1, 2))).rejects.toMatchObject(violates('archive_parts_of_compaction'));
    await compactThrough(pool, ids, 2);
    await expect(attempt(ids, part(1, 1, 3))).rejects.toMatchObject({
      constraint: expect.stringContaining('archive_parts'),
    });
    expect(await listArchiveParts(pool, ids)).toHaveLength(1);
  });

  it.each([
    ['that evicts without an archive part', '0, 0, 1, 2, null', 'compactions_archive_what_they_evict'],
    ['whose archive part does not exist', '0, 0, 1, 2, 9', 'compactions_archive_part'],
    ['whose parent does not exist', '4, 0, 1, 2, 1', 'compactions_parent'],
    ['that names a wrong end of its parent', '1, 1, 2, 3, 9', 'compactions_parent'],
    ['that leaves a gap after its parent', '1, 2, 4, 4, 9', 'compactions_follow_parent'],
    ['that overlaps its parent', '1, 2, 2, 3, 9', 'compactions_follow_parent'],
    ['without a parent', 'null, null, 1, 2, 9', 'compactions_follow_parent'],
    ['that is its own parent', '5, 0, 1, 2, 9', 'compactions_follow_parent'],
  ])('refuses a compaction %s', async (_, values, constraint) => {
    const ids = await sessionWith(pool, talk(4));
    await compactThrough(pool, ids, 2);
    await expect(attempt(ids, compaction(columns, values))).rejects.toMatchObject(violates(constraint));
  });

  it('refuses a compaction that evicts with an empty summary, or without one', async () => {
    const ids = await sessionWith(pool, talk(4));
    const write = (snapshot: string) =>
      attempt(ids, compaction(columns, '0, 0, 1, 2, 9').replace(`'s', '[]'`, `${snapshot}, '[]'`));
    await expect(write(`E' \\n'`)).rejects.toMatchObject(violates('compactions_snapshot_not_empty'));
    await expect(write('null')).rejects.toMatchObject(violates('compactions_evict_by_summary'));
  });

  it('refuses a head that does not exist, that ends elsewhere, or after the log', async () => {
    const ids = await sessionWith(pool, talk(4));
    const head = (generation: number, through: number) =>
      attempt(
        ids,
        `update palimpsest.sessions set generation = ${generation}, through_seq = ${through} ${mine}`,
      );
    await expect(head(1, 2)).rejects.toMatchObject(violates('sessions_head'));
    await expect(head(0, 2)).rejects.toMatchObject(violates('sessions_head'));
    await expect(head(0, 9)).rejects.toMatchObject(violates('sessions_head_within_log'));
  });

  it('refuses a session without its genesis', async () => {
    const { tenant, session } = newSession();
    const lone = pool.query(
      `insert into palimpsest.sessions (tenant_id, session_id, policy, policy_version, tokenizer, budget)
       values ($1, $2, '{}', 1, 'chars/4', 1000)`,
      [tenant, session],
    );
    await expect(lone).rejects.toMatchObject(violates('sessions_head'));
  });
});

describe('invariant 6: a model result is never paid for again', () => {
  it('refuses to delete a digest that a compaction references, and to change any', async () => {
    const ids = await sessionWith(pool, talk(4));
    const paid = { text: 'digest', tokens: 1, calls: 1 };
    const cost = { inputTokens: 10, outputTokens: 2, payerSession: ids.session, payerGeneration: 1 };
    const keys = [`used ${ids.session}`, `unused ${ids.session}`];
    for (const key of keys) await storeDigest(pool, { tenant: ids.tenant, key, ...paid, ...cost });
    await compactThrough(pool, ids, 2, { digestKeys: keys.slice(0, 1) });
    const remove = (key?: string) =>
      pool.query('delete from palimpsest.digests where tenant_id = $1 and key = $2', [ids.tenant, key]);
    await expect(remove(keys[0])).rejects.toMatchObject(violates('compaction_digests_referenced'));
    expect((await remove(keys[1])).rowCount).toBe(1);
    const change = pool.query("update palimpsest.digests set text = 'other' where tenant_id = $1", [
      ids.tenant,
    ]);
    await expect(change).rejects.toMatchObject(restrictViolation);
  });
});
