/** `verify` on a damaged database, with an interruption, and with a reader that closes the pipe; large outputs stream. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openPool } from '../../support/pool.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { eraseSession } from '../../../src/store/sessions/erase.js';
import { compactThrough } from '../../support/store.js';
import { CliProcess, cliOf, linesOf, stackEnv } from '../../support/cli.js';
import { program } from '../../support/compiled.js';
import { dialogue, words } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let cli: ReturnType<typeof cliOf>;

beforeAll(async () => {
  stack = await startStack({ worker: false });
  cli = cliOf(stack);
  const pool = openPool(stack.databaseUrl);
  const append = (session: string, turnId: string, messages: unknown) =>
    appendTurn(pool, { tenant: stack.queuePrefix, session, turnId, messages });
  for (const session of ['a', 'b', 'c'])
    for (const [index, messages] of dialogue(3, 20).entries()) await append(session, `t-${index}`, messages);
  // Long enough that reading it takes a while, and that a pipe fills up.
  for (let turn = 0; turn < 20; turn++)
    await append(
      'long',
      `t-${turn}`,
      Array.from({ length: 500 }, (_, index) => ({
        role: index % 2 === 0 ? 'user' : 'assistant',
        content: words(120, index),
      })),
    );
  await pool.end();
});

afterAll(() => stack?.stop());

test('checks every hash of all sessions, or of one', async () => {
  const all = await cli.run(['verify']);
  expect(all.stdout).toMatch(
    /^4 sessions, 10,018 messages in [\d.]+ s: every hash matches, every context is valid\n$/,
  );
  expect(all.code).toBe(0);
  expect(await cli.json(['verify', 'a'])).toMatchObject({
    ...{ sessions: 1, messages: 6, damaged: 0, damage: [], identical: true },
    ...{ invalid: 0, invalidContexts: [], valid: true },
  });
});

test('Ctrl-C ends it with 130', async () => {
  const running = cli.start(['verify', ...Array.from({ length: 600 }, () => 'long')]);
  // Told by a line on stderr every few seconds: so it is at work.
  await running.shows(/messages · /);
  running.child.kill('SIGINT');
  const { code, signal, stdout, stderr } = await running.ended;
  expect({ code, signal, stdout }).toEqual({ code: 130, signal: null, stdout: '' });
  expect(stderr).toMatch(/[\d,]+ of [\d,]+ messages · [\s\S]*interrupted\n$/);
});

test('a reader that closes the pipe ends a long output silently', async () => {
  const line = `'${process.execPath}' '${program('src/cli/main.ts')}' replay long --json --tenant ${stack.queuePrefix} | head -n 2; echo "\${PIPESTATUS[0]}"`;
  const shell = spawn('bash', ['-c', line], {
    cwd: fileURLToPath(new URL('../../..', import.meta.url)),
    env: { ...process.env, ...stackEnv(stack) },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [stdout, stderr] = await Promise.all([textOf(shell.stdout), textOf(shell.stderr)]);
  const lines = stdout.trimEnd().split('\n');
  expect(lines.slice(0, 2).map((text) => (JSON.parse(text) as { seq: number }).seq)).toEqual([1, 2]);
  expect(lines[2]).toBe('0');
  expect(stderr.replace(/^npm warn.*\n/gm, '')).toBe('');
});

test('a context that its provider would refuse is a separate kind of finding, with exit code 1', async () => {
  const pool = openPool(stack.databaseUrl);
  const ids = { tenant: stack.queuePrefix, session: 'refused' };
  try {
    for (const [index, messages] of dialogue(3, 20).entries())
      await appendTurn(pool, { ...ids, turnId: `t-${index}`, messages });
    await compactThrough(pool, ids, 2);
    const head = [
      { role: 'tool', tool_call_id: 'x', content: 'Lost.' },
      { role: 'assistant', content: 'Understood.' },
    ];
    await unguarded(
      `update palimpsest.compactions set head = $3 where tenant_id = $1 and session_id = $2 and generation = 1`,
      [ids.tenant, ids.session, JSON.stringify(head)],
    );
    const { code, stdout } = await cli.run(['verify', 'refused']);
    expect(stdout).toMatch(/^invalid {2}refused: its context as openai-chat: message \d+: .+$/m);
    expect(stdout).toMatch(/^1 session, 6 messages in .*: 1 context invalid$/m);
    expect(code).toBe(1);
    const json = await cli.run(['verify', 'refused', '--json']);
    expect(linesOf(json.stdout)).toMatchObject([
      { damaged: 0, identical: true, invalid: 1, valid: false, invalidContexts: [{ session: 'refused' }] },
    ]);
  } finally {
    await eraseSession(pool, ids);
    await pool.end();
  }
});

/** A change that the database would refuse, but that a broken disk can cause. */
async function unguarded(text: string, values: unknown[] = []): Promise<void> {
  const client = new pg.Client({ connectionString: stack.ownerUrl });
  await client.connect();
  await client.query('set session_replication_role = replica');
  await client.query(text, values);
  await client.end();
}

async function textOf(stream: NodeJS.ReadableStream): Promise<string> {
  let text = '';
  for await (const chunk of stream) text += String(chunk);
  return text;
}

test('memory does not grow with the length of the stream', async () => {
  const running = new CliProcess(['replay', 'long', '--json', '--tenant', stack.queuePrefix], {
    ...stackEnv(stack),
    NODE_OPTIONS: '--max-old-space-size=96',
  });
  const { code, stdout } = await running.ended;
  expect(linesOf(stdout)).toHaveLength(10_000);
  expect(code).toBe(0);
});

test('damage gives exit code 1 with session, message and intact part; the other sessions are still read', async () => {
  await unguarded('alter table palimpsest.messages drop constraint messages_sha256');
  await unguarded(
    `update palimpsest.messages set body = replace(body, 'Request 2', 'Request 7') where session_id = 'b' and seq = 3`,
  );
  await unguarded(`delete from palimpsest.messages where session_id = 'c' and seq = 6`);
  const { code, stdout, stderr } = await cli.run(['verify']);
  expect(code).toBe(1);
  expect(stdout).toMatch(/^damaged {2}b: .*\b3\b.*\(the 2 messages before are intact\)$/m);
  expect(stdout).toMatch(/^damaged {2}c: .*$/m);
  expect(stdout).toMatch(/^4 sessions, [\d,]+ messages in .*: 2 sessions damaged$/m);
  expect(stderr).toMatch(/backup/);
  const json = await cli.run(['verify', '--json']);
  expect(linesOf(json.stdout)).toMatchObject([{ sessions: 4, damaged: 2, identical: false }]);
  expect(json.code).toBe(1);
});
