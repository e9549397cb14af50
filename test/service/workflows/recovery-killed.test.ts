/**
 * Invariants 2, 3 and 6 under SIGKILL: if a worker dies at any step of a compaction, the next worker finishes it with one
 * archive part and one head, no stored answer is paid again, and the context stays unchanged until the commit.
 */
import { once } from 'node:events';
import { describe, expect, test } from 'vitest';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { spawnWorker } from '../../support/spawned-worker.js';
import { startStack, type Stack } from '../../support/stack.js';
import type { DoomedWorker } from '../../support/worker-process.js';

const session = 's-1';

/** Small chunks: the evicted range takes several, and their digests a consolidation. */
const policy = { ...smallPolicy, summary: { chunkTokens: 500, concurrency: 2 } };

async function fill(stack: Stack): Promise<void> {
  for (const [index, messages] of dialogue(18).entries()) {
    await stack.palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
  }
}

async function expectOneCompaction(stack: Stack): Promise<void> {
  const { palimpsest } = stack;
  await palimpsest.settled({ session });
  const compactions = await palimpsest.compactions({ session });
  expect(compactions.map(({ generation, method }) => [generation, method])).toEqual([[1, 'model']]);
  expect(await palimpsest.archive({ session })).toHaveLength(1);
  const context = await palimpsest.context({ session });
  expect(context.generation).toBe(1);
  const replayed = [];
  for await (const { message } of palimpsest.replay({ session })) replayed.push(JSON.stringify(message));
  expect(replayed).toEqual(
    dialogue(18)
      .flat()
      .map((message) => JSON.stringify(message)),
  );
}

const deaths: NonNullable<DoomedWorker['die']>[] = [
  { when: 'before', activity: 'measure', nth: 1 },
  { when: 'after', activity: 'measure', nth: 1 },
  { when: 'before', activity: 'summarizeChunk', nth: 3 },
  { when: 'after', activity: 'summarizeChunk', nth: 3 },
  { when: 'before', activity: 'consolidate', nth: 1 },
  { when: 'within', activity: 'consolidate', nth: 1 },
  { when: 'after', activity: 'consolidate', nth: 1 },
];

describe.concurrent('invariant 6: a worker killed at any step pays nothing twice and commits once', () => {
  test.for(deaths)('killed $when $activity #$nth', async (die) => {
    const stack = await startStack({ worker: false });
    try {
      const doomed = spawnWorker(stack, { die });
      const exited = once(doomed, 'exit');
      await fill(stack);
      const before = await stack.palimpsest.context({ session });
      const [, signal] = (await exited) as [number | null, string | null];
      expect(signal).toBe('SIGKILL');

      const committed = die.activity === 'consolidate' && die.when === 'after';
      const during = await stack.palimpsest.context({ session });
      expect(during.generation).toBe(committed ? 1 : 0);
      if (!committed) expect(during.messages).toEqual(before.messages);

      await stack.work();
      await expectOneCompaction(stack);
      // Two concurrent chunks: only requests in flight at the kill are repeated, and no stored answer.
      const asked = stack.model.requests.length;
      const chunks = (await stack.palimpsest.compactions({ session }))[0]!.chunks;
      expect(chunks).toBeGreaterThanOrEqual(4);
      expect(asked).toBeGreaterThanOrEqual(chunks + 1);
      expect(asked).toBeLessThanOrEqual(chunks + 1 + policy.summary.concurrency);
    } finally {
      await stack.stop();
    }
  });

  test('killed in the middle of model calls', async () => {
    const stack = await startStack({ worker: false });
    try {
      stack.model.hold();
      const doomed = spawnWorker(stack);
      const exited = once(doomed, 'exit');
      await fill(stack);
      await stack.model.waitForRequests(2);
      doomed.kill('SIGKILL');
      await exited;
      stack.model.release();
      expect((await stack.palimpsest.context({ session })).generation).toBe(0);
      await stack.work();
      await expectOneCompaction(stack);
      const chunks = (await stack.palimpsest.compactions({ session }))[0]!.chunks;
      expect(stack.model.requests.length).toBe(chunks + 1 + 2);
    } finally {
      await stack.stop();
    }
  });
});
