/**
 * Invariant 7. The context is always valid for its provider: for any malformed history in any turns, read after every turn and
 * around every compaction.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { validateView } from '../../../src/context/view/validity.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { counterFor, tokenizerForModel } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';
import { words } from '../../support/dialogue.js';
import { histories } from '../../support/histories.js';
import { compactIfPossible, contextOrNull } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});

afterAll(() => stack.stop());

const played = fc.record({
  histories: fc.array(histories, { minLength: 3, maxLength: 6 }),
  /** Messages of a turn; what is done after it. */
  turns: fc.array(
    fc.tuple(
      fc.integer({ min: 1, max: 4 }),
      fc.constantFrom('go on', 'go on', 'go on', 'settle', 'compact', 'hold', 'close'),
    ),
    { minLength: 40, maxLength: 40 },
  ),
  policy: fc.record({
    contextWindow: fc.constantFrom(2_500, 5_000),
    trigger: fc.constantFrom({ fraction: 0.85 }, { messages: 12 }),
    keep: fc.constantFrom({ messages: 2 }, { fraction: 0.2 }),
    deadCallAfter: fc.constantFrom(0, 600_000),
    summary: fc.record({
      method: fc.constantFrom('model' as const, 'extractive' as const),
      minGain: fc.constant(0),
    }),
  }),
});

/** Tokens of the leading system messages and of the longest user message: no compaction takes them out. */
function mustStay(log: readonly ChatMessage[]): number {
  const counter = counterFor(tokenizerForModel());
  const sizes = (messages: readonly ChatMessage[]) =>
    messages.map((message) => countMessage(message, counter));
  const first = log.findIndex(({ role }) => role !== 'system' && role !== 'developer');
  const system = sizes(log.slice(0, first < 0 ? log.length : first));
  const users = sizes(log.filter(({ role }) => role === 'user'));
  return system.reduce((sum, tokens) => sum + tokens, 0) + Math.max(0, ...users);
}

/** What is left of the window for them beside the reserved output (an eighth) and a head of 500 tokens. */
const roomOf = ({ contextWindow }: { contextWindow: number }): number => contextWindow * (7 / 8) - 500;

describe('invariant 7: the context is always valid for its provider', () => {
  test('at every read, over random malformed histories and compactions', async () => {
    const { palimpsest, model } = stack;
    let run = 0;
    let reads = 0;
    let generations = 0;
    await fc.assert(
      fc.asyncProperty(played, async ({ histories: parts, turns, policy }) => {
        const session = `malformed-${++run}`;
        const log = parts.flat();
        const read = async (): Promise<void> => {
          const context = await contextOrNull(palimpsest, session);
          reads++;
          expect(validateView(context?.messages ?? [])).toEqual([]);
          // OpenAI takes a system message anywhere; the summary must not be one, and stands behind the leading ones.
          const summaries =
            context?.entries.flatMap(({ source }, index) => (source === 'summarization' ? [index] : [])) ??
            [];
          for (const index of summaries) expect(context!.messages[index]!.role).toBe('user');
        };
        let from = 0;
        for (let turn = 0; from < log.length; turn++) {
          const [size, then] = turns[turn % turns.length]!;
          const messages = log.slice(from, from + size);
          await palimpsest.appendTurn({
            session,
            turnId: `t-${turn}`,
            messages,
            ...(turn === 0 ? { policy } : {}),
          });
          await read();
          if (then === 'hold') model.hold();
          else if (then !== 'go on') model.release();
          if (then === 'settle') await palimpsest.settled({ session });
          if (then === 'compact') await compactIfPossible(palimpsest, session);
          if (then === 'close') await palimpsest.closeSession({ session });
          if (then !== 'go on') await read();
          from += size;
        }
        model.release();
        await palimpsest.settled({ session });
        await read();
        const { generation, lastError } = await palimpsest.status({ session });
        generations += generation;
        // Little that is evicted may not get any smaller, and what must stay may fill the window; nothing else may go
        // wrong because of a history.
        if (lastError?.type === 'Budget.Unreachable')
          expect(mustStay(log), lastError.message).toBeGreaterThan(roomOf(policy));
        else expect([undefined, 'Summary.NotSmaller']).toContain(lastError?.type);
      }),
      { numRuns: 7, endOnFailure: true },
    );
    expect(reads).toBeGreaterThan(50);
    expect(generations).toBeGreaterThan(4);
  });

  /** One call of three is answered late; what happens to the context at each step is told by its results. */
  async function callThenTalk(palimpsest: Palimpsest, session: string, policy: PolicyInput): Promise<void> {
    const call = (id: string) => ({ id, type: 'function', function: { name: 'bash', arguments: '{}' } });
    const turns: ChatMessage[][] = [
      [{ role: 'user', content: `Start. ${words(300)}` }],
      [
        { role: 'assistant', content: null, tool_calls: [call('a'), call('b'), call('a')] },
        { role: 'tool', tool_call_id: 'a', content: 'first a' },
      ],
      ...Array.from({ length: 6 }, (_, index): ChatMessage[] => [
        { role: 'user', content: `While it runs, ${index}. ${words(150)}` },
        { role: 'assistant', content: `Still running, ${index}. ${words(150)}` },
      ]),
    ];
    for (const [index, messages] of turns.entries()) {
      await palimpsest.appendTurn({
        session,
        turnId: `t-${index}`,
        messages,
        ...(index === 0 ? { policy } : {}),
      });
    }
    await palimpsest.settled({ session });
  }

  test('calls that can still be answered stay; each has exactly one result, also a late one', async () => {
    const { palimpsest } = stack;
    const session = 'open calls';
    await callThenTalk(palimpsest, session, { contextWindow: 2_500 });
    const before = await palimpsest.context({ session });
    expect(validateView(before.messages)).toEqual([]);
    const results = (messages: ChatMessage[]) =>
      messages.filter(({ role }) => role === 'tool').map(({ content }) => content);
    expect(results(before.messages)).toEqual(['first a', '(no result recorded)', '(no result recorded)']);
    const late: ChatMessage[] = [
      { role: 'tool', tool_call_id: 'a', content: 'second a' },
      { role: 'tool', tool_call_id: 'b', content: 'late b' },
      { role: 'tool', tool_call_id: 'b', content: 'b once more' },
    ];
    await palimpsest.appendTurn({ session, turnId: 'late', messages: late });
    const after = await palimpsest.context({ session });
    expect(validateView(after.messages)).toEqual([]);
    expect(results(after.messages)).toEqual(['first a', 'late b', 'second a']);
    expect(JSON.stringify(after.messages.at(-1))).toContain('b once more');
    await palimpsest.settled({ session });
  });

  test('the result of an evicted call is shown as data', async () => {
    const { palimpsest } = stack;
    const session = 'dead calls';
    await callThenTalk(palimpsest, session, { contextWindow: 2_500, deadCallAfter: 0 });
    expect((await palimpsest.status({ session })).generation).toBeGreaterThan(0);
    await palimpsest.appendTurn({
      session,
      turnId: 'late',
      messages: [{ role: 'tool', tool_call_id: 'b', content: 'late b' }],
    });
    const { messages } = await palimpsest.context({ session });
    expect(validateView(messages)).toEqual([]);
    expect(messages.filter(({ role }) => role === 'tool')).toEqual([]);
    expect(messages.at(-1)).toMatchObject({ role: 'user', content: expect.stringContaining('late b') });
  });
});
