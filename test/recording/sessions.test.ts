import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { PolicyInput } from '../../src/policy/schema.js';
import { compactionWorkflowId, sessionWorkflowId, taskQueues } from '../../src/temporal/names.js';
import { smallPolicy } from '../support/dialogue.js';
import { failure, status } from '../support/model-replies.js';
import { appendTurns } from '../support/sessions.js';
import { chunky, hasEvent, startRecorder, talk, type Recorder } from './recorder.js';

let recorder: Recorder;

beforeAll(async () => {
  recorder = await startRecorder({ settings: { inlineTurnTenants: ['*'] } });
});

afterAll(() => recorder.close());

beforeEach(() => recorder.stack.model.reply([]));

/** No compaction is due without a request. */
const wide: PolicyInput = { contextWindow: 32_000 };

const recordSession = (session: string, runId?: string, name = session) =>
  recorder.record(`session-${name}`, sessionWorkflowId(recorder.ids(session)), runId);

const statusOf = (session: string) => recorder.stack.palimpsest.status({ session });

test('compacted by its trigger, twice', async () => {
  await recorder.play('triggered', chunky);
  await recorder.play('triggered', chunky, 36, 18);
  await recordSession('triggered');
});

test('quiet, closed by update', async () => {
  await recorder.play('closed', wide, 2);
  const handle = recorder.sessionOf('closed');
  await handle.executeUpdate('configure');
  await handle.executeUpdate('close');
  await handle.result();
  await recordSession('closed');
});

test('closed by signal after a compaction', async () => {
  await recorder.play('closed-by-signal', chunky);
  await recorder.stack.palimpsest.closeSession({ session: 'closed-by-signal' });
  await recorder.sessionOf('closed-by-signal').result();
  await recordSession('closed-by-signal');
});

test('idle to its end', async () => {
  await recorder.play('idle', { ...wide, idleAfter: 1_000 }, 1);
  await recorder.sessionOf('idle').result();
  await recordSession('idle');
});

test('paused and resumed, by signal and by update; asked to compact while it is paused', async () => {
  const session = 'paused';
  const { palimpsest } = recorder.stack;
  const handle = recorder.sessionOf(session);
  const paused = async () => (await statusOf(session)).paused;
  await recorder.play(session, chunky, 2);
  await handle.signal('pause');
  await expect.poll(paused).toBe(true);
  await recorder.play(session, chunky, 18, 2);
  await expect(palimpsest.compact({ session })).rejects.toMatchObject({ type: 'Input.Invalid' });
  await handle.signal('resume');
  await expect.poll(async () => (await statusOf(session)).generation).toBe(1);
  await handle.executeUpdate('pause');
  await handle.executeUpdate('resume');
  await palimpsest.settled({ session });
  await recordSession(session);
});

test('configured by signal: a smaller window makes a compaction due', async () => {
  const session = 'configured';
  await recorder.play(session, wide);
  await recorder.stack.palimpsest.configure({ session, policy: chunky });
  await expect.poll(async () => (await statusOf(session)).generation).toBe(1);
  await recorder.stack.palimpsest.settled({ session });
  await recordSession(session);
});

test('compacted on request, twice concurrently', async () => {
  const session = 'manual';
  const { palimpsest } = recorder.stack;
  await recorder.play(session, wide, 6);
  await Promise.all([palimpsest.compact({ session }), palimpsest.compact({ session })]);
  await recordSession(session);
});

test('a failed compaction is tried again, by signal and by its timer', async () => {
  const { model, palimpsest } = recorder.stack;
  const locked = status(401, failure('no such key'));
  const failed = (session: string) =>
    expect.poll(async () => (await statusOf(session)).lastError?.type).toBe('Llm.Rejected');
  const policy = (retryAfterFailure: number): PolicyInput => ({
    ...smallPolicy,
    summary: { fallback: 'none', retryAfterFailure },
  });
  model.reply(locked);
  await appendTurns(palimpsest, 'retried', talk('retried', 18), { policy: policy(3_600_000) });
  await failed('retried');
  await appendTurns(palimpsest, 'tried-again', talk('tried-again', 18), { policy: policy(3_000) });
  await failed('tried-again');
  model.reply([]);
  await recorder.sessionOf('retried').signal('retry');
  for (const session of ['retried', 'tried-again']) {
    await expect.poll(async () => (await statusOf(session)).generation).toBe(1);
    await palimpsest.settled({ session });
    await recordSession(session);
  }
});

