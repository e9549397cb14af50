/**
 * Invariant 9. No loop: an exhausted session is not compacted until something compactable arrives. The tests count the plans that
 * its workflow requested, and the requests at the model.
 */
import type { Client } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { sessionWorkflowId } from '../../../src/temporal/names.js';
import { dialogue, words } from '../../support/dialogue.js';
import { ok } from '../../support/model-replies.js';
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

/** How many compactions the session's workflow has planned, whether or not there was something to do. */
async function tried(session: string): Promise<number> {
  const id = sessionWorkflowId({ tenant: stack.queuePrefix, session });
  const { events } = await client.workflow.getHandle(id).fetchHistory();
  const results = (events ?? []).flatMap(
    (event) => event.activityTaskCompletedEventAttributes?.result?.payloads ?? [],
  );
  const measured = results.map(({ data }) => JSON.parse(Buffer.from(data ?? []).toString()) as unknown);
  return measured.filter((result) => typeof result === 'object' && result !== null && 'planned' in result)
    .length;
}

/** Appends turn after turn, each looked at by the workflow before the next one comes. */
async function talk(session: string, turns: readonly ChatMessage[][], policy?: PolicyInput): Promise<void> {
  const { palimpsest } = stack;
  const length = policy ? 0 : (await palimpsest.status({ session })).messages;
  for (const [index, messages] of turns.entries()) {
    const turnId = `t-${length}-${index}`;
    await palimpsest.appendTurn({ session, turnId, messages, ...(policy && index === 0 ? { policy } : {}) });
    await palimpsest.settled({ session });
  }
}

/** Messages so short that no excerpt of them would be shorter. */
const asides = (count: number): ChatMessage[][] =>
  Array.from({ length: count }, (_, index) => [{ role: 'assistant', content: `Noted ${index}.` }]);

const call = (id: string) => ({ id, type: 'function', function: { name: 'bash', arguments: '{}' } });
const policy: PolicyInput = { contextWindow: 4_000 };

/** Tokens by which an exhausted session must grow before it is looked at again: minGain of the budget. */
const step = 350;

describe('invariant 9: no loop', () => {
  test('a compaction of a tail that cannot shrink is tried once, and again only after it has grown', async () => {
    const { palimpsest, model } = stack;
    const session = 'open call';
    const asked = model.requests.length;
    // Everything after a call that can still be answered must stay, the newest request as it is.
    const turns: ChatMessage[][] = [
      [{ role: 'user', content: 'Start the long job.' }],
      [{ role: 'assistant', content: null, tool_calls: [call('job')] }],
      [{ role: 'user', content: `Meanwhile read this: ${words(3_200)}` }],
    ];
    await talk(session, turns, policy);
    expect(await tried(session)).toBe(1);
    expect((await palimpsest.status({ session })).exhausted).not.toBeNull();
    await talk(session, asides(15));
    expect(await tried(session)).toBe(1);

    const before = (await palimpsest.status({ session })).tokens;
    await talk(
      session,
      Array.from({ length: 12 }, () => asides(8).flat()),
    );
    const grown = (await palimpsest.status({ session })).tokens - before;
    const tries = (await tried(session)) - 1;
    expect(tries).toBeGreaterThan(0);
    expect(tries).toBeLessThanOrEqual(Math.floor(grown / step) + 1);
    expect(model.requests.length).toBe(asked);
    expect(await palimpsest.compactions({ session })).toEqual([]);

    // The result comes, and with it everything becomes compactable.
    await talk(session, [
      [{ role: 'tool', tool_call_id: 'job', content: `done. ${words(step)}` }],
      ...dialogue(3),
    ]);
    expect(await palimpsest.compactions({ session })).toMatchObject([{ reason: 'trigger', archivePart: 1 }]);
    expect(await palimpsest.status({ session })).toMatchObject({ exhausted: null });
  });

  test('a compaction that misses its target is the last one until the context has grown', async () => {
    const { palimpsest } = stack;
    const session = 'large request';
    const request: ChatMessage = { role: 'user', content: `Migrate all of this: ${words(2_300)}` };
    await talk(session, [...dialogue(5), [request]], policy);
    const [compaction] = await palimpsest.compactions({ session });
    expect(compaction).toMatchObject({ generation: 1, archivePart: 1 });
    const { tokens, exhausted, measureAt } = await palimpsest.status({ session });
    expect(exhausted).toMatchObject({ reason: expect.stringContaining('above its target') });
    expect(measureAt).toBeGreaterThanOrEqual(tokens + step);
    await talk(session, asides(20));
    expect(await tried(session)).toBe(1);
    expect(await palimpsest.compactions({ session })).toHaveLength(1);
  });

  test('a trigger by messages that the newest group alone exceeds does not fire for ever', async () => {
    const { palimpsest } = stack;
    const session = 'wide batch';
    const ids = Array.from({ length: 14 }, (_, index) => `c${index}`);
    const batch: ChatMessage[] = [
      { role: 'assistant', content: null, tool_calls: ids.map(call) },
      ...ids.map((id): ChatMessage => ({
        role: 'tool',
        tool_call_id: id,
        content: `result ${id} ${words(20)}`,
      })),
    ];
    const byMessages: PolicyInput = { contextWindow: 8_000, trigger: { messages: 10 } };
    await talk(session, [...dialogue(3), [{ role: 'user', content: 'Look everywhere.' }], batch], byMessages);
    expect((await palimpsest.compactions({ session })).length).toBeGreaterThan(0);
    const tries = await tried(session);
    const messages = (await palimpsest.status({ session })).liveMessages;
    expect(messages).toBeGreaterThan(10);
    await talk(session, asides(1));
    expect(await tried(session)).toBe(tries);
  });

  test('a result that acceptance refuses is not repeated at every turn', async () => {
    const { palimpsest, model } = stack;
    const session = 'refused';
    const pins = ['never touch the production database '.repeat(80)];
    model.reply(ok(`## Current state\n- ${words(480)}`));
    const demanding: PolicyInput = {
      ...policy,
      pins,
      summary: { mode: 'incremental', model: session, contextWindow: 16_000, minGain: 0.56 },
    };
    await talk(session, [dialogue(16).flat()], demanding);
    expect(await palimpsest.status({ session })).toMatchObject({
      exhausted: { reason: 'Summary.NotSmaller' },
    });
    await talk(session, asides(12));
    expect(await tried(session)).toBe(1);
    expect(model.requests.filter(({ body }) => body.model === session)).toHaveLength(1);
    expect(await palimpsest.compactions({ session })).toEqual([]);
    model.reply(ok());
  });

  test('on request it is tried even if the session is exhausted, and the answer is null', async () => {
    const { palimpsest } = stack;
    const session = 'by hand';
    await talk(session, [[{ role: 'user', content: words(3_200) }]], policy);
    const tries = await tried(session);
    expect((await palimpsest.status({ session })).exhausted).not.toBeNull();
    expect(await palimpsest.compact({ session })).toBeNull();
    expect(await tried(session)).toBe(tries + 1);
  });

  test('in a long session the number of compactions is proportional to the appended tokens', async () => {
    const { palimpsest } = stack;
    const session = 'long';
    await talk(session, dialogue(80), policy);
    const compactions = await palimpsest.compactions({ session });
    let appended = 0;
    for await (const { tokens } of palimpsest.replay({ session })) appended += tokens;
    // From the target to the trigger it is at least 0.4 of the threshold.
    expect(compactions.length).toBeLessThanOrEqual(Math.ceil(appended / (0.4 * 3_150)));
    expect(compactions.length).toBeGreaterThan(3);
    expect(await tried(session)).toBe(compactions.length);
  });
});
