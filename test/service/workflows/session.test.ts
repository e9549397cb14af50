/**
 * The entity workflow of a session, end to end: the triggers of a compaction, the callers that wait for it, and a failing
 * model, which does not affect the agent.
 */
import { Client, Connection } from '@temporalio/client';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { validateView } from '../../../src/context/view/validity.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { sessionWorkflowId, taskQueues } from '../../../src/temporal/names.js';
import { macOf } from '../../../activities/inline-turn.js';
import { dialogue, smallPolicy, words } from '../../support/dialogue.js';
import { status } from '../../support/model-replies.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});

afterAll(() => stack.stop());

// A test that fails while the model is delayed must not block the next.
afterEach(() => stack.model.release());

async function play(
  session: string,
  turns: number,
  policy: PolicyInput = smallPolicy,
  from = 0,
  tokens?: number,
): Promise<void> {
  for (const [index, messages] of dialogue(from + turns, tokens).entries()) {
    if (index >= from)
      await stack.palimpsest.appendTurn({
        session,
        turnId: `t-${index}`,
        messages,
        ...(index === 0 ? { policy } : {}),
      });
  }
}

test('a session that outgrows its trigger is compacted, below its target, with a valid context', async () => {
  const { palimpsest } = stack;
  await play('grows', 18);
  await palimpsest.settled({ session: 'grows' });
  const [outcome] = await palimpsest.compactions({ session: 'grows' });
  expect(outcome).toMatchObject({ generation: 1, reason: 'trigger', method: 'model', archivePart: 1 });
  const context = await palimpsest.context({ session: 'grows' });
  expect(outcome!.tokensAfter).toBeLessThan(0.6 * outcome!.tokensBefore);
  expect(context.tokens).toBeLessThanOrEqual(context.budget);
  expect(validateView(context.messages)).toEqual([]);
  expect(context.messages.at(-1)).toEqual(dialogue(18).at(-1)?.at(-1));
  // The workflow has yet to hear of the commit.
  await expect
    .poll(() => palimpsest.status({ session: 'grows' }))
    .toMatchObject({
      generation: 1,
      phase: 'idle',
      exhausted: null,
      lastError: null,
    });
});

describe('which turns signal the workflow', () => {
  const roomy: PolicyInput = { contextWindow: 32_000 };

  async function signalsOf(session: string, tenant = stack.queuePrefix): Promise<number> {
    const connection = await Connection.connect({ address: stack.temporal.address });
    const { workflow } = new Client({ connection });
    const id = sessionWorkflowId({ tenant, session });
    try {
      const { events } = await workflow.getHandle(id).fetchHistory();
      return (events ?? []).filter((event) => event.workflowExecutionSignaledEventAttributes).length;
    } finally {
      await connection.close();
    }
  }

  test('the first one, and no other that is not due', async () => {
    const { palimpsest } = stack;
    const session = 'quiet';
    for (const [index, messages] of dialogue(3).entries())
      expect(
        await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy: roomy }),
      ).toMatchObject({ due: false, signalled: true, repeated: false });
    await palimpsest.settled({ session });
    expect(await signalsOf(session)).toBe(1);
    expect(await palimpsest.status({ session })).toMatchObject({ generation: 0, phase: 'idle', messages: 6 });
  });

  test('the first one of a fork', async () => {
    const { palimpsest } = stack;
    await play('trunk', 2, roomy);
    await palimpsest.fork({ session: 'trunk', throughSeq: 4, to: 'branch' });
    await play('branch', 2, roomy, 2);
    expect(await signalsOf('branch')).toBe(1);
  });

  test('the one that reopens a closed session', async () => {
    const { palimpsest } = stack;
    const session = 'reopened';
    await play(session, 2, roomy);
    await palimpsest.closeSession({ session });
    await expect.poll(async () => (await palimpsest.status({ session })).phase).toBe('asleep');
    await play(session, 2, roomy, 2);
    await palimpsest.settled({ session });
    expect((await palimpsest.status({ session })).phase).toBe('idle');
    expect(await signalsOf(session)).toBe(1);
  });

  test('every turn, if the policy of the session or of its tenant says so', async () => {
    const { palimpsest } = stack;
    await play('shown', 3, { ...roomy, signal: 'always' });
    expect(await signalsOf('shown')).toBe(3);

    const tenant = palimpsest.forTenant(`${stack.queuePrefix}-shown`);
    const session = 'of the tenant';
    const append = (index: number) =>
      tenant.appendTurn({ session, turnId: `t-${index}`, messages: dialogue(1)[0]!, policy: roomy });
    const told = () => signalsOf(session, tenant.tenant);
    await append(0);
    await append(1);
    expect(await told()).toBe(1);
    await tenant.configureTenant({ policy: { signal: 'always' } });
    await append(2);
    expect(await told()).toBe(2);
    await tenant.configureTenant({ policy: {} });
    await append(3);
    expect(await told()).toBe(2);
  });
});

