/**
 * SIGTERM ends a worker without loss: it takes no new work, lets steps finish within the grace time, and another worker repeats
 * the aborted ones.
 */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { startCliWorker, type CliWorker } from '../../support/cli-worker.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
const workers: CliWorker[] = [];

const started = async (env: Record<string, string>): Promise<CliWorker> => {
  const worker = await startCliWorker(stack, env);
  workers.push(worker);
  return worker;
};

beforeEach(async () => void (stack = await startStack({ worker: false })));

afterEach(async () => {
  for (const worker of workers.splice(0)) worker.signal('SIGKILL');
  await stack.stop();
});

/** A session whose compaction is asking the model, which does not answer yet. */
async function asking(session: string): Promise<void> {
  stack.model.hold();
  for (const [index, messages] of dialogue(20).entries())
    await stack.palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy: smallPolicy });
  await stack.model.waitForRequests(1);
}

test('a model call that ends within the grace time is kept, and the worker leaves with 0', async () => {
  const worker = await started({ PALIMPSEST_WORKER_GRACE_MS: '20000' });
  await asking('kept');
  worker.signal('SIGTERM');
  await expect.poll(async () => (await worker.page('/readyz')).status).toBe(503);
  expect((await worker.page('/healthz')).status).toBe(200);
  const asked = stack.model.requests.length;
  stack.model.release();
  expect(await worker.exited).toBe(0);
  // Every call it had begun came to its end, and nothing was begun afterwards.
  expect(stack.model.requests.slice(0, asked).map(({ answered }) => answered)).toEqual(
    Array(asked).fill(200),
  );
  expect(stack.model.requests.length).toBe(asked);
  expect(worker.log().map(({ msg }) => msg)).toContain('worker has stopped');

  await started({});
  await stack.palimpsest.settled({ session: 'kept' });
  expect(await stack.palimpsest.compactions({ session: 'kept' })).toMatchObject([{ method: 'model' }]);
  expect(stack.model.paidTwice()).toEqual([]);
});

test('a longer model call is aborted after the grace time, and repeated by another worker', async () => {
  const worker = await started({ PALIMPSEST_WORKER_GRACE_MS: '500' });
  await asking('aborted');
  const asked = stack.model.inFlight();
  worker.signal('SIGTERM');
  // The calls are held: it does not wait for them.
  expect(await worker.exited).toBe(0);
  await stack.model.waitUntil(() => stack.model.inFlight() === 0, 'the aborted calls');
  expect(stack.model.requests.filter(({ aborted }) => aborted)).toHaveLength(asked);

  stack.model.release();
  await started({});
  await stack.palimpsest.settled({ session: 'aborted' });
  const [compaction] = await stack.palimpsest.compactions({ session: 'aborted' });
  expect(compaction).toMatchObject({ generation: 1, method: 'model' });
  expect(stack.model.paidTwice()).toEqual([]);
  const { lastError } = await stack.palimpsest.status({ session: 'aborted' });
  expect(lastError).toBeNull();
});

test('a session continues at another worker while the first one stops', async () => {
  const first = await started({});
  await asking('handed over');
  const second = await started({});
  stack.model.release(1);
  first.signal('SIGTERM');
  stack.model.release();
  expect(await first.exited).toBe(0);
  await stack.palimpsest.settled({ session: 'handed over' });
  expect(await stack.palimpsest.compactions({ session: 'handed over' })).toMatchObject([{ method: 'model' }]);
  expect(stack.model.paidTwice()).toEqual([]);
  second.signal('SIGTERM');
  expect(await second.exited).toBe(0);
});
