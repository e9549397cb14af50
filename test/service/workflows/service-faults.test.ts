/** Sessions during failures of the model, changes of the policy and conflicting requests, end to end on real servers. */
import type { Client } from '@temporalio/client';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { connectClient } from '../../../src/temporal/connection.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { isFailure, PalimpsestError } from '../../../src/errors.js';
import { Conversation } from '../../../src/compaction/in-memory/conversation.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool } from '../../support/pool.js';
import type { Layer } from '../../../src/summary/ask/layers.js';
import type { SummaryRequest } from '../../../src/summary/ask/prompts.js';
import { sessionWorkflowId } from '../../../src/temporal/names.js';
import type { SessionStatus } from '../../../src/contract/workflows.js';
import { dialogue, smallPolicy, words } from '../../support/dialogue.js';
import { saidOf } from '../../support/material.js';
import { about, ok, status } from '../../support/model-replies.js';
import { appendTurns } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let pool: Pool;
let client: Client;

beforeAll(async () => {
  stack = await startStack();
  pool = openPool(stack.databaseUrl);
  client = await connectClient(stack.temporal);
});

afterAll(async () => {
  stack.model.release();
  await client.connection.close();
  await pool.end();
  await stack.stop();
});

const down = status(401, { error: { message: 'no such key' } });
const longWait = 600_000;

/** Turns that no other session has: equal messages are summarized once for a whole tenant. */
function talk(session: string, count: number, tokens = 100): ChatMessage[][] {
  return dialogue(count, tokens).map((turn) =>
    turn.map((message) => ({ ...message, content: `${String(message.content)} (${session})` })),
  );
}

async function play(
  session: string,
  turns: readonly ChatMessage[][],
  { policy, from = 0 }: { policy?: PolicyInput; from?: number },
): Promise<void> {
  await appendTurns(stack.palimpsest, session, turns, { from, ...(policy ? { policy } : {}) });
  await stack.palimpsest.settled({ session });
}

const compactions = (session: string) => stack.palimpsest.compactions({ session });
const statusOf = (session: string) => stack.palimpsest.status({ session });

const workflowOf = (session: string) =>
  client.workflow.getHandle(sessionWorkflowId({ tenant: stack.queuePrefix, session }));

/** Requests and turns that the session's workflow has not looked at. */
const inboxOf = async (session: string) => (await workflowOf(session).query<SessionStatus>('status')).inbox;

/** Compactions that the session's workflow has seen to their end. */
async function finishedRuns(session: string): Promise<number> {
  const { events } = await workflowOf(session).fetchHistory();
  return (events ?? []).filter((event) => event.childWorkflowExecutionCompletedEventAttributes).length;
}

async function newest(session: string): Promise<{ snapshot: string; layers: Layer[] | null }> {
  const { rows } = await pool.query<{ snapshot: string; layers: Layer[] | null }>(
    `select snapshot, layers from palimpsest.compactions
     where tenant_id = $1 and session_id = $2 order by generation desc limit 1`,
    [stack.queuePrefix, session],
  );
  return rows[0]!;
}

/** First and last message of each layer. */
function ranges(layers: readonly Layer[] | null): [number, number][] {
  return (layers ?? []).map(({ fromSeq, throughSeq }) => [fromSeq, throughSeq]);
}

function expectWithoutGap(layers: readonly Layer[] | null, throughSeq: number): void {
  const covered = ranges(layers);
  expect(covered.map(([from]) => from)).toEqual([1, ...covered.slice(0, -1).map(([, to]) => to + 1)]);
  expect(covered.at(-1)?.[1]).toBe(throughSeq);
}

