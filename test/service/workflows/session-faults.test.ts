/**
 * Events that must not block a session: invalid signals, compactions by another parent, outages of its database, a permanently
 * failed model, and calls and messages at bad moments.
 */
import type { Client } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import { NativeConnection, Worker } from '@temporalio/worker';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import type { Measurement } from '../../../activities/measure.js';
import type { EndedCompaction, RecordInput } from '../../../activities/recordOutcomes.js';
import { connectClient } from '../../../src/temporal/connection.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import type { Backfill } from '../../../src/contract/backfills.js';
import {
  backfillWorkflowId,
  compactionWorkflowId,
  sessionWorkflowId,
  taskQueues,
} from '../../../src/temporal/names.js';
import { dialogue, smallPolicy, words } from '../../support/dialogue.js';
import { ok, status } from '../../support/model-replies.js';
import { startStack, type Stack, type StackOptions } from '../../support/stack.js';
import { uniqueQueuePrefix } from '../../support/temporal.js';

let client: Client;

beforeAll(async () => {
  client = await connectClient({ address: inject('temporalAddress') });
});

afterAll(() => client.connection.close());

async function onStack(use: (stack: Stack) => Promise<void>, options?: StackOptions): Promise<void> {
  const stack = await startStack(options);
  try {
    await use(stack);
  } finally {
    stack.model.release();
    await stack.stop();
  }
}

const session = 's';
const idsOf = ({ queuePrefix }: Stack) => ({ tenant: queuePrefix, session });
const sessionOf = (stack: Stack) => client.workflow.getHandle(sessionWorkflowId(idsOf(stack)));

async function play(palimpsest: Palimpsest, from: number, to: number, policy: PolicyInput): Promise<void> {
  for (const [index, messages] of dialogue(to).entries()) {
    if (index < from) continue;
    const given = index === 0 ? { policy } : {};
    await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, ...given });
  }
}

/** The machine may be busy. */
const phaseOf = async ({ palimpsest }: Stack) => (await palimpsest.status({ session })).phase;

/** The current workflows with these activities instead of the product's. Returns a function that stops them. */
async function runWith(
  queues: { workflow: string; db: string },
  activities: object,
): Promise<() => Promise<void>> {
  const connection = await NativeConnection.connect({ address: inject('temporalAddress') });
  const workers = await Promise.all([
    Worker.create({
      connection,
      taskQueue: queues.workflow,
      workflowBundle: { codePath: inject('workflowBundlePath') },
    }),
    Worker.create({ connection, taskQueue: queues.db, activities }),
  ]);
  const running = workers.map((worker) => worker.run());
  return async () => {
    for (const worker of workers) worker.shutdown();
    await Promise.all(running);
    await connection.close();
  };
}

test('signals without a valid turn cause a measurement', () =>
  onStack(async (stack) => {
    await play(stack.palimpsest, 0, 1, smallPolicy);
    const handle = sessionOf(stack);
    await handle.signal('turn');
    await handle.signal('turn', null);
    await handle.signal('turn', 'nonsense');
    await handle.signal('turn', { turnId: 'x'.repeat(100_000) });
    await stack.palimpsest.settled({ session });
    expect(await stack.palimpsest.status({ session })).toMatchObject({ phase: 'idle', lastError: null });
    expect((await handle.query<{ generation: number | null }>('status')).generation).toBe(0);
  }));

test('a request while another parent compacts is answered after it, whenever it arrives', () =>
  onStack(async (stack) => {
    const { palimpsest, model } = stack;
    await play(palimpsest, 0, 6, { contextWindow: 32_000 });
    model.hold();
    const workflowId = compactionWorkflowId(idsOf(stack), 1);
    const foreign = await client.workflow.start('compaction', {
      workflowId,
      taskQueue: taskQueues(stack.queuePrefix).workflow,
      args: [{ v: 1, ...idsOf(stack), reason: 'manual', force: true }],
    });
    await model.waitForRequests(1);
    const first = palimpsest.compact({ session });
    const refused = async () =>
      (await sessionOf(stack).fetchHistory()).events?.some(
        (event) => event.startChildWorkflowExecutionFailedEventAttributes,
      );
    await expect.poll(refused).toBe(true);
    const second = palimpsest.compact({ session });
    await expect.poll(async () => (await palimpsest.status({ session })).compaction).not.toBeNull();
    model.release();
    expect(await foreign.result()).toMatchObject({ generation: 1 });
    // By the running one, or by the session's own that follows it.
    for (const outcome of await Promise.all([first, second])) expect([1, 2]).toContain(outcome?.generation);
  }));