test('turns that carry their messages: one accepted, one repeated, one refused, one while a compaction runs', async () => {
  const session = 'inline';
  const { palimpsest, model } = recorder.stack;
  const handle = recorder.sessionOf(session);
  const user = (content: string) => [{ role: 'user', content }];
  await recorder.play(session, smallPolicy, 1);
  const turns = [
    { turnId: 'one', messages: user('in a signal') },
    { turnId: 'one', messages: user('in a signal') },
    { turnId: 'two', messages: [{ role: 'wizard', content: 'x' }] },
  ];
  for (const turn of turns) await handle.signal('turn', turn);
  await palimpsest.settled({ session });
  expect((await statusOf(session)).rejectedTurns).toMatchObject([{ turnId: 'two' }]);
  model.hold();
  const asked = model.requests.length;
  await appendTurns(palimpsest, session, talk(session, 18).slice(1), { from: 1 });
  await model.waitForRequests(asked + 1);
  const before = (await statusOf(session)).messages;
  await handle.signal('turn', { turnId: 'three', messages: user('meanwhile') });
  await expect.poll(async () => (await statusOf(session)).messages).toBe(before + 1);
  model.release();
  await palimpsest.settled({ session });
  await recordSession(session);
});

test('a signal without a turn, and a repeated one', async () => {
  const session = 'odd-signals';
  const handle = recorder.sessionOf(session);
  await recorder.play(session, wide, 2);
  await handle.signal('turn');
  await handle.signal('turn', { turnId: 't-1', seq: 4, due: false });
  await handle.executeUpdate('configure');
  await recorder.stack.palimpsest.settled({ session });
  await recordSession(session);
});

test('debounced, with a request to compact meanwhile', async () => {
  await recorder.play('debounced', { ...chunky, debounceMs: 1_000 });
  await recordSession('debounced');
  const session = 'debounced-by-hand';
  await recorder.play(session, wide);
  await recorder.stack.palimpsest.configure({ session, policy: { ...chunky, debounceMs: 600_000 } });
  await expect.poll(async () => (await statusOf(session)).phase).toBe('debouncing');
  expect(await recorder.stack.palimpsest.compact({ session })).toMatchObject({ generation: 1 });
  await recordSession(session);
});

test('compacted once its cache is cold', async () => {
  const session = 'cold';
  const policy: PolicyInput = {
    contextWindow: 32_000,
    trigger: [{ fraction: 0.85 }, { idle: 1_000 }],
    prices: { input: 2, summarizerInput: 0.1 },
    summary: { mode: 'incremental' },
  };
  await recorder.play(session, policy, 60);
  await expect.poll(async () => (await statusOf(session)).generation).toBe(1);
  await recorder.stack.palimpsest.settled({ session });
  await recordSession(session);
});

test('the compaction of another parent is running', async () => {
  const session = 'another-parent';
  const { palimpsest, model, queuePrefix } = recorder.stack;
  await recorder.play(session, wide, 6);
  model.hold();
  const asked = model.requests.length;
  const ids = recorder.ids(session);
  await recorder.client.workflow.start('compaction', {
    workflowId: compactionWorkflowId(ids, 1),
    taskQueue: taskQueues(queuePrefix).workflow,
    args: [{ v: 1, ...ids, reason: 'manual', force: true }],
  });
  await model.waitForRequests(asked + 1);
  const answer = palimpsest.compact({ session });
  await hasEvent(recorder.sessionOf(session), (event) =>
    Boolean(event.startChildWorkflowExecutionFailedEventAttributes),
  );
  model.release();
  await answer;
  await recordSession(session);
});

test('its compaction is cancelled', async () => {
  const session = 'cancelled';
  const { palimpsest, model } = recorder.stack;
  model.hold();
  const asked = model.requests.length;
  await appendTurns(palimpsest, session, talk(session, 18), { policy: smallPolicy });
  await model.waitForRequests(asked + 1);
  await recorder.compactionOf(session).cancel();
  await palimpsest.settled({ session });
  model.release();
  await recordSession(session);
});

test('continue-as-new passes on the rest', async () => {
  const session = 'handed-over';
  const { queuePrefix } = recorder.stack;
  const ids = recorder.ids(session);
  const workflowId = sessionWorkflowId(ids);
  await recorder.play(session, chunky, 1);
  await recorder.client.workflow.getHandle(workflowId).terminate('to start it with a short history');
  const { firstExecutionRunId } = await recorder.client.workflow.start('session', {
    workflowId,
    taskQueue: taskQueues(queuePrefix).workflow,
    args: [{ v: 1, ...ids, idleAfterMs: 60_000, maxHistoryEvents: 60 }],
  });
  await recorder.play(session, chunky, 18, 1);
  await recordSession(session, firstExecutionRunId, 'handing-over');
  await recordSession(session);
});
