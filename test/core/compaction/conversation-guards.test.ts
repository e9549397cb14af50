/** Guarantees of a session in memory that neither callers nor summarizers can break. */
import { counterFor } from '../../../src/tokens/counter.js';
import { limitsOf } from '../../../src/limits/limits.js';
import { policyOf } from '../../../src/policy/layers.js';
import { makePlan } from '../../../src/compaction/plan/plan.js';
import { MemoryStore } from '../../../src/compaction/in-memory/store.js';
import { EventEmitter, once } from 'node:events';
import { saidOf } from '../../support/material.js';
import { describe, expect, test } from 'vitest';
import {
  applyCompaction,
  Conversation,
  planCompaction,
  type Plan,
  type Summarizer,
} from '../../../src/compaction/in-memory/index.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { PalimpsestError } from '../../../src/errors.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { readBy } from '../../../src/summary/ask/chunk.js';

const policy: PolicyInput = { contextWindow: 16_000, tokenizer: 'chars/4', summary: { mode: 'incremental' } };

const talk = (turns: number, from = 0): ChatMessage[] =>
  Array.from({ length: turns }, (_, index): ChatMessage[] => [
    { role: 'user', content: `Request ${from + index}: ${'please read on '.repeat(60)}` },
    { role: 'assistant', content: `Answer ${from + index}: ${'it was read '.repeat(80)}` },
  ]).flat();

function conversationOf(messages: readonly ChatMessage[], given: PolicyInput = policy): Conversation {
  const conversation = new Conversation({ policy: given });
  conversation.append(messages);
  return conversation;
}

const writes: Summarizer = (request) =>
  saidOf(
    `## Session intent\n- The user reads, ${request.messages.at(-1)!.content.length} characters so far.`,
    request,
  );

/** Answers only once it is let go. */
function held(): { summarizer: Summarizer; asked: Promise<unknown>; letGo: () => void } {
  const events = new EventEmitter();
  const asked = once(events, 'asked');
  const gate = once(events, 'go');
  const summarizer: Summarizer = async (request, about) => {
    events.emit('asked');
    await gate;
    return writes(request, about);
  };
  return { summarizer, asked, letGo: () => events.emit('go') };
}

async function planOf(messages: readonly ChatMessage[], given: PolicyInput = policy): Promise<Plan> {
  const plan = await planCompaction(messages, { policy: given });
  if ('nothing' in plan) throw new Error(plan.nothing);
  return plan;
}

describe('1. nothing is lost', () => {
  test("a caller's change of an appended message or of a context does not change the log", () => {
    const message: ChatMessage = { role: 'user', content: 'hello', extra: { lines: ['one'] } };
    const conversation = conversationOf([message]);
    const appended = JSON.stringify(message);
    message.content = 'written over';
    for (const given of [...conversation.context().messages, ...conversation.replay()])
      given.content = 'written over as well';
    expect(JSON.stringify(conversation.replay())).toBe(`[${appended}]`);
  });

  test('a restore during a summary wins: the compaction is refused, and every message is replayed', async () => {
    const conversation = conversationOf(talk(40));
    await conversation.compact(writes);
    conversation.append(talk(40, 40));
    const { summarizer, asked, letGo } = held();
    const compaction = conversation.compact(summarizer);
    await asked;
    conversation.restore(0);
    conversation.append(talk(10, 80));
    letGo();
    await expect(compaction).rejects.toMatchObject({ type: 'Store.StaleGeneration' });
    expect(conversation.replay()).toEqual(talk(90));
  });
});