async function signalInline(
  session: string,
  turnId: string,
  messages: unknown,
  of = stack,
  mac?: string,
): Promise<void> {
  const connection = await Connection.connect({ address: of.temporal.address });
  const ids = { tenant: of.queuePrefix, session };
  await new Client({ connection }).workflow.signalWithStart('session', {
    workflowId: sessionWorkflowId(ids),
    taskQueue: taskQueues(of.queuePrefix).workflow,
    args: [{ v: 1, ...ids, idleAfterMs: 60_000 }],
    signal: 'turn',
    signalArgs: [{ turnId, messages, mac }],
  });
  await connection.close();
}

describe('a turn signal that carries its messages', () => {
  test('is refused for a tenant without permission, and listed in the status', async () => {
    const { palimpsest } = stack;
    await palimpsest.appendTurn({ session: 'inline', turnId: 'first', messages: dialogue(1)[0]! });
    await signalInline('inline', 'second', [{ role: 'user', content: 'inline' }]);
    await palimpsest.settled({ session: 'inline' });
    const { messages, rejectedTurns } = await palimpsest.status({ session: 'inline' });
    expect(messages).toBe(2);
    expect(rejectedTurns).toMatchObject([{ turnId: 'second', type: 'Input.Invalid' }]);
  });

  test('is stored once for a tenant with permission; a malformed one is refused alone', async () => {
    const allowed = await startStack({ settings: { inlineTurnTenants: ['*'] } });
    try {
      await signalInline('inline', 'one', dialogue(1)[0]!, allowed);
      await signalInline('inline', 'one', dialogue(1)[0]!, allowed);
      await signalInline('inline', 'two', [{ role: 'wizard', content: 'x' }], allowed);
      await signalInline('inline', 'three', [{ role: 'user', content: 'last' }], allowed);
      await allowed.palimpsest.settled({ session: 'inline' });
      const { messages, rejectedTurns } = await allowed.palimpsest.status({ session: 'inline' });
      expect(messages).toBe(3);
      expect(rejectedTurns).toMatchObject([{ turnId: 'two', type: 'Input.Invalid' }]);
    } finally {
      await allowed.stop();
    }
  });
});

test('a tenant with a key signs the turns inside its signals', async () => {
  const signed = await startStack({ worker: false });
  const { queuePrefix: tenant } = signed;
  const key = 'f3a9c01be77d4c5e8a62';
  Object.assign(signed.settings, { inlineTurnKeys: { [tenant]: key } });
  await signed.work();
  try {
    const text = JSON.stringify(dialogue(1)[0]!);
    const ids = { tenant, session: 'signed', turnId: 'one' };
    await signalInline('signed', 'one', text, signed, macOf(key, ids, text));
    await signalInline('signed', 'two', text, signed, macOf(key, ids, text));
    await signalInline('signed', 'three', dialogue(1)[0]!, signed);
    await signed.palimpsest.settled({ session: 'signed' });
    const { messages, rejectedTurns } = await signed.palimpsest.status({ session: 'signed' });
    expect(messages).toBe(2);
    expect(rejectedTurns.map(({ turnId }) => turnId)).toEqual(['two', 'three']);
  } finally {
    await signed.stop();
  }
});

describe('a workflow whose id names another session than its arguments', () => {
  test.each([
    ['session', 'pause', (own: string) => `session/${own}/victim-2`, {}],
    ['session', 'pause', () => 'session/other/victim', {}],
    [
      'compaction',
      undefined,
      (own: string) => `compaction/${own}/victim-2/1`,
      { reason: 'manual', force: true },
    ],
    ['compaction', undefined, () => 'anything', { reason: 'manual', force: true }],
    ['backfill', undefined, (own: string) => `backfill/${own}/victim-2`, { job: 'victim' }],
  ])('fails before it does anything: %s', async (type, signal, idOf, more) => {
    const ids = { tenant: stack.queuePrefix, session: 'victim' };
    const before = await appended('victim');
    const workflowId = idOf(ids.tenant);
    const start = {
      workflowId,
      taskQueue: taskQueues(stack.queuePrefix).workflow,
      args: [{ v: 1, ...ids, idleAfterMs: 60_000, ...more }],
    };
    const connection = await Connection.connect({ address: stack.temporal.address });
    const { workflow } = new Client({ connection });
    const handle = signal
      ? await workflow.signalWithStart(type, { ...start, signal, signalArgs: [] })
      : await workflow.start(type, start);
    await expect(handle.result()).rejects.toMatchObject({
      cause: { type: 'Input.Invalid', message: expect.stringContaining('start it under the id') as string },
    });
    await connection.close();
    expect(await stack.palimpsest.status({ session: 'victim' })).toEqual(before);
  });

  async function appended(session: string) {
    await stack.palimpsest.appendTurn({ session, turnId: 'first', messages: dialogue(1)[0]! });
    await stack.palimpsest.settled({ session });
    return stack.palimpsest.status({ session });
  }
});

