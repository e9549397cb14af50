/** The policy and counts in `status`: every effective value with its source, and the corrections by usage. */
import { Client, Connection } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { sessionWorkflowId, taskQueues } from '../../../src/temporal/names.js';
import { startStack, type Stack } from '../../support/stack.js';
import { talk } from '../../support/store.js';

let stack: Stack;
let palimpsest: Palimpsest;

beforeAll(async () => {
  const settings = {
    inlineTurnTenants: ['*'],
    policy: { environment: { target: 0.4, pins: ['Be brief.'] } },
  };
  stack = await startStack({ settings });
  palimpsest = await Palimpsest.connect({
    databaseUrl: stack.databaseUrl,
    temporal: stack.temporal,
    tenant: stack.queuePrefix,
    queuePrefix: stack.queuePrefix,
    policy: { file: { target: 0.5 }, environment: { target: 0.4, debounceMs: 7 } },
    counters: { characters: (text) => Math.ceil(text.length / 5) },
  });
});

afterAll(async () => {
  await palimpsest.close();
  await stack.stop();
});

async function sourcesOf(session: string): Promise<Record<string, string>> {
  const { knobs } = await palimpsest.status({ session });
  return Object.fromEntries(knobs.map(({ path, source }) => [path, source]));
}

describe('status', () => {
  it('shows each value with its source: session, tenant, file, environment, default', async () => {
    await palimpsest.configureTenant({ policy: { keep: { messages: 9 }, contextWindow: 50_000 } });
    const policy = { contextWindow: 40_000, model: 'gpt-4o' };
    await palimpsest.appendTurn({ session: 'layers', turnId: '1', messages: talk(2), policy });
    const status = await palimpsest.status({ session: 'layers' });
    expect(status.policy).toMatchObject({ ...policy, keep: { messages: 9 }, target: 0.5, debounceMs: 7 });
    expect(await sourcesOf('layers')).toMatchObject({
      ...{ contextWindow: 'session', model: 'session', keep: 'tenant', target: 'file' },
      ...{ debounceMs: 'environment', 'summary.mode': 'begun' },
    });
    await palimpsest.configureTenant({ policy: { keep: { messages: 5 } } });
    const later = await palimpsest.status({ session: 'layers' });
    expect(later.policy.keep).toEqual({ messages: 5 });
    expect(later.policyVersion).toBe(status.policyVersion + 1);
  });

  it('keeps the other layers when a client without any configures the session', async () => {
    await palimpsest.appendTurn({ session: 'kept', turnId: '1', messages: talk(1) });
    await stack.palimpsest.configure({ session: 'kept', policy: { target: 0.3 } });
    const { knobs } = await palimpsest.status({ session: 'kept' });
    const given = knobs.filter(({ path }) => path === 'target' || path === 'debounceMs');
    expect(given.map(({ path, value, source }) => [path, value, source]).sort()).toEqual([
      ['debounceMs', 7, 'environment'],
      ['target', 0.3, 'session'],
    ]);
  });

  it('shows corrections by reported usage', async () => {
    const session = 'calibrated';
    const policy = { model: 'gpt-4o', contextWindow: 60_000 };
    await palimpsest.appendTurn({ session, turnId: '1', messages: talk(2, 900), policy });
    const before = await palimpsest.status({ session });
    expect(before.calibration).toEqual({
      ...{ model: 'gpt-4o', factor: 1, overhead: 0, samples: 0 },
      ...{ applied: 1, appliedOverhead: 0, warning: null },
    });
    const messages = talk(2, 900);
    const inputTokens = 2 * (before.tokens + before.tokens / 2);
    const usage = { inputTokens, outputTokens: 900, model: 'gpt-4o-2024-08-06' };
    await palimpsest.appendTurn({ session, turnId: '2', messages, usage });
    const after = await palimpsest.status({ session });
    expect(after.calibration).toMatchObject({ model: 'gpt-4o', samples: 1 });
    expect(after.calibration.factor).toBeCloseTo(2, 1);
    expect(after.calibration.applied).toBe(after.calibration.factor);
    expect(after.budget / before.budget).toBeCloseTo(0.5, 1);
    expect((await palimpsest.context({ session })).budget).toBe(after.budget);
    const cached = { turnId: '3', messages, usage: { input_tokens: 12, output_tokens: 1 } };
    await palimpsest.appendTurn({ session, ...cached });
    const { calibration, budget } = await palimpsest.status({ session });
    expect(calibration).toEqual({
      ...after.calibration,
      warning: expect.stringMatching(/reported 12 .*cache/),
    });
    expect(budget).toBe(after.budget);
  });
});

it("a worker's layers apply to sessions that a turn inside a signal creates", async () => {
  const ids = { tenant: stack.queuePrefix, session: 'inline' };
  const connection = await Connection.connect(stack.temporal);
  try {
    await new Client({ connection }).workflow.signalWithStart('session', {
      workflowId: sessionWorkflowId(ids),
      taskQueue: taskQueues(stack.queuePrefix).workflow,
      args: [{ v: 1, ...ids, idleAfterMs: 60_000 }],
      signal: 'turn',
      signalArgs: [{ turnId: '1', messages: talk(2), usage: { promptTokenCount: 40, totalTokenCount: 42 } }],
    });
  } finally {
    await connection.close();
  }
  await expect
    .poll(async () => await sourcesOf('inline').catch(() => null))
    .toMatchObject({ target: 'environment', pins: 'environment' });
  const { calibration } = await palimpsest.forTenant(ids.tenant).status({ session: 'inline' });
  expect(calibration).toMatchObject({ samples: 1, warning: null });
});

it('counters given to connect serve policies by name', async () => {
  const policy = { tokenizer: 'custom:characters' as const, contextWindow: 40_000 };
  const messages = [{ role: 'user' as const, content: 'x'.repeat(500) }];
  await palimpsest.appendTurn({ session: 'custom', turnId: '1', messages, policy });
  expect((await palimpsest.status({ session: 'custom' })).tokens).toBe(104);
});

it('a deployment whose layers contradict each other does not connect', async () => {
  const connecting = Palimpsest.connect({
    databaseUrl: stack.databaseUrl,
    temporal: stack.temporal,
    policy: { file: { contextWindow: 5_000 }, environment: { overhead: 6_000 } },
  });
  await expect(connecting).rejects.toMatchObject({
    type: 'Input.Invalid',
    path: expect.stringContaining('policy'),
  });
});
