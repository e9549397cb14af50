/** Commands that are killed with SIGKILL in the middle: a repeated command does the rest. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { stopPostgres } from '../../../src/runtime/postgres.js';
import { stopTemporal } from '../../../src/runtime/temporal.js';
import { openPool } from '../../support/pool.js';
import { CliProcess } from '../../support/cli.js';
import { createDatabase } from '../../support/database.js';
import { replayed, talk } from '../../support/store.js';

const folder = mkdtempSync(path.join(tmpdir(), 'cli-killed-'));
const dataDir = path.join(folder, 'data');

afterAll(async () => {
  await Promise.all([stopPostgres(dataDir), stopTemporal(dataDir)]);
  rmSync(folder, { recursive: true, force: true });
});

test('`dev`, started again, continues and finishes', async () => {
  const start = () => new CliProcess(['dev', '--once', '--window', '15000'], { PALIMPSEST_DATA: dataDir });
  const killed = start();
  await killed.shows(/generation 2/);
  killed.child.kill('SIGKILL');
  expect(await killed.ended).toMatchObject({ signal: 'SIGKILL' });
  const { code, stdout } = await start().ended;
  expect(stdout).toMatch(/already running/);
  expect(stdout).toMatch(/continues: \d+ of 41 turns are stored already/);
  expect((stdout.match(/^│ \d │ trigger │ extractive/gm) ?? []).length).toBeGreaterThanOrEqual(3);
  expect(stdout).toMatch(/^replay: 147 messages, identical$/m);
  expect(code).toBe(0);
});

test('`import`, started again, stores exactly the rest', async () => {
  const database = await createDatabase();
  const pool = openPool(database.url, { max: 4 });
  try {
    const sessions = Array.from({ length: 300 }, (_, n) => ({
      id: `s-${n}`,
      messages: talk(4 + (n % 17), 5 + n),
    }));
    const file = path.join(folder, 'many.jsonl');
    writeFileSync(file, sessions.map((session) => JSON.stringify(session)).join('\n'));
    const start = (tenant: string) =>
      new CliProcess(['import', file, '--json', '--tenant', tenant, '--concurrency', '8'], {
        DATABASE_URL: database.url,
      });
    const killed = start('killed');
    await killed.shows(/(?:\n.*){60}/);
    killed.child.kill('SIGKILL');
    expect(await killed.ended).toMatchObject({ signal: 'SIGKILL' });
    const again = await start('killed').ended;
    expect(again.code).toBe(0);
    const last = again.stdout.trimEnd().split('\n').at(-1) ?? '';
    const { total } = JSON.parse(last) as { total: Record<string, number> };
    expect(total).toMatchObject({ refused: 0, duplicate: 0 });
    expect(total.present).toBeGreaterThan(50);
    expect(total.present! + total.extended! + total.stored!).toBe(300);
    expect(total.added).toBeLessThan(total.messages!);
    for (const { id, messages } of sessions) {
      const stored = await replayed(pool, { tenant: 'killed', session: id });
      expect(stored.map(({ message }) => message)).toEqual(messages);
    }
    const turns = 'select count(*)::int as count from palimpsest.turns where tenant_id = $1';
    const counted = await pool.query<{ count: number }>(turns, ['killed']);
    // As many as without the interruption.
    expect((await start('whole').ended).code).toBe(0);
    expect((await pool.query<{ count: number }>(turns, ['whole'])).rows).toEqual(counted.rows);
  } finally {
    await pool.end();
    await database.drop();
  }
});