describe('5. one compaction at a time', () => {
  test('of two concurrent compactions one commits, and the other is refused', async () => {
    const conversation = conversationOf(talk(40));
    const both = await Promise.allSettled([conversation.compact(writes), conversation.compact(writes)]);
    expect(both.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(both).toContainEqual({
      status: 'rejected',
      reason: expect.objectContaining({ type: 'Store.StaleGeneration' }),
    });
    expect(conversation.generations).toHaveLength(1);
    expect(conversation.replay()).toEqual(talk(40));
  });

  test('messages appended between plan and commit stay in the tail', async () => {
    const conversation = conversationOf(talk(40));
    const plan = await conversation.plan();
    if ('nothing' in plan) throw new Error(plan.nothing);
    conversation.append(talk(5, 40));
    const { throughSeq } = await conversation.carryOut(plan, writes);
    expect(throughSeq).toBe(plan.throughSeq);
    expect(conversation.context().messages.slice(-10)).toEqual(talk(5, 40));
  });

  test.each([
    ['fewer', talk(10)],
    ['others', talk(60, 1_000)],
  ])('a plan of other messages is refused: %s', async (_, messages) => {
    const plan = await planOf(talk(60));
    await expect(applyCompaction(messages, plan, { policy })).rejects.toMatchObject({
      type: 'Input.Invalid',
      path: 'plan',
    });
  });

  test('a plan made without redaction is refused if the policy redacts', async () => {
    const plan = await planOf(talk(60), { ...policy, redact: false });
    const redacting = { ...policy, redact: { secrets: true } };
    const summarize: Summarizer = () => expect.unreachable();
    await expect(applyCompaction(talk(60), plan, { policy: redacting, summarize })).rejects.toMatchObject({
      type: 'Input.Invalid',
    });
  });
});

describe('3 and 6. a summarizer that fails', () => {
  test.each(['Llm.Unavailable', 'Llm.ContextOverflow'] as const)(
    '%s: requests that still wait are not made',
    async (type) => {
      let asked = 0;
      const fails: Summarizer = async () => {
        asked += 1;
        await Promise.resolve();
        throw new PalimpsestError(type, 'in vain');
      };
      const conversation = conversationOf(talk(60), {
        ...policy,
        // Redaction works in slices, so that under load a request may still be in preparation.
        redact: false,
        summary: { chunkTokens: 512, concurrency: 2 },
      });
      const plan = await conversation.plan();
      expect('chunks' in plan ? plan.chunks.length : 0).toBeGreaterThan(20);
      const generation = await conversation.compact(fails);
      expect(generation).toMatchObject({ method: 'extractive', fallback: true });
      const atCommit = asked;
      await new Promise((resolve) => setImmediate(resolve));
      expect(asked).toBe(atCommit);
      expect(asked).toBeLessThan(10);
    },
  );

  test('an answer that is not a text is Llm.BadOutput', async () => {
    const conversation = conversationOf(talk(40), {
      ...policy,
      summary: { mode: 'incremental', fallback: 'none' },
    });
    const answers = JSON.parse('{"text": "no string"}') as string;
    await expect(conversation.compact(() => answers)).rejects.toMatchObject({ type: 'Llm.BadOutput' });
    expect(conversation.generations).toHaveLength(0);
  });

  test('a repair that is too long is discarded: the fallback serves', async () => {
    const summary = { mode: 'incremental' as const, contextWindow: 100_000 };
    const conversation = conversationOf(talk(40), { ...policy, summary });
    const kinds: string[] = [];
    const long = (request: Parameters<Summarizer>[0]) =>
      saidOf(`## Session intent\n${'- Requests and their answers were read on.\n'.repeat(330)}`, request);
    const generation = await conversation.compact((request, { kind }) => {
      kinds.push(kind);
      return long(request);
    });
    expect(kinds).toEqual(['fold', 'repair']);
    expect(generation).toMatchObject({ method: 'extractive', fallback: true });
  });
});

describe('8. a head never displaces messages that still fit', () => {
  test('a pinned message as large as the window: the compaction is refused with the numbers', async () => {
    const large: ChatMessage = { role: 'assistant', content: 'word '.repeat(16_000) };
    const conversation = conversationOf([{ role: 'user', content: 'Begin.' }, large, ...talk(10)], {
      ...policy,
      pins: [{ seq: 2 }],
    });
    const before = conversation.context().messages;
    await expect(conversation.compact(writes, { force: true })).rejects.toMatchObject({
      type: 'Budget.Unreachable',
    });
    expect(conversation.context().messages).toEqual(before);
  });

  test('a question during the summary leaves no room beside a pinned message: the compaction is refused', async () => {
    const pinned: ChatMessage = { role: 'assistant', content: 'word '.repeat(3_200) };
    const conversation = conversationOf([{ role: 'user', content: 'Begin.' }, pinned, ...talk(16)], {
      ...policy,
      pins: [{ seq: 2 }],
    });
    const { summarizer, asked, letGo } = held();
    const compaction = conversation.compact(summarizer, { force: true });
    await asked;
    conversation.append([{ role: 'user', content: 'long '.repeat(8_000) }]);
    const before = conversation.context().messages;
    letGo();
    await expect(compaction).rejects.toMatchObject({ type: 'Budget.Unreachable' });
    expect(conversation.context().messages).toEqual(before);
  });

  test('a pattern that matches every message keeps its newest matches, over any number of compactions', async () => {
    const conversation = new Conversation({ policy: { ...policy, pins: [{ pattern: '^.*$' }] } });
    for (let turn = 0; turn < 100; turn += 1) {
      conversation.append(talk(1, turn));
      while (conversation.isDue()) await conversation.compact(writes);
      expect(conversation.context().tokens).toBeLessThanOrEqual(conversation.limits.budget);
    }
    const { generations } = conversation;
    expect(generations.length).toBeGreaterThan(2);
    const { pinned, throughSeq } = generations.at(-1)!;
    const { content } = talk(100)[throughSeq - 1 - ((throughSeq - 1) % 2)]!;
    expect(pinned.at(-1)).toBe(String(content).trim());
  });

  test.each([
    ['at the beginning of a line', '^ID: \\w+', 'ID: ab77'],
    ['with the space around it', '\\s+ticket-\\d+', 'ticket-42'],
    ['between words only', '\\bport\\b', 'port'],
  ])('a match of a pattern %s stays pinned over later compactions', async (_, pattern, found) => {
    const conversation = new Conversation({ policy: { ...policy, pins: [{ pattern }] } });
    conversation.append([{ role: 'user', content: 'ID: ab77 on port 80, see ticket-42.' }]);
    for (let turn = 0; turn < 100; turn += 1) {
      conversation.append(talk(1, turn));
      while (conversation.isDue()) await conversation.compact(writes);
    }
    expect(conversation.generations.length).toBeGreaterThan(2);
    expect(conversation.generations.map(({ pinned }) => pinned)).toEqual(
      conversation.generations.map(() => [found]),
    );
  });
});

describe('9. no loop', () => {
  test('turns without messages add nothing', () => {
    const conversation = conversationOf(talk(10));
    for (let turn = 0; turn < 20; turn += 1) conversation.append([]);
    expect(conversation.isDue()).toBe(false);
  });

  test('with minGain 0, a few words after a refused compaction do not begin another', async () => {
    const conversation = conversationOf(talk(40), { ...policy, summary: { minGain: 0, fallback: 'none' } });
    let asked = 0;
    const lengthens: Summarizer = () => {
      asked += 1;
      return 'it grows '.repeat(5_000);
    };
    let tries = 0;
    for (let turn = 0; turn < 50; turn += 1) {
      conversation.append([{ role: 'user', content: 'ok' }]);
      if (!conversation.isDue()) continue;
      tries += 1;
      await expect(conversation.compact(lengthens)).rejects.toMatchObject({ type: 'Summary.NotSmaller' });
    }
    expect(tries).toBe(1);
    expect(asked).toBeLessThan(10);
  });
});

describe('4. coverage', () => {
  test('each digest of a split message is judged by its piece, and the pieces are the whole message', async () => {
    const content = Array.from(
      { length: 8_000 },
      (_, line) => `${line}: the file src/app/main.ts was read`,
    ).join('\n');
    const result: ChatMessage = { role: 'tool', tool_call_id: 'a', content };
    const call = { id: 'a', type: 'function', function: { name: 'cat', arguments: '{}' } };
    const messages: ChatMessage[] = [
      { role: 'user', content: 'Go.' },
      { role: 'assistant', content: null, tool_calls: [call] },
      result,
      ...talk(10),
    ];
    const { chunks } = await planOf(messages, { ...policy, summary: { chunkTokens: 4_000 } });
    const logged = { seq: 3, tokens: 0, message: result };
    const pieces = chunks
      .filter(({ fromSeq, throughSeq }) => fromSeq <= 3 && throughSeq >= 3)
      .map((chunk) => readBy(chunk, [logged])[0]?.message.content);
    expect(pieces.length).toBeGreaterThan(10);
    expect(pieces.join('')).toBe(content);
  });
});

test('a message appended while a plan is made is not among its large ones', async () => {
  const policy = policyOf({ session: { contextWindow: 4_000, keep: { messages: 8 } } });
  const limits = limitsOf(policy);
  const counter = counterFor(limits.tokenizer);
  const store = new MemoryStore(counter);
  const answer = (tokens: number) => ({ role: 'assistant' as const, content: 'word '.repeat(tokens) });
  for (let turn = 0; turn < 6; turn++)
    store.append([{ role: 'user', content: `Question ${turn}?` }, answer(turn === 4 ? 2_200 : 300)], turn);
  const state = store.planState();
  store.append([{ role: 'user', content: 'And?' }, answer(2_500), { role: 'user', content: 'Go on.' }], 9);
  const request = { reason: 'trigger' as const, force: false, withoutModel: null, now: 9, counter };
  const redact = (text: string) => text;
  const plan = await makePlan(state, policy, limits, { ...request, redact }, store.planReads());
  if ('nothing' in plan) throw new Error(plan.nothing);
  expect(plan.messages.length).toBeGreaterThan(0);
  for (const { seq, chunks } of plan.messages) {
    expect(seq).toBeLessThanOrEqual(12);
    expect(chunks.length).toBeGreaterThan(0);
  }
});

test('a plan without a cut names the open call that is in the way, and when it counts as abandoned', async () => {
  const policy = policyOf({
    session: {
      contextWindow: 16_000,
      trigger: { tokens: 2_000 },
      keep: { messages: 4 },
      reduce: { messages: false },
    },
  });
  const limits = limitsOf(policy);
  const counter = counterFor(limits.tokenizer);
  const store = new MemoryStore(counter);
  const call = { id: 'c1', type: 'function', function: { name: 'look', arguments: '{}' } };
  store.append(
    [
      { role: 'user', content: 'Go.' },
      { role: 'assistant', content: null, tool_calls: [call] },
    ],
    0,
  );
  // Messages this short cannot be shortened.
  const short = Array.from({ length: 600 }, (_, index) => ({
    role: 'user' as const,
    content: `Note ${index}.`,
  }));
  store.append(short, 5);
  const planAt = (now: number) => {
    const request = { reason: 'trigger' as const, force: false, withoutModel: 'there is none', now, counter };
    const redact = (text: string) => text;
    return makePlan(store.planState(), policy, limits, { ...request, redact }, store.planReads());
  };
  const before = await planAt(policy.deadCallAfter - 1);
  if (!('nothing' in before)) throw new Error('The call is open.');
  expect(before.nothing).toMatch(/call of look \(c1\) in message 2 .* from 1970-01-01T00:10:00.000Z on/);
  expect(await planAt(policy.deadCallAfter)).not.toHaveProperty('nothing');
});

describe('a message appended during a summary', () => {
  const shortened = ({ items }: ReturnType<Conversation['context']>) =>
    items.filter(({ source }) => source === 'reduced' || source === 'omitted');

  test('is not shortened for the target of the earlier plan: the next compaction makes room', async () => {
    const conversation = conversationOf(talk(30));
    const { summarizer, asked, letGo } = held();
    const compaction = conversation.compact(summarizer);
    await asked;
    conversation.append(talk(30, 30));
    letGo();
    const first = await compaction;
    expect(first?.reductions).toEqual([]);
    expect(first?.tokensAfter).toBeGreaterThan(conversation.limits.contextTarget);
    expect(conversation.isDue()).toBe(true);
    const second = await conversation.compact(writes);
    expect(second?.tokensAfter).toBeLessThanOrEqual(conversation.limits.contextTarget);
    expect(shortened(conversation.context())).toEqual([]);
    expect(conversation.isDue()).toBe(false);
  });

  test('does not make the gain of the compaction too small, whatever its size', async () => {
    const conversation = conversationOf(talk(30));
    const { summarizer, asked, letGo } = held();
    const compaction = conversation.compact(summarizer);
    await asked;
    conversation.append(talk(600, 30));
    letGo();
    expect(await compaction).toMatchObject({ generation: 1, reductions: [] });
    expect(conversation.isDue()).toBe(true);
  });
});

describe('calls without their arguments, as JavaScript allows them', () => {
  const [plan, apply] = [planCompaction, applyCompaction] as unknown as ((
    ...given: unknown[]
  ) => Promise<unknown>)[];

  test.each([
    ['no messages to plan', () => plan!(), 'messages'],
    ['no messages to compact', () => apply!(), 'messages'],
    ['messages as text', () => plan!('hello'), 'messages'],
    ['no plan', () => apply!(talk(20)), 'plan'],
    ['an empty plan', () => apply!(talk(20), {}), 'plan'],
    ['the answer that there is no plan', async () => apply!(talk(1), await plan!(talk(1))), 'plan'],
    ['no turn', async () => new Conversation().append(undefined as unknown as ChatMessage[]), 'messages'],
  ])('%s', async (_, call, path) => {
    await expect(call()).rejects.toMatchObject({ type: 'Input.Invalid', path });
  });
});