describe('invariant 4: entries that the rules wrote stay until a model has read their messages', () => {
  test('in the service, when the model fails again in the middle of reading them', async () => {
    const kept: PolicyInput = { ...smallPolicy, summary: { mode: 'journal', retryAfterFailure: 1 } };
    await play('layers', talk('layers', 16), { policy: kept });
    stack.model.reply(down);
    await play('layers', talk('layers', 32).slice(16), { from: 16 });
    await play('layers', talk('layers', 48).slice(32), { from: 32 });
    const methods = (await compactions('layers')).map(({ method }) => method);
    expect(methods.length).toBeGreaterThan(2);
    expect(new Set(methods.slice(1))).toEqual(new Set(['extractive']));
    expect(methods[0]).toBe('model');
    const { rows } = await pool.query<{ through: number }>(
      'select through_seq as through from palimpsest.sessions where tenant_id = $1 and session_id = $2',
      [stack.queuePrefix, 'layers'],
    );
    const through = rows[0]!.through;
    expectWithoutGap((await newest('layers')).layers, through);
    stack.model.reply(ok());
    expect(await stack.palimpsest.resummarize({ session: 'layers' })).toMatchObject({ method: 'model' });
    const { layers } = await newest('layers');
    expectWithoutGap(layers, through);
    expect(layers!.some(({ extractive }) => extractive)).toBe(false);
  });

  test('in memory', async () => {
    const conversation = new Conversation({ policy: { ...smallPolicy, summary: { mode: 'journal' } } });
    const dead = (): never => {
      throw new PalimpsestError('Llm.Rejected', 'no such key');
    };
    const methods: (string | undefined)[] = [];
    for (const [index, turn] of talk('memory', 48).entries()) {
      conversation.append(turn);
      if (index % 16 !== 15) continue;
      const summarizer =
        index < 16
          ? (request: SummaryRequest) => saidOf('## Current state\n- read by the model', request)
          : dead;
      methods.push((await conversation.compact(summarizer, { force: true }))?.method);
    }
    expect(methods).toEqual(['model', 'extractive', 'extractive']);
    const { layers, throughSeq } = conversation.generations.at(-1)!;
    expectWithoutGap(layers, throughSeq);
  });
});

describe('a model that is not called', () => {
  test('without a fallback, the rules do not write a summary even when the cache is cold', async () => {
    stack.model.reply(down);
    const policy: PolicyInput = {
      contextWindow: 32_000,
      trigger: [{ fraction: 0.85 }, { idle: 1_000 }],
      prices: { input: 2, summarizerInput: 0.1 },
      summary: { mode: 'incremental', fallback: 'none', retryAfterFailure: longWait },
    };
    const session = 'no-fallback';
    await appendTurns(stack.palimpsest, session, talk(session, 60), { policy });
    await expect.poll(async () => (await statusOf(session)).failures).toBe(1);
    await stack.palimpsest.settled({ session });
    // The failed one is not among them; the next comes once it has been quiet again.
    expect(await finishedRuns(session)).toBe(0);
    await appendTurns(stack.palimpsest, session, talk('again', 1), { from: 60 });
    await expect.poll(() => finishedRuns(session)).toBe(1);
    expect(await compactions(session)).toEqual([]);
    expect((await statusOf(session)).failures).toBe(1);
    stack.model.reply(ok());
  });

  test('a refused policy of the tenant does not stop compactions under the earlier one', async () => {
    stack.model.reply(down);
    const session = 'refused-policy';
    const policy = { ...smallPolicy, summary: { retryAfterFailure: longWait } };
    await play(session, talk(session, 18), { policy });
    await stack.palimpsest.configureTenant({
      policy: { contextWindow: 100_000, reservedOutputTokens: 5_000 },
    });
    await play(session, talk(session, 36).slice(18), { from: 18 });
    const { lastError } = await statusOf(session);
    await stack.palimpsest.configureTenant({ policy: {} });
    stack.model.reply(ok());
    expect(lastError).toMatchObject({ type: 'Input.Invalid', fallback: true });
    expect((await compactions(session)).length).toBeGreaterThan(1);
  });

  test('a large message that was to be summarized does not block the session', async () => {
    stack.model.reply(down);
    const session = 'large';
    const policy: PolicyInput = {
      contextWindow: 4_000,
      keep: { messages: 12 },
      summary: { minGain: 0.05, retryAfterFailure: longWait },
    };
    const large: ChatMessage[][] = [
      [{ role: 'user', content: 'Write the report.' }],
      [{ role: 'assistant', content: `BEGINNING ${words(2_400)} END` }],
    ];
    await play(session, [...large, ...talk(session, 4, 120)], { policy });
    expect(await statusOf(session)).toMatchObject({ failures: 1, lastError: { fallback: true } });
    await play(session, talk(session, 14, 120).slice(4), { from: 6 });
    stack.model.reply(ok());
    expect((await compactions(session)).length).toBeGreaterThan(0);
    const { tokens, budget } = await statusOf(session);
    expect(tokens).toBeLessThan(budget);
  });
});

