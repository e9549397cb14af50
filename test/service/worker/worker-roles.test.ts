/** A worker serves the queues of its roles and opens only what they need; together they are one worker. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startWorker, type WorkerSettings } from '../../../src/worker/worker.js';
import { ended, fillSessions, openBackfills, until } from '../../support/backfills.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
beforeAll(async () => void (stack = await startStack({ worker: false })));
afterAll(() => stack.stop());

const withoutDatabase = ({ databaseUrl: _databaseUrl, ...settings }: WorkerSettings): WorkerSettings =>
  settings;

const withoutModel = (settings: WorkerSettings): WorkerSettings => ({ ...settings, model: {} });

test('one process for each role compacts live and old sessions; only the model worker has a key', async () => {
  const { settings, palimpsest, model } = stack;
  const bench = await openBackfills(stack);
  const workers = await Promise.all([
    startWorker({ ...withoutModel(withoutDatabase(settings)), roles: ['workflow'] }),
    startWorker({ ...withoutModel(settings), roles: ['database'] }),
    startWorker({ ...settings, roles: ['model'] }),
  ]);
  try {
    for (const worker of workers) {
      expect(await worker.readiness()).toEqual({ polling: true, postgres: null, temporal: null });
    }
    const session = 'by-roles';
    for (const [index, messages] of dialogue(20).entries())
      await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy: smallPolicy });
    await palimpsest.settled({ session });
    const [first] = await palimpsest.compactions({ session });
    expect(first).toMatchObject({ method: 'model' });
    expect(model.requests.length).toBeGreaterThan(0);

    // A backfill takes none of their slots: without a worker of its role nothing of it happens.
    const old = await fillSessions(bench.pool, stack.queuePrefix, 3);
    await bench.backfills.start({ job: 'old', select: { prefix: 'old-' } });
    const more = dialogue(40).slice(20);
    for (const [index, messages] of more.entries())
      await palimpsest.appendTurn({ session, turnId: `more-${index}`, messages });
    await palimpsest.settled({ session });
    expect((await palimpsest.compactions({ session })).length).toBeGreaterThan(1);
    expect((await bench.backfills.report({ job: 'old' })).counts.selected).toBe(0);

    workers.push(await startWorker({ ...withoutModel(settings), roles: ['backfill'] }));
    const { state, counts } = await until(bench.backfills, 'old', ended);
    expect({ state, compacted: counts.compacted }).toEqual({ state: 'completed', compacted: old.length });
    const [commit] = await palimpsest.compactions({ session: old[0]! });
    expect(commit).toMatchObject({ method: 'model', reason: 'backfill' });
  } finally {
    await bench.close();
    await Promise.all(workers.map((worker) => worker.shutdown()));
  }
  expect((await workers[0]?.readiness())?.polling).toBe(false);
});

describe('a missing or wrong setting is reported before anything starts', () => {
  test.each([
    [
      { roles: ['database' as const], databaseUrl: undefined },
      'DATABASE_URL',
      /any role other than workflow/,
    ],
    [{ roles: [] }, 'worker.roles', /needs a role/],
    [{ roles: ['cook' as 'model'] }, 'worker.roles', /no role "cook"/],
    [{ modelCalls: 0 }, 'modelCalls', /modelCalls/],
    [{ backfillShare: 2 }, 'backfillShare', /backfillShare/],
  ])('%j', async (own, path, reason) => {
    const starting = startWorker({ ...stack.settings, ...own });
    await expect(starting).rejects.toMatchObject({ type: 'Input.Invalid', path });
    await expect(starting).rejects.toThrow(reason);
  });
});