test('a request to compact does not wait for the debounce', () =>
  onStack(async (stack) => {
    await play(stack.palimpsest, 0, 18, { ...smallPolicy, debounceMs: 600_000 });
    await expect.poll(() => phaseOf(stack)).toBe('debouncing');
    expect(await stack.palimpsest.compact({ session })).toMatchObject({ generation: 1 });
  }));

test('inline turns are in the context while a compaction runs; refused ones are listed briefly', () =>
  onStack(
    async (stack) => {
      const { palimpsest, model } = stack;
      model.hold();
      await play(palimpsest, 0, 18, smallPolicy);
      await expect.poll(() => phaseOf(stack)).toBe('compacting');
      const handle = sessionOf(stack);
      const inline = { role: 'user', content: 'said inline' };
      await handle.signal('turn', { turnId: 'inline', messages: [inline], at: '2023-05-07T13:00:00Z' });
      await handle.signal('turn', { turnId: 7, messages: [inline] });
      await handle.signal('turn', { turnId: 'role', messages: [{ role: 'w'.repeat(100_000) }] });
      const rejected = async () => (await palimpsest.status({ session })).rejectedTurns;
      await expect.poll(async () => (await rejected()).map(({ turnId }) => turnId)).toEqual(['7', 'role']);
      expect(JSON.stringify(await rejected()).length).toBeLessThan(2_000);
      const context = await palimpsest.context({ session });
      expect(context).toMatchObject({ generation: 0 });
      expect(context.messages.at(-1)).toEqual(inline);
      expect((await palimpsest.expand({ session, fromSeq: 37 })).messages).toMatchObject([
        { message: inline, at: '2023-05-07T13:00:00.000Z' },
      ]);
      model.release();
      await palimpsest.settled({ session });
      expect((await palimpsest.context({ session })).messages.at(-1)).toEqual(inline);
    },
    { settings: { inlineTurnTenants: ['*'] } },
  ));

test.for([
  { what: 'that is away', type: 'Store.Unavailable' },
  { what: 'whose rows others hold', type: 'Store.Busy' },
])('a database $what neither loses an inline turn nor forgets a measurement', async ({ type }) => {
  const prefix = uniqueQueuePrefix();
  const queues = taskQueues(prefix);
  const done: string[] = [];
  const down = () => ApplicationFailure.nonRetryable('down', type);
  /** Fails once, as a step does whose retries have run out. */
  const second = <T>(name: string, answer: T) => {
    let calls = 0;
    return async () => {
      if (++calls === 1) throw down();
      done.push(name);
      return answer;
    };
  };
  const measured: Measurement = {
    ...{ due: false, eager: false, tokens: 1, messages: 1, window: 4_000, generation: 0, policyVersion: 1 },
    ...{ idleAfterMs: 60_000, debounceMs: 0, notBefore: null, paused: false, coldAfterMs: null },
    incarnation: 'first',
  };
  const stop = await runWith(queues, {
    appendTurn: second('appended', { seq: 1, due: true }),
    measure: second('measured', measured),
  });
  try {
    const ids = { tenant: prefix, session };
    const handle = await client.workflow.signalWithStart('session', {
      workflowId: sessionWorkflowId(ids),
      taskQueue: queues.workflow,
      args: [{ v: 1, ...ids, idleAfterMs: 60_000 }],
      signal: 'turn',
      signalArgs: [{ turnId: 'inline', messages: [{ role: 'user', content: 'kept' }] }],
    });
    await expect.poll(() => done).toEqual(['appended', 'measured']);
    expect(await handle.query('status')).toMatchObject({ rejectedTurns: [], generation: 0 });
    await handle.terminate();
  } finally {
    await stop();
  }
});