test('the calls of a model before its failure are in the cost of the fallback', async () => {
  let asked = 0;
  stack.model.reply((request) => (++asked > 3 ? down : ok())(request));
  const policy: PolicyInput = {
    ...smallPolicy,
    prices: { input: 1_000 },
    summary: { chunkTokens: 500, concurrency: 1 },
  };
  await play('paid', talk('paid', 18), { policy });
  stack.model.reply(ok());
  const [outcome] = await compactions('paid');
  expect(outcome).toMatchObject({ method: 'extractive', modelCalls: 3 });
  expect(outcome!.cost).toBeGreaterThan(0);
});

describe('a request while another kind of compaction runs', () => {
  test('compact evicts, after the resummarize that is running', async () => {
    stack.model.reply(down);
    await play('kinds', talk('kinds', 18), { policy: smallPolicy });
    stack.model.reply(ok());
    await play('kinds', talk('kinds', 22).slice(18), { from: 18 });
    stack.model.hold();
    const { length } = stack.model.requests;
    const anew = stack.palimpsest.resummarize({ session: 'kinds' });
    await stack.model.waitForRequests(length + 1);
    const evicting = stack.palimpsest.compact({ session: 'kinds' });
    await expect.poll(() => inboxOf('kinds')).toBe(1);
    stack.model.release();
    expect(await anew).toMatchObject({ generation: 2, reason: 'resummarize', evicted: 0 });
    const outcome = await evicting;
    expect(outcome).toMatchObject({ generation: 3, reason: 'manual' });
    expect(outcome!.evicted).toBeGreaterThan(0);
  });
});

describe('a new policy during a model call', () => {
  const secret = 'sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ';

  test('that redacts text in the request discards the summary', async () => {
    stack.model.reply(about(`## Facts from tools\n- the key is ${secret}`));
    const session = 'redacted';
    const turns = talk(session, 5);
    turns[0] = [{ role: 'user', content: `The key is ${secret}. ${words(80)}` }];
    await play(session, turns, { policy: { ...smallPolicy, redact: false } });
    stack.model.hold();
    const { length } = stack.model.requests;
    const refused = stack.palimpsest.compact({ session }).catch((error: unknown) => error);
    await stack.model.waitForRequests(length + 1);
    await stack.palimpsest.configure({ session, policy: { ...smallPolicy, redact: {} } });
    stack.model.release();
    expect(isFailure(await refused, 'Store.StaleGeneration')).toBe(true);
    stack.model.reply(ok());
    expect(await compactions(session)).toEqual([]);
    expect(await stack.palimpsest.compact({ session })).toMatchObject({ method: 'model' });
    expect((await newest(session)).snapshot).not.toContain(secret);
  });

  test('that turns compaction off keeps the context unchanged', async () => {
    stack.model.reply(ok());
    stack.model.hold();
    const { length } = stack.model.requests;
    await appendTurns(stack.palimpsest, 'off', talk('off', 18), { policy: smallPolicy });
    await stack.model.waitForRequests(length + 1);
    await stack.palimpsest.configure({ session: 'off', policy: { ...smallPolicy, enabled: false } });
    stack.model.release();
    await stack.palimpsest.settled({ session: 'off' });
    expect(await compactions('off')).toEqual([]);
    expect((await stack.palimpsest.context({ session: 'off' })).messages).toHaveLength(36);
  });
});
