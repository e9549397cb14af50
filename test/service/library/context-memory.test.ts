/** A read of a context loads a bounded number of bytes, and tenants share the memory of their reads. */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { defaultTurnLimits } from '../../../src/conversation/turn-limits.js';
import { PalimpsestError } from '../../../src/errors.js';
import type { Connections } from '../../../src/library/connections.js';
import { readContext } from '../../../src/library/context.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { asCaller } from '../../../src/store/connection/places.js';
import { readContextLocked, readContextSource } from '../../../src/store/reading/context.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { openPool } from '../../support/pool.js';
import { compactThrough, newSession, sessionWith } from '../../support/store.js';

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

const text = (bytes: number) => ({ role: 'user' as const, content: 'x'.repeat(bytes) });
const tooLarge = { type: 'Input.TooLarge', path: 'session', details: { maxBytes: 500_000 } };

test('a tail beyond the limit is refused before any message is loaded', async () => {
  const ids = await sessionWith(pool, [{ role: 'system', content: 's'.repeat(200_000) }, text(200_000)]);
  const loaded = await readContextSource(pool, ids, 'own', 500_000);
  expect(loaded.source.tail).toHaveLength(1);
  await appendTurn(pool, { ...ids, turnId: 'second', messages: [text(200_000)] });
  for (const read of [
    readContextSource(pool, ids, 'own', 500_000),
    readContextLocked(pool, ids, 'own', 500_000, () => Promise.resolve({ reductions: [] })),
  ])
    await expect(read).rejects.toMatchObject(tooLarge);
  await expect(readContextSource(pool, ids, 'own', 500_000)).rejects.toThrow(/\b600\d{3} bytes/);
  // After a compaction, the same session is read again.
  await compactThrough(pool, ids, 2);
  expect((await readContextSource(pool, ids, 'own', 500_000)).source.tail).toHaveLength(1);
});

test('a client reads no more than twice the bytes of the largest turn', async () => {
  const ids = newSession();
  const policy = { tokenizer: 'chars' as const };
  for (const turnId of ['a', 'b', 'c'])
    await appendTurn(pool, { ...ids, turnId, policy, messages: [text(23_000_000)] });
  const connections = { pool, turnLimits: defaultTurnLimits } as Connections;
  await expect(readContext(connections, ids, { budget: 100_000_000 })).rejects.toMatchObject({
    ...tooLarge,
    details: { maxBytes: 64 * 1024 * 1024 },
  });
});

test('a read holds its bytes for its tenant before it loads them', async () => {
  const ids = await sessionWith(pool, [text(100_000)]);
  const held: number[] = [];
  let most = Infinity;
  const caller = {
    tenant: ids.tenant,
    lane: 'hot' as const,
    hold(bytes: number) {
      held.push(bytes);
      if (bytes > most) throw new PalimpsestError('Tenant.LimitReached', 'no memory left');
    },
  };
  const read = () => asCaller(caller, () => readContextSource(pool, ids, 'own', 2_000_000));
  expect((await read()).source.tail).toHaveLength(1);
  expect(held).toEqual([]);
  await appendTurn(pool, { ...ids, turnId: randomUUID(), messages: [text(900_000)] });
  expect((await read()).source.tail).toHaveLength(2);
  expect(held).toHaveLength(1);
  expect(held[0]).toBeGreaterThan(1_000_000);
  most = 1_000_000;
  await expect(read()).rejects.toMatchObject({ type: 'Tenant.LimitReached' });
});

test('messages are measured only if the session has more bytes than may be read', async () => {
  const ids = await sessionWith(pool, [text(1_000)]);
  const { tail } = (await readContextSource(pool, ids, 'own', 2_000)).source;
  await pool.query(
    `begin; select set_config('palimpsest.tenant', '${ids.tenant}', true);
     update palimpsest.sessions set stored_bytes = 1 where session_id = '${ids.session}'; commit`,
  );
  expect((await readContextSource(pool, ids, 'own', 2)).source.tail).toEqual(tail);
});
