/** `palimpsest import` for people and scripts: its output and its exit codes. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openPool } from '../../support/pool.js';
import { program } from '../../support/compiled.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { talk } from '../../support/store.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(path.join(os.tmpdir(), 'cli-import-'));
let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url, { max: 4 });
});

afterAll(async () => {
  await pool.end();
  await database.drop();
  rmSync(folder, { recursive: true, force: true });
});

function put(name: string, lines: readonly unknown[]): string {
  const file = path.join(folder, name);
  const texts = lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line)));
  writeFileSync(file, texts.join('\n'));
  return file;
}

interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

async function run(
  args: readonly string[],
  { input, env }: { input?: string; env?: object } = {},
): Promise<Ended> {
  const child = spawn(process.execPath, [program('src/cli/main.ts'), 'import', ...args], {
    cwd: root,
    env: { PATH: process.env.PATH, HOME: folder, DATABASE_URL: database.url, ...env },
    stdio: 'pipe',
  });
  const ended: Ended = { code: null, stdout: '', stderr: '' };
  child.stdout.on('data', (text: Buffer) => void (ended.stdout += text.toString()));
  child.stderr.on('data', (text: Buffer) => (ended.stderr += text.toString()));
  child.stdin.end(input ?? '');
  ended.code = await new Promise((resolve) => child.once('close', resolve));
  return ended;
}

const json = (text: string): Record<string, unknown>[] =>
  text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);

test('reports the stored sessions, the refused ones with reasons, and the next step', async () => {
  const bad = Array.from({ length: 25 }, (_, n) => ({
    id: `bad-${n}`,
    messages: [{ role: 'robot', content: 'x' }],
  }));
  const file = put('day.jsonl', [
    { id: 'one', messages: talk(4) },
    { id: 'two', messages: talk(4) },
    '{"id":"cut off',
    ...bad,
    { id: 'last', messages: talk(2) },
  ]);
  const rejects = path.join(folder, 'rejects.jsonl');
  const { code, stdout, stderr } = await run([
    file,
    '--tenant',
    'screen',
    '--prefix',
    'old-',
    '--rejects',
    rejects,
  ]);
  expect(stderr).toBe('');
  expect(code).toBe(1);
  const columns = stdout.split('\n').map((line) => line.split(/ {2,}/).join(' | '));
  expect(columns).toEqual(
    expect.arrayContaining([
      'sessions | number | messages | new',
      'stored | 2 | 6 | 6 | new',
      'duplicate | 1 | 4 | 0 | the same messages under another id',
      'refused | 26 | 0 | 0 | set aside, see below',
      expect.stringMatching(/^29 sessions in \d+\.\d\d s, [\d,.]+ a second$/),
      `${file}:4 | old-bad-0`,
      ' | Input.Invalid: Line 4: messages[0].role "robot" is not known.',
      `and 6 more; all in ${rejects}`,
      'Next: palimpsest backfill start <job> --prefix "old-" compacts those that are over their threshold.',
    ]),
  );
  const rejected = json(readFileSync(rejects, 'utf8'));
  expect(rejected).toHaveLength(26);
  expect(rejected.find(({ line }) => line === 3)).toMatchObject({
    source: file,
    session: 'old-day#3',
    error: { type: 'Input.Invalid', message: expect.stringContaining('Line 3, column') as string },
  });
});

test('prints reports and a final total as JSON, and finds all sessions present the second time', async () => {
  const lines = [
    { id: 'a', messages: talk(3) },
    { id: 'b', messages: talk(5) },
  ];
  // One at a time, because two concurrent ones may be stored and reported in either order.
  const args = ['-', '--json', '--tenant', 'json', '--concurrency', '1'];
  const first = await run(args, { input: lines.map((line) => JSON.stringify(line)).join('\n') });
  expect(first).toMatchObject({ code: 0, stderr: '' });
  expect(json(first.stdout)).toMatchObject([
    { source: '-', line: 1, session: 'a', status: 'stored', format: 'openai-chat', messages: 3, added: 3 },
    { source: '-', line: 2, session: 'b', status: 'stored', messages: 5 },
    { total: { stored: 2, refused: 0, messages: 8, added: 8, dryRun: false } },
  ]);
  const again = await run(args, { input: lines.map((line) => JSON.stringify(line)).join('\n') });
  expect(json(again.stdout).at(-1)).toMatchObject({ total: { stored: 0, present: 2, added: 0 } });
});

test('reads the rows of a query, by default from the same database', async () => {
  await pool.query('create table public.chats (id text, messages jsonb)');
  await pool.query('grant select on public.chats to palimpsest_app');
  await pool.query('insert into public.chats values ($1, $2)', ['c-1', JSON.stringify(talk(2))]);
  const query = 'select id, messages from public.chats';
  for (const from of [[], ['--from', database.url]]) {
    const { code, stdout } = await run([
      '--query',
      query,
      ...from,
      '--json',
      '--tenant',
      `rows-${from.length}`,
    ]);
    expect(code).toBe(0);
    expect(json(stdout)[0]).toMatchObject({ source: 'query', session: 'c-1', status: 'stored', messages: 2 });
  }
});

test('stores nothing in a dry run, and gives new sessions a policy', async () => {
  const file = put('policy.jsonl', [{ id: 'p', messages: talk(2) }]);
  const policy = put('policy.json', [{ contextWindow: 9_000 }]);
  const count = async () =>
    (await pool.query(`select 1 from palimpsest.sessions where tenant_id = 'policy'`)).rowCount;
  const dry = await run([file, '--tenant', 'policy', '--dry-run']);
  expect(dry).toMatchObject({ code: 0 });
  expect(dry.stdout).toMatch(/^would be +number/);
  expect(dry.stdout).not.toContain('Next:');
  expect(await count()).toBe(0);
  expect((await run([file, '--tenant', 'policy', '--policy', `@${policy}`])).code).toBe(0);
  const { rows } = await pool.query(
    `select policy::jsonb -> 'session' as policy from palimpsest.sessions where tenant_id = 'policy'`,
  );
  expect(rows).toEqual([{ policy: { contextWindow: 9_000 } }]);
});

test.each([
  [[], 'Nothing to import was named'],
  [['nowhere.jsonl'], 'The file does not exist: nowhere.jsonl'],
  [['-', '--format', 'word'], '--format must be one of openai-chat'],
  [['-', '--concurrency', '0'], '--concurrency must be a whole number from 1 to 64'],
  [['-', '--policy', '{"contextWindow":-1}'], 'contextWindow'],
  [['-', '--rejects', '/nowhere/at/all'], '--rejects: the folder /nowhere/at does not exist'],
  [['--from', 'postgresql://x/y'], '--from names a database'],
  [['--query', 'selec'], 'The query failed: syntax error'],
])('refuses %j', async (args, message) => {
  const { code, stdout, stderr } = await run(args);
  expect(stderr).toContain(message);
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
});

test('distinguishes a database that is away from one that does not exist', async () => {
  const away = await run(['-'], { env: { DATABASE_URL: 'postgresql://127.0.0.1:1/none' } });
  expect(away).toMatchObject({ code: 1, stderr: expect.stringContaining('Store.Unavailable') as string });
  const { code, stderr } = await run(['-'], { env: { DATABASE_URL: '', PALIMPSEST_DATA: folder } });
  expect(stderr).toContain('DATABASE_URL is not set');
  expect(code).toBe(2);
});

test('counts sessions that end in a user message larger than their budget, with the option that helps', async () => {
  const large = (id: string) => ({
    id,
    messages: [...talk(2), { role: 'user', content: 'an observation '.repeat(9_000) }],
  });
  const policy = put('window.json', ['{"contextWindow": 8000}']);
  const shown = await run([
    put('large.jsonl', [large('large-1'), { id: 'small-1', messages: talk(2) }]),
    '--policy',
    policy,
  ]);
  expect(shown.code).toBe(0);
  expect(shown.stdout).toMatch(/1 session ended in a user message larger than the budget/);
  expect(shown.stdout).toContain('reduce.newestUserMessage');
  const open = put('open.json', ['{"contextWindow": 8000, "reduce": {"newestUserMessage": true}}']);
  const [report] = json(
    (await run([put('open.jsonl', [large('large-2')]), '--policy', open, '--json'])).stdout,
  );
  expect(report).toMatchObject({ session: 'large-2', status: 'stored' });
  expect(report).not.toHaveProperty('newestUser');
});
