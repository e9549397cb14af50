/** The workflows of live sessions and of backfills run in one thread, which may have been started before. */
import { once } from 'node:events';
import { setImmediate as noted } from 'node:timers/promises';
import type { Worker as Thread } from 'node:worker_threads';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from 'vitest';
import sdk from '@temporalio/worker/package.json' with { type: 'json' };
import { startWorker } from '../../../src/worker/worker.js';
import { knownSdk, startWorkflowThread, takeWorkflowThread } from '../../../src/worker/workflow-thread.js';
import { ended, fillSessions, openBackfills, until } from '../../support/backfills.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
beforeAll(async () => void (stack = await startStack({ worker: false })));
afterAll(() => stack.stop());

let threads: Thread[];
const note = (thread: Thread) => void threads.push(thread);
beforeEach(() => {
  threads = [];
  // In the SDK's debug mode, workflows have no thread.
  vi.stubEnv('TEMPORAL_DEBUG', '');
  process.on('worker', note);
});
afterEach(() => {
  process.off('worker', note);
  vi.unstubAllEnvs();
});

test('the thread that is started early is that of the installed SDK', () => {
  expect(
    knownSdk,
    'Compare lib/workflow/threaded-vm.js of both versions of @temporalio/worker with src/worker/workflow-workers.ts, run the ' +
      'tests of test/service/worker, and set knownSdk. Until then the SDK starts its thread later.',
  ).toBe(sdk.version);
});

test.each([
  { name: 'early', start: startWorkflowThread, before: 1 },
  { name: 'with the worker', start: () => undefined, before: 0 },
])('one thread, started $name, compacts live and old sessions and ends with the worker', async (one) => {
  one.start();
  await noted();
  expect(threads).toHaveLength(one.before);
  const worker = await startWorker(stack.settings);
  expect(threads.map(({ resourceLimits }) => resourceLimits?.maxYoungGenerationSizeMb)).toEqual([6]);
  const exits = threads.map((thread) => once(thread, 'exit'));
  const bench = await openBackfills(stack);
  try {
    const { palimpsest } = stack;
    const session = `live ${one.name}`;
    for (const [index, messages] of dialogue(20).entries())
      await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy: smallPolicy });
    await palimpsest.settled({ session });
    expect(await palimpsest.compactions({ session })).not.toEqual([]);

    const prefix = `old-${one.before}-`;
    await fillSessions(bench.pool, stack.queuePrefix, 2, { prefix });
    await bench.backfills.start({ job: prefix, select: { prefix } });
    expect((await until(bench.backfills, prefix, ended)).counts.compacted).toBe(2);
  } finally {
    await bench.close();
    await worker.shutdown();
  }
  await Promise.all(exits);
});

test('a thread is taken once', async () => {
  startWorkflowThread();
  startWorkflowThread();
  await noted();
  expect(threads).toHaveLength(1);
  const thread = takeWorkflowThread();
  expect(thread).toBe(threads[0]);
  expect(takeWorkflowThread()).toBeUndefined();
  await thread?.terminate();
});
