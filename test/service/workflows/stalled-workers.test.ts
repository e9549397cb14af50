/**
 * Invariant 6 under SIGSTOP: the server gives up the step of a worker that stalls during a model call. When the worker continues,
 * the next attempt uses the answer of the call that was made.
 */
import { once } from 'node:events';
import { test } from 'vitest';
import { connectClient } from '../../../src/temporal/connection.js';
import { compactionWorkflowId } from '../../../src/temporal/names.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { contentFilter, ok } from '../../support/model-replies.js';
import { spawnWorker } from '../../support/spawned-worker.js';
import { startStack } from '../../support/stack.js';

const session = 's-1';

test.concurrent.for([
  { name: 'a summary that came meanwhile', script: ok(), answered: 'meanwhile', method: 'model' },
  {
    name: 'a refusal that came meanwhile',
    script: contentFilter(),
    answered: 'meanwhile',
    method: 'extractive',
  },
  { name: 'a summary that comes later', script: ok(), answered: 'later', method: 'model' },
])('$name is paid once', async ({ script, answered, method }, { expect: check }) => {
  const stack = await startStack({ worker: false });
  const { palimpsest, model } = stack;
  const client = await connectClient(stack.temporal);
  const worker = spawnWorker(stack);
  const exited = once(worker, 'exit');
  try {
    const compaction = client.workflow.getHandle(
      compactionWorkflowId({ tenant: stack.queuePrefix, session }, 1),
    );
    const secondAttempt = async () => {
      const { raw } = await compaction.describe();
      return (raw.pendingActivities ?? [])
        .filter(({ attempt }) => attempt === 2)
        .map(({ state }) => (Number(state) === 2 ? 'started' : 'scheduled'));
    };
    model.reply(script);
    model.hold();
    await palimpsest.appendTurn({
      ...{ session, turnId: 't', policy: smallPolicy },
      messages: dialogue(18).flat(),
    });
    await model.waitForRequests(1);
    worker.kill('SIGSTOP');
    if (answered === 'meanwhile') {
      model.release();
      await model.waitUntil(() => model.requests[0]?.answered === 200, 'the answer');
    }
    await check.poll(secondAttempt).toHaveLength(1);
    worker.kill('SIGCONT');
    if (answered === 'later') {
      await check.poll(secondAttempt).toEqual(['started']);
      model.release();
    }
    await palimpsest.settled({ session });
    check(model.requests.map(({ answered }) => answered)).toEqual([200]);
    check(await palimpsest.compactions({ session })).toMatchObject([{ generation: 1, method }]);
  } finally {
    worker.kill('SIGKILL');
    await exited;
    await client.connection.close();
    await stack.stop();
  }
});
