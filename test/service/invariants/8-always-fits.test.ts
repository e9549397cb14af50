/**
 * Invariant 8. The context always fits: with a model that never answers, no compaction that needs it commits, but every read
 * stays within the budget. A read fails with `Budget.Unreachable` only if the smallest possible context does not fit.
 */
import fc from 'fast-check';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { validateView } from '../../../src/context/view/validity.js';
import { isFailure, PalimpsestError } from '../../../src/errors.js';
import type { SessionContext } from '../../../src/contract/context.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';
import { dialogue, words } from '../../support/dialogue.js';
import { histories } from '../../support/histories.js';
import { sized } from '../../support/size.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});

beforeEach(() => stack.model.hold());

afterAll(() => stack.stop());

const counter = counterFor('o200k_base');

const sizeOf = (messages: readonly ChatMessage[]) =>
  messages.reduce((sum, message) => sum + countMessage(message, counter), 0);

/** More than the notes take that stand for everything that is left out, and the turn that opens a context whose roles alternate. */
const notes = 160;

/** The least any context of this log must hold: leading system messages and the newest request. */
function leastOf(log: readonly ChatMessage[]): number {
  const isSystem = ({ role }: ChatMessage) => role === 'system' || role === 'developer';
  const end = log.findIndex((message) => !isSystem(message));
  const leading = log.slice(0, end === -1 ? log.length : end);
  const newest = log.findLast(
    ({ role, content }) => role === 'user' && (Array.isArray(content) || content?.trim()),
  );
  return sizeOf(newest ? [...leading, newest] : leading);
}

/** Like a client that retries: twelve writers of one session may wait longer than one call. */
async function patiently<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!isFailure(error, 'Store.Busy')) throw error;
    }
  }
}

/** Null where the answer was `Budget.Unreachable`, which must be the truth. */
async function read(session: string, log: readonly ChatMessage[], head = 0): Promise<SessionContext | null> {
  try {
    const context = await stack.palimpsest.context({ session });
    expect(context.tokens).toBeLessThanOrEqual(context.budget);
    expect(sizeOf(context.messages)).toBeLessThanOrEqual(context.tokens);
    expect(validateView(context.messages)).toEqual([]);
    return context;
  } catch (error) {
    if (!(error instanceof PalimpsestError) || error.type !== 'Budget.Unreachable') throw error;
    const { floor, budget } = error.details as { floor: number; budget: number };
    expect(floor).toBeGreaterThan(budget);
    expect(head + leastOf(log) + notes).toBeGreaterThan(budget);
    return null;
  }
}

/** Sizes, in words, of an agent turn: a request, parallel calls with their results, an answer. Each may be far larger than the window. */
const sizes = fc
  .record({
    request: fc.option(fc.integer({ min: 1, max: 2_500 }), { freq: 3 }),
    results: fc.array(fc.integer({ min: 0, max: 4_000 }), { maxLength: 3 }),
    args: fc.integer({ min: 1, max: 900 }),
    answered: fc.integer({ min: 0, max: 3 }),
    answer: fc.option(fc.integer({ min: 1, max: 1_500 }), { freq: 2 }),
  })
  .filter(({ request, results, answer }) => request !== null || results.length > 0 || answer !== null);

type Sizes = typeof sizes extends fc.Arbitrary<infer Value> ? Value : never;

function turnOf({ request, results, args, answered, answer }: Sizes): ChatMessage[] {
  const messages: ChatMessage[] = [];
  if (request !== null) messages.push({ role: 'user', content: words(request) });
  const calls = results.map((_, index) => ({
    ...{ id: `call_${index}`, type: 'function' },
    function: { name: 'bash', arguments: JSON.stringify({ script: words(args, index), timeout: 30 }) },
  }));
  if (calls.length > 0) messages.push({ role: 'assistant', content: null, tool_calls: calls });
  for (const [index, size] of results.slice(0, answered).entries()) {
    messages.push({ role: 'tool', tool_call_id: `call_${index}`, content: words(size, index) });
  }
  if (answer !== null) messages.push({ role: 'assistant', content: words(answer) });
  return messages;
}

const turns = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: sizes },
    { weight: 1, arbitrary: histories.filter(({ length }) => length > 0) },
  ),
  { minLength: 4, maxLength: 14 },
);

const policies = fc.record({
  contextWindow: fc.constantFrom(2_500, 4_000, 8_000),
  overhead: fc.constantFrom(0, 300),
  model: fc.constantFrom('gpt-4o', 'claude-sonnet-4', 'gpt-4'),
  tokenizer: fc.constant('o200k_base' as const),
});

