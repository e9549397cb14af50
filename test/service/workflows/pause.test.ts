/** An operator's actions in the Temporal UI: pause a session, resume it, retry a failed compaction. */
import type { Client } from '@temporalio/client';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectClient } from '../../../src/temporal/connection.js';
import type { CompactAnswer } from '../../../src/contract/workflows.js';
import { sessionWorkflowId } from '../../../src/temporal/names.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { ok, status } from '../../support/model-replies.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
  client = await connectClient(stack.temporal);
});

afterAll(async () => {
  await client.connection.close();
  await stack.stop();
});

const handleOf = (session: string) =>
  client.workflow.getHandle(sessionWorkflowId({ tenant: stack.queuePrefix, session }));

async function play(session: string, turns: number, from = 0): Promise<void> {
  for (const [index, messages] of dialogue(turns, 200).entries())
    await stack.palimpsest.appendTurn({
      session,
      turnId: `t-${from + index}`,
      messages,
      policy: smallPolicy,
    });
}

/** How often this activity has come to its end. */
async function completed(session: string, activity: string): Promise<number> {
  const events = (await handleOf(session).fetchHistory()).events ?? [];
  const scheduled = events.filter(
    ({ activityTaskScheduledEventAttributes: begun }) => begun?.activityType?.name === activity,
  );
  const ids = new Set(scheduled.map(({ eventId }) => String(eventId)));
  return events.filter(({ activityTaskCompletedEventAttributes: ended }) =>
    ids.has(String(ended?.scheduledEventId)),
  ).length;
}

async function until(condition: () => Promise<boolean>): Promise<void> {
  await expect.poll(condition).toBe(true);
}

test('during a pause no compaction begins, turns are stored and the context fits; after resume the session compacts', async () => {
  const { palimpsest } = stack;
  const session = 'held';
  await play(session, 1);
  await handleOf(session).signal('pause');
  await until(async () => (await palimpsest.status({ session })).paused);
  await play(session, 16, 1);
  await palimpsest.settled({ session });
  const held = await palimpsest.status({ session });
  expect(held).toMatchObject({ paused: true, generation: 0, messages: 34 });
  const context = await palimpsest.context({ session });
  expect(context.tokens).toBeLessThanOrEqual(context.budget);
  await expect(palimpsest.compact({ session })).rejects.toMatchObject({
    type: 'Input.Invalid',
    message: expect.stringContaining('paused') as string,
  });

  await handleOf(session).signal('resume');
  await until(async () => (await palimpsest.status({ session })).generation > 0);
  expect((await palimpsest.status({ session })).paused).toBe(false);
});

test('the last of several signals counts', async () => {
  const { palimpsest } = stack;
  const session = 'back and forth';
  await play(session, 1);
  await palimpsest.settled({ session });
  for (const signal of ['pause', 'resume', 'pause', 'resume', 'pause'])
    await handleOf(session).signal(signal);
  await until(async () => (await completed(session, 'setPaused')) === 5);
  await until(async () => (await palimpsest.status({ session })).paused);
  await handleOf(session).executeUpdate('configure');
  await palimpsest.settled({ session });
  expect((await palimpsest.status({ session })).paused).toBe(true);
  await Promise.all([handleOf(session).executeUpdate('resume'), palimpsest.status({ session })]);
  expect((await palimpsest.status({ session })).paused).toBe(false);
});

test('a pause outlives the run of the workflow that took it', async () => {
  const { palimpsest } = stack;
  const session = 'asleep';
  await play(session, 1);
  await handleOf(session).executeUpdate('pause');
  await handleOf(session).terminate();
  await play(session, 16, 1);
  await palimpsest.settled({ session });
  expect(await palimpsest.status({ session })).toMatchObject({ paused: true, generation: 0 });
});

test('the signal retry repeats a failed compaction before its back-off ends', async () => {
  const { palimpsest, model } = stack;
  const session = 'failed';
  await palimpsest.appendTurn({
    ...{ session, turnId: 'first', messages: [{ role: 'user', content: 'Begin.' }] },
    policy: { ...smallPolicy, summary: { fallback: 'none', retryAfterFailure: 3_600_000 } },
  });
  model.reply(status(401, { error: { message: 'no such key' } }));
  for (const [index, messages] of dialogue(16, 200).entries())
    await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages });
  await until(async () => (await palimpsest.status({ session })).lastError !== null);
  expect(await palimpsest.status({ session })).toMatchObject({
    generation: 0,
    lastError: { type: 'Llm.Rejected' },
  });

  model.reply(ok());
  await handleOf(session).signal('retry');
  await until(async () => (await palimpsest.status({ session })).generation > 0);
  expect((await palimpsest.status({ session })).lastError).toBeNull();
});

const isOfWorkflowTask = (event: object): boolean =>
  Object.entries(event).some(([name, value]) => /^workflowTask/.test(name) && value !== null);

test('invalid updates are refused without an event in the history', async () => {
  const session = 'updates';
  await play(session, 1);
  const handle = handleOf(session);
  // A worker that stalls lets the server note the task in which it refuses.
  const events = async () =>
    (await handle.fetchHistory()).events?.filter((event) => !isOfWorkflowTask(event)).length;
  await stack.palimpsest.settled({ session });
  const before = await events();
  const wrong = handle.executeUpdate<CompactAnswer, [unknown]>('compact', {
    args: [{ note: 'x', force: true }],
  });
  await expect(wrong).rejects.toMatchObject({
    cause: { type: 'Input.Invalid', message: expect.stringContaining('force') as string },
  });
  expect(await events()).toBe(before);
  await handle.executeUpdate('configure');
  await handle.executeUpdate('close');
  await handle.result();
});