describe('invariant 5: appends during a compaction survive', () => {
  test('turns appended while the model is summarizing are in the next context', async () => {
    const { palimpsest, model } = stack;
    const asked = model.requests.length;
    // Of a unique length, since requests that another session of the tenant has made need no call.
    const tokens = 101;
    model.hold();
    await play('busy', 18, smallPolicy, 0, tokens);
    await model.waitForRequests(asked + 1);
    await expect.poll(async () => (await palimpsest.status({ session: 'busy' })).phase).toBe('compacting');
    await play('busy', 3, smallPolicy, 18, tokens);
    const during = await palimpsest.context({ session: 'busy' });
    expect(during.generation).toBe(0);
    expect(during.tokens).toBeLessThanOrEqual(during.budget);
    model.release();
    await palimpsest.settled({ session: 'busy' });
    const after = await palimpsest.context({ session: 'busy' });
    expect(after.generation).toBeGreaterThanOrEqual(1);
    expect(after.messages.slice(-2)).toEqual(dialogue(21, tokens).at(-1));
    const replayed = [];
    for await (const { message } of palimpsest.replay({ session: 'busy' })) replayed.push(message);
    expect(replayed).toEqual(dialogue(21, tokens).flat());
  });

  test('two requests to compact at once run one compaction and get the same answer', async () => {
    const { palimpsest } = stack;
    await play('twice', 6, { contextWindow: 32_000 });
    const answers = await Promise.all([
      palimpsest.compact({ session: 'twice' }),
      palimpsest.compact({ session: 'twice' }),
    ]);
    expect(answers[0]).toMatchObject({ generation: 1, reason: 'manual' });
    expect(answers[1]).toEqual(answers[0]);
    expect(await palimpsest.compactions({ session: 'twice' })).toHaveLength(1);
  });
});

test('compact answers null if no message may be evicted', async () => {
  const { palimpsest } = stack;
  await palimpsest.appendTurn({
    session: 'tiny',
    turnId: 't',
    messages: [{ role: 'user', content: 'Hello' }],
  });
  expect(await palimpsest.compact({ session: 'tiny' })).toBeNull();
  expect(await palimpsest.archive({ session: 'tiny' })).toEqual([]);
});

describe('invariant 3: failure leaves the context unchanged', () => {
  const deadline = 1_500;
  // However long a test takes, it does not come to the next attempt.
  const retryAfterFailure = 3_600_000;

  test('a permanently failed model: unchanged until the deadline, then the extractive fallback, no loop', async () => {
    const down = await startStack();
    try {
      down.model.reply(status(500));
      const { palimpsest } = down;
      const policy: PolicyInput = { ...smallPolicy, summary: { deadline, retryAfterFailure } };
      const since = Date.now();
      for (const [index, messages] of dialogue(18).entries()) {
        await palimpsest.appendTurn({ session: 's', turnId: `t-${index}`, messages, policy });
      }
      const before = await palimpsest.context({ session: 's' });
      if (Date.now() - since < deadline) expect(before.generation).toBe(0);
      await palimpsest.settled({ session: 's' });
      const compactions = await palimpsest.compactions({ session: 's' });
      expect(compactions.map(({ method }) => method)).toEqual(['extractive']);
      expect(await palimpsest.status({ session: 's' })).toMatchObject({
        failures: 1,
        lastError: { type: 'Llm.Unavailable' },
      });
      // While the model is out of favour, the next compaction does not ask it.
      const asked = down.model.requests.length;
      for (const [index, messages] of dialogue(36).entries()) {
        if (index >= 18) await palimpsest.appendTurn({ session: 's', turnId: `t-${index}`, messages });
      }
      await palimpsest.settled({ session: 's' });
      expect((await palimpsest.compactions({ session: 's' })).length).toBeGreaterThan(1);
      expect(down.model.requests.length).toBe(asked);
    } finally {
      await down.stop();
    }
  });

  test('with fallback "none" nothing is committed and nothing loops', async () => {
    const down = await startStack();
    try {
      down.model.reply(status(500));
      const { palimpsest } = down;
      const policy: PolicyInput = {
        ...smallPolicy,
        summary: { deadline, retryAfterFailure, fallback: 'none' },
      };
      for (const [index, messages] of dialogue(18).entries()) {
        await palimpsest.appendTurn({ session: 's', turnId: `t-${index}`, messages, policy });
      }
      const before = await palimpsest.context({ session: 's' });
      await palimpsest.settled({ session: 's' });
      const asked = down.model.requests.length;
      await palimpsest.appendTurn({
        session: 's',
        turnId: 'one more',
        messages: [{ role: 'user', content: words(50) }],
      });
      await palimpsest.settled({ session: 's' });
      expect(down.model.requests.length).toBe(asked);
      expect(await palimpsest.compactions({ session: 's' })).toEqual([]);
      const after = await palimpsest.context({ session: 's' });
      expect(after.messages.slice(0, before.messages.length)).toEqual(before.messages);
    } finally {
      await down.stop();
    }
  });
});