describe('invariant 8: the context always fits', () => {
  test('at every turn of any session, while the model never answers', async () => {
    const { palimpsest } = stack;
    let run = 0;
    let reads = 0;
    let reduced = 0;
    let unreachable = 0;
    await fc.assert(
      fc.asyncProperty(fc.boolean(), turns, policies, async (withSystem, played, policy) => {
        const session = `large-${++run}`;
        const log: ChatMessage[] = withSystem ? [{ role: 'system', content: words(80) }] : [];
        if (withSystem)
          await palimpsest.appendTurn({ session, turnId: 'system', messages: [...log], policy });
        for (const [index, sized] of played.entries()) {
          const messages = Array.isArray(sized) ? sized : turnOf(sized);
          await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
          log.push(...messages);
          const context = await read(session, log);
          reads++;
          if (context === null) unreachable++;
          else if (context.entries.some(({ source }) => source === 'reduced' || source === 'omitted'))
            reduced++;
        }
        // Reductions may be committed without the model; nothing else was.
        const compactions = await palimpsest.compactions({ session });
        expect(compactions.filter(({ archivePart }) => archivePart !== null)).toEqual([]);
      }),
      { numRuns: sized(8, 25), endOnFailure: true },
    );
    expect(reduced).toBeGreaterThan(reads / 10);
    expect(unreachable).toBeLessThan(reads / 2);
  });

  test('also with a head, whose tokens cannot be reduced', async () => {
    const { palimpsest, model } = stack;
    const session = 'behind a head';
    const log: ChatMessage[] = [];
    const append = async (messages: ChatMessage[]): Promise<void> => {
      const policy = log.length === 0 ? { policy: { contextWindow: 4_000 } } : {};
      await palimpsest.appendTurn({ session, turnId: `t-${log.length}`, messages, ...policy });
      log.push(...messages);
    };
    model.release();
    for (const messages of dialogue(16)) await append(messages);
    await palimpsest.settled({ session });
    const { entries, generation } = await palimpsest.context({ session });
    expect(generation).toBe(1);
    const head = entries.filter(({ source }) => source === 'summarization' || source === 'acknowledgment');
    const headTokens = head.reduce((sum, { tokens }) => sum + tokens, 0);
    model.hold();
    for (let turn = 0; turn < 12; turn++) {
      await append([{ role: 'user', content: words(100 + 200 * turn, turn) }]);
      await read(session, log, headTokens);
      await append([{ role: 'assistant', content: words(1_500, turn) }]);
      await read(session, log, headTokens);
    }
    // The last request alone fills the window now; a shorter one makes the session readable again.
    await append([{ role: 'user', content: words(4_000) }]);
    expect(await read(session, log, headTokens)).toBeNull();
    await append([{ role: 'user', content: 'Never mind, only the summary please.' }]);
    const context = await read(session, log, headTokens);
    expect(context?.messages.at(-1)).toEqual(log.at(-1));
    expect(context?.generation).toBe(1);
  });

  test('for a reader that an append overtakes, and every later reader', async () => {
    // The test ends every wait for a lock. Without a worker, nobody else takes one.
    const still = await startStack({ worker: false });
    const owner = new pg.Pool({ connectionString: still.ownerUrl, max: 2 });
    const holder = await owner.connect();
    try {
      const writer = still.palimpsest;
      const reader = await still.elsewhere();
      const waiting = (count: number) => {
        const text = `select from pg_stat_activity
          where datname = current_database() and application_name = 'palimpsest' and wait_event_type = 'Lock'`;
        return expect.poll(async () => (await owner.query(text)).rowCount).toBe(count);
      };
      const session = 'overtaken';
      const append = (turnId: string, messages: ChatMessage[]) =>
        writer.appendTurn({ session, turnId, messages, policy: { contextWindow: 4_000 } });
      await append('t-1', [{ role: 'user', content: words(1_500) }]);
      await append('t-2', [{ role: 'assistant', content: words(3_000) }]);
      // The append waits for the session first, then the reader with its reductions of what it read before.
      await holder.query('begin');
      await holder.query('select from palimpsest.sessions where session_id = $1 for update', [session]);
      const appended = append('t-3', [{ role: 'assistant', content: words(3_000, 1) }]);
      await waiting(1);
      const overtaken = reader.context({ session });
      await waiting(2);
      await holder.query('rollback');
      await appended;
      const early = await overtaken;
      const late = await writer.context({ session });
      for (const { tokens, budget } of [early, late]) expect(tokens).toBeLessThanOrEqual(budget);
      expect(late.entries.at(-1)?.seq).toBe(3);
      expect(await reader.context({ session })).toEqual(late);
    } finally {
      holder.release(true);
      await owner.end();
      await still.stop();
    }
  });

  test('for many concurrent writers and readers of one session, each in an emergency', async () => {
    const { palimpsest } = stack;
    const session = 'crowd';
    const request: ChatMessage = { role: 'user', content: words(2_000) };
    await palimpsest.appendTurn({
      session,
      turnId: 't',
      messages: [request],
      policy: { contextWindow: 4_000 },
    });
    const agent = async (_: unknown, number: number): Promise<void> => {
      for (let turn = 0; turn < 8; turn++) {
        const messages: ChatMessage[] = [{ role: 'assistant', content: words(900, turn) }];
        const turnId = `${number}-${turn}`;
        await patiently(() => palimpsest.appendTurn({ session, turnId, messages }));
        expect(await patiently(() => read(session, [request]))).not.toBeNull();
      }
    };
    await Promise.all(Array.from({ length: 12 }, agent));
    expect((await read(session, [request]))?.entries.at(-1)?.seq).toBe(97);
  });

  test('after one request and a hundred steps, the latest results shrink last', async () => {
    const { palimpsest } = stack;
    const session = 'one request';
    const request: ChatMessage = { role: 'user', content: `Find the cause. ${words(120)}` };
    await palimpsest.appendTurn({
      session,
      turnId: 't',
      messages: [request],
      policy: { contextWindow: 8_000 },
    });
    const log = [request];
    for (let step = 0; step < 100; step++) {
      const result: ChatMessage = {
        role: 'tool',
        tool_call_id: `c${step}`,
        content: `step ${step}: ${words(900, step)}`,
      };
      const call = {
        id: `c${step}`,
        type: 'function',
        function: { name: 'bash', arguments: `{"n": ${step}}` },
      };
      const messages: ChatMessage[] = [{ role: 'assistant', content: null, tool_calls: [call] }, result];
      await palimpsest.appendTurn({ session, turnId: `t-${step}`, messages });
      log.push(...messages);
      const context = await read(session, log);
      expect(context?.messages[0]).toEqual(request);
      expect(context?.messages.at(-1)).toEqual(result);
    }
  });
});
