/**
 * A worker that is stopped in the middle of a commit (SIGSTOP: a paused container, a long collection of garbage) while its
 * session is erased and begun again: when it continues, the new session has no trace of the old one.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import type { Pool } from 'pg';
import { describe, expect, inject, test } from 'vitest';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool, patient, roleUrls } from '../../support/pool.js';
import { program } from '../../support/compiled.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { leashed } from '../../support/leash.js';
import { rowsOfSession } from '../../support/rows.js';
import { appendTurns } from '../../support/sessions.js';
import { sized } from '../../support/size.js';
import { startStack, type Stack } from '../../support/stack.js';
import type { DoomedWorker } from '../../support/worker-process.js';

const policy: PolicyInput = { ...smallPolicy, summary: { method: 'extractive' } };
const secret = 'only the erased session says so';

const old = dialogue(18).map((turn) =>
  turn.map((message) => ({ ...message, content: `${secret}. ${String(message.content)}` })),
);

/** Short of its trigger, and longer than what the commit of the old session evicts. */
const anew = dialogue(30, 20);

interface Worker {
  process: ChildProcess;
  /** The next line that it says of itself. */
  said(): Promise<string>;
}

async function startWorker(stack: Stack, stop: DoomedWorker['stop']): Promise<Worker> {
  const settings: DoomedWorker = {
    databaseUrl: stack.databaseUrl,
    roles: roleUrls(stack.databaseUrl),
    address: stack.temporal.address,
    queuePrefix: stack.queuePrefix,
    workflowBundlePath: inject('workflowBundlePath'),
    modelUrl: stack.model.url,
    // It keeps its transaction however long it is stopped.
    timeouts: patient,
    ...(stop ? { stop } : {}),
  };
  const worker = spawn(process.execPath, [program('test/support/worker-process.ts')], {
    env: { ...process.env, TEMPORAL_DEBUG: '', WORKER: JSON.stringify(settings) },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  leashed(worker);
  const lines = createInterface({ input: worker.stdout })[Symbol.asyncIterator]();
  const said = async () => {
    for (;;) {
      const { value, done } = await lines.next();
      if (done) throw new Error('the worker has ended');
      // The SDK also logs to this stream.
      const [, word] = /^worker: (.*)/.exec(value) ?? [];
      if (word !== undefined) return word;
    }
  };
  expect(await said()).toBe('ready');
  return { process: worker, said };
}

async function waitsForLock(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ count: number }>(
    `select count(*)::int as count from pg_stat_activity
     where datname = current_database() and wait_event_type = 'Lock'`,
  );
  return rows[0]?.count ?? 0;
}

describe('a session erased and begun again while its worker is stopped in a commit has no trace of the old one,', () => {
  async function play(before: 'begin' | 'commit', times: number): Promise<void> {
    const stack = await startStack({ worker: false });
    const pool = openPool(stack.databaseUrl);
    const worker = await startWorker(stack, { activity: 'commit', before, sessions: 'stopped-' });
    const { palimpsest, queuePrefix: tenant } = stack;
    try {
      for (let round = 1; round <= times; round++) {
        const session = `stopped-${round}`;
        await appendTurns(palimpsest, session, old, { policy });
        expect(await worker.said()).toBe('stopped');
        const erasing = palimpsest.erase({ session });
        if (before === 'begin') expect(await erasing).toMatchObject({ messages: 36, generations: 0 });
        // It holds the session's row: the erasure comes after its commit.
        else await expect.poll(() => waitsForLock(pool)).toBe(1);
        if (before === 'begin') await appendTurns(palimpsest, session, anew, { policy });
        worker.process.kill('SIGCONT');
        expect(await worker.said()).toBe(before === 'begin' ? 'refused' : 'done');
        if (before === 'commit') {
          expect(await erasing).toMatchObject({ messages: 36, generations: 1 });
          await appendTurns(palimpsest, session, anew, { policy });
        }
        const control = `control-${round}`;
        await appendTurns(palimpsest, control, anew, { policy });
        const rows = await rowsOfSession(pool, { tenant, session });
        expect(rows).toEqual(await rowsOfSession(pool, { tenant, session: control }));
        expect(JSON.stringify(rows)).not.toContain(secret);
      }
      await goesOn(stack, pool, `stopped-${times}`, `control-${times}`);
    } finally {
      const exited = once(worker.process, 'exit');
      worker.process.kill('SIGKILL');
      await exited;
      await pool.end();
      await stack.stop();
    }
  }

  /** Both are compacted, and come to the same. */
  async function goesOn(
    { palimpsest, queuePrefix: tenant }: Stack,
    pool: Pool,
    session: string,
    control: string,
  ) {
    for (const one of [session, control]) {
      expect(await palimpsest.compact({ session: one })).toMatchObject({ generation: 1 });
      await palimpsest.settled({ session: one });
      // Indexes the remaining messages for the search.
      await palimpsest.search({ session: one, query: 'ledger' });
    }
    const rows = await rowsOfSession(pool, { tenant, session });
    expect(rows).toEqual(await rowsOfSession(pool, { tenant, session: control }));
    expect(JSON.stringify(rows)).not.toContain(secret);
  }

  const rounds = sized(4, 32);
  test(`${rounds} times after its reads`, { timeout: 600_000 }, () => play('begin', rounds));
  test('before its COMMIT, which the erasure waits for', () => play('commit', sized(1, 3)));
});
