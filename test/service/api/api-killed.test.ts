/**
 * The API under SIGKILL: it has no state. A job started through it continues without it, repeated turns are stored once, and
 * acknowledged turns are stored.
 */
import { randomBytes } from 'node:crypto';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { HttpPalimpsest } from '../../../src/http-client/index.js';
import { freePort } from '../../../src/runtime/ports.js';
import { commitsOf, fillSessions } from '../../support/backfills.js';
import { openPool } from '../../../src/store/connection/pool.js';
import { program } from '../../support/compiled.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { leashed } from '../../support/leash.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let port: number;
let api: ChildProcess;
let client: HttpPalimpsest;
const token = randomBytes(32).toString('hex');

beforeAll(async () => {
  stack = await startStack();
  port = await freePort();
  api = await startApi();
  client = await HttpPalimpsest.connect({ url: `http://127.0.0.1:${port}`, token });
});

afterAll(async () => {
  api.kill('SIGKILL');
  await stack.stop();
});

async function startApi(): Promise<ChildProcess> {
  const child = spawn(process.execPath, [program('src/cli/main.ts'), 'api', '--port', String(port)], {
    env: {
      ...{ PATH: process.env['PATH'], HOME: process.env['HOME'] },
      DATABASE_URL: stack.databaseUrl,
      TEMPORAL_ADDRESS: stack.temporal.address,
      PALIMPSEST_QUEUE_PREFIX: stack.queuePrefix,
      PALIMPSEST_API_TOKENS: `${stack.queuePrefix}:${token}`,
    },
    stdio: 'ignore',
  });
  leashed(child);
  for (const deadline = Date.now() + 120_000; ;) {
    const ready = await fetch(`http://127.0.0.1:${port}/readyz`).catch(() => null);
    if (ready?.status === 200) return child;
    if (child.exitCode !== null || Date.now() > deadline) throw new Error('the API does not start');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function kill(): Promise<void> {
  const exited = once(api, 'exit');
  api.kill('SIGKILL');
  await exited;
}

/** A client of a server that is killed and restarted: it repeats the call. */
async function again<T>(call: () => Promise<T>): Promise<T> {
  for (const deadline = Date.now() + 120_000; ;) {
    try {
      return await call();
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

test('turns in flight are stored once each, in order, and no acknowledged turn is missing', async () => {
  const turns = dialogue(12);
  const sessions = Array.from({ length: 8 }, (_, index) => `live-${index}`);
  let answered = 0;
  const players = sessions.map(async (session) => {
    for (const [index, messages] of turns.entries()) {
      const turn = { session, turnId: `t-${index}`, messages, policy: smallPolicy };
      const { fromSeq } = await again(() => client.appendTurn(turn));
      expect(fromSeq).toBe(2 * index + 1);
      answered++;
    }
  });
  for (let kills = 0; kills < 2; kills++) {
    const before = answered;
    await expect.poll(() => answered, { interval: 5 }).toBeGreaterThan(before + sessions.length / 2);
    await kill();
    api = await startApi();
  }
  await Promise.all(players);
  for (const session of sessions) {
    const logged = [];
    for await (const { message } of client.replay({ session })) logged.push(message);
    expect(logged).toEqual(turns.flat());
  }
});

test('a backfill continues without the API, and a repeated start is the same job', async () => {
  const pool = openPool(stack.databaseUrl, { max: 4 });
  try {
    await fillSessions(pool, stack.queuePrefix, 60);
    const request = { job: 'j', select: { prefix: 'old-' }, concurrency: 8 };
    await client.startBackfill(request);
    await kill();
    api = await startApi();
    await client.startBackfill(request);
    await kill();
    api = await startApi();
    const report = await again(async () => {
      const found = await client.backfill({ job: 'j' });
      if (found.endedAt === null) throw new Error('not yet');
      return found;
    });
    expect(report).toMatchObject({
      state: 'completed',
      failures: {},
      counts: { selected: 60, compacted: 60, pending: 0, running: 0 },
    });
    const commits = await commitsOf(pool, stack.queuePrefix);
    const old = [...commits].filter(([session]) => session.startsWith('old-'));
    expect(old.map(([, count]) => count)).toEqual(Array.from({ length: 60 }, () => 1));
  } finally {
    await pool.end();
  }
});