test('a backfill ends although it cannot find out the outcome of a compaction of another parent', async () => {
  const prefix = uniqueQueuePrefix();
  const { backfill: queues } = taskQueues(prefix);
  const ids = { tenant: prefix, job: 'job' };
  const ended: EndedCompaction[] = [];
  const counts = { selected: 1, pending: 0, running: 0, compacted: 0, unchanged: 0, failed: 1, skipped: 0 };
  const now = new Date().toISOString();
  const report: Omit<Backfill, 'request'> = {
    ...{ job: ids.job, state: 'completed', reason: null, counts, failures: {}, selecting: false },
    ...{ concurrency: 1, spendLimit: null, tokensBefore: 0, tokensAfter: 0, cost: null, perSecond: 0 },
    ...{ modelCalls: 0, modelInputTokens: 0, modelOutputTokens: 0, createdAt: now, endedAt: now },
  };
  const stop = await runWith(queues, {
    openBackfill: () => ({
      ...{ mode: 'due', state: 'running', reason: null, ended: false },
      ...{ concurrency: 1, spendLimit: null, spent: 0 },
    }),
    selectSessions: () => ({ sessions: [{ session, generation: 0, incarnation: null }], more: false }),
    planSessions: () => [null],
    // As a step does whose retries have run out.
    followCompactions: () => {
      throw ApplicationFailure.nonRetryable('down', 'Temporal.Unavailable');
    },
    recordOutcomes: (input: RecordInput) => {
      ended.push(...input.ended);
      return { again: [], report: null, spent: null };
    },
    finishBackfill: () => report,
  });
  // Runs on a queue without a worker, so it never ends.
  const other = await client.workflow.start('session', {
    workflowId: compactionWorkflowId({ tenant: prefix, session }, 1),
    taskQueue: `nobody-${prefix}`,
  });
  try {
    const job = await client.workflow.start('backfill', {
      workflowId: backfillWorkflowId(ids),
      taskQueue: queues.workflow,
      args: [{ v: 1, ...ids }],
    });
    const status = async () => (await job.describe()).status.name;
    await expect.poll(status).toBe('COMPLETED');
    expect(ended).toMatchObject([{ session, end: { kind: 'failed', type: 'Temporal.Unavailable' } }]);
  } finally {
    await client.workflow
      .getHandle(backfillWorkflowId(ids))
      .terminate()
      .catch(() => undefined);
    await other.terminate();
    await stop();
  }
});

describe('invariant 9: no loop', () => {
  const withoutFallback = (retryAfterFailure: number): PolicyInput => ({
    ...smallPolicy,
    idleAfter: 500,
    summary: { deadline: 500, fallback: 'none', retryAfterFailure },
  });

  test('a session does not end while it waits for its next attempt, however short its idle time', () =>
    onStack(async (stack) => {
      const { palimpsest, model } = stack;
      model.reply(status(500));
      await play(palimpsest, 0, 18, withoutFallback(600_000));
      await palimpsest.settled({ session });
      await palimpsest.appendTurn({ session, turnId: 'x', messages: [{ role: 'user', content: words(50) }] });
      await palimpsest.settled({ session });
      // Once the idle timer has fired and was looked at, one timer is left: that of the next attempt.
      const pendingTimers = async () => {
        const events = (await sessionOf(stack).fetchHistory()).events ?? [];
        const completed = events.findLastIndex((event) => event.workflowTaskCompletedEventAttributes);
        const scheduled = events.findLastIndex((event) => event.workflowTaskScheduledEventAttributes);
        const started = events.filter((event) => event.timerStartedEventAttributes).length;
        const fired = events.filter((event) => event.timerFiredEventAttributes).length;
        return completed > scheduled ? started - fired : null;
      };
      await expect.poll(pendingTimers).toBe(1);
      expect(await phaseOf(stack)).toBe('idle');
    }));

  test('the next attempt survives continue-as-new', () =>
    onStack(async (stack) => {
      const { palimpsest, model } = stack;
      await play(palimpsest, 0, 1, withoutFallback(10_000));
      await palimpsest.settled({ session });
      await sessionOf(stack).terminate('to start it with a short history');
      await client.workflow.start('session', {
        workflowId: sessionWorkflowId(idsOf(stack)),
        taskQueue: taskQueues(stack.queuePrefix).workflow,
        args: [{ v: 1, ...idsOf(stack), idleAfterMs: 60_000, maxHistoryEvents: 30 }],
      });
      model.reply(status(500));
      await play(palimpsest, 1, 18, smallPolicy);
      const failures = async () => (await palimpsest.status({ session })).failures;
      await expect.poll(failures).toBe(1);
      await palimpsest.appendTurn({ session, turnId: 'x', messages: [{ role: 'user', content: words(50) }] });
      await palimpsest.settled({ session });
      expect((await sessionOf(stack).describe()).historyLength).toBeLessThan(60);
      model.reply([]);
      await expect.poll(async () => (await palimpsest.status({ session })).generation).toBe(1);
    }));

  test('with the fallback a failed model is not called until its retry time, which grows each time', () =>
    onStack(async (stack) => {
      const { palimpsest, model } = stack;
      model.reply(status(500));
      const policy: PolicyInput = { ...smallPolicy, summary: { deadline: 500, retryAfterFailure: 600_000 } };
      await play(palimpsest, 0, 18, policy);
      await palimpsest.settled({ session });
      const asked = model.requests.length;
      for (const from of [18, 30, 42]) {
        await play(palimpsest, from, from + 12, policy);
        await palimpsest.settled({ session });
      }
      const methods = (await palimpsest.compactions({ session })).map(({ method }) => method);
      expect(methods.length).toBeGreaterThan(2);
      expect(new Set(methods)).toEqual(new Set(['extractive']));
      expect(model.requests.length).toBe(asked);
      expect(await palimpsest.status({ session })).toMatchObject({
        failures: 1,
        lastError: { type: 'Llm.Unavailable' },
      });
      // On request the model is called again, fails again, and is not called for twice as long.
      const before = Date.now();
      expect(await palimpsest.compact({ session })).toMatchObject({ method: 'extractive' });
      const { failures, retryAt } = await palimpsest.status({ session });
      expect(failures).toBe(2);
      expect(Date.parse(retryAt!) - before).toBeGreaterThan(1_190_000);
    }));

  test('a plan that fails is not repeated on every turn', () =>
    onStack(
      async (stack) => {
        const { palimpsest } = stack;
        await play(palimpsest, 0, 18, smallPolicy);
        await palimpsest.settled({ session });
        expect(await palimpsest.status({ session })).toMatchObject({
          failures: 1,
          lastError: { type: 'Input.Invalid' },
        });
        await play(palimpsest, 18, 22, smallPolicy);
        await palimpsest.settled({ session });
        const started = (await sessionOf(stack).fetchHistory()).events?.filter(
          (event) => event.startChildWorkflowExecutionInitiatedEventAttributes,
        );
        expect(started).toHaveLength(1);
      },
      // A summarizer whose window does not even hold its prompt.
      { settings: { model: { apiKey: 'test', summaryModel: 'tiny', contextWindow: 1_000 } } },
    ));
});

test('a session that cannot fit is reported as such, without a model call or a failure of the model', () =>
  onStack(async (stack) => {
    const { palimpsest, model } = stack;
    await play(palimpsest, 0, 3, smallPolicy);
    const long = { role: 'user' as const, content: words(6_000) };
    await palimpsest.appendTurn({ session, turnId: 'long', messages: [long] });
    await palimpsest.settled({ session });
    expect(await palimpsest.status({ session })).toMatchObject({
      ...{ generation: 0, exhausted: { reason: 'Budget.Unreachable' }, retryAt: null },
      lastError: { type: 'Budget.Unreachable' },
    });
    expect(model.requests).toEqual([]);
    await palimpsest.appendTurn({
      session,
      turnId: 'short',
      messages: [{ role: 'user', content: `Never mind. ${words(900)}` }],
    });
    await palimpsest.settled({ session });
    expect((await palimpsest.compactions({ session }))[0]).toMatchObject({ generation: 1, method: 'model' });
  }));

test('a request that waits for a compaction that saves too little gets null, not its failure', () =>
  onStack(async (stack) => {
    const { palimpsest, model } = stack;
    model.reply(ok(words(6_000)));
    model.hold();
    await play(palimpsest, 0, 16, { ...smallPolicy, summary: { fallback: 'none' } });
    await model.waitForRequests(1);
    const joined = palimpsest.compact({ session });
    const accepted = async () =>
      (await sessionOf(stack).fetchHistory()).events?.some(
        (event) => event.workflowExecutionUpdateAcceptedEventAttributes,
      );
    await expect.poll(accepted).toBe(true);
    model.release();
    expect(await joined).toBeNull();
    expect(await palimpsest.status({ session })).toMatchObject({
      ...{ generation: 0, lastError: { type: 'Summary.NotSmaller' } },
    });
  }));
