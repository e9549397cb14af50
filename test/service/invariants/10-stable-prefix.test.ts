/**
 * Invariant 10. A stable prefix: between two commits the context only grows at its end, so that a provider's cache stays valid.
 * Emergency reductions are stored when first applied and never removed before the next commit.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import type { SessionContext } from '../../../src/contract/context.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';
import { dialogue, words } from '../../support/dialogue.js';
import { histories } from '../../support/histories.js';
import { contextOrNull } from '../../support/sessions.js';
import { sized } from '../../support/size.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});

beforeEach(() => stack.model.release());
afterAll(() => stack.stop());

/** The shown messages as texts; a result that stands in for none is told apart, because the real one may replace it. */
function texts({
  messages,
  entries,
}: SessionContext): { text: string; synthetic: boolean; callId: string | undefined }[] {
  return messages.map((message, index) => ({
    text: JSON.stringify(message),
    synthetic: entries[index]!.source === 'synthetic',
    callId: message.tool_call_id ?? message.name,
  }));
}

/** True where the later context is the earlier one with more at its end, or with real results in place of synthetic ones. */
function extendsPrefix(later: SessionContext, earlier: SessionContext): boolean {
  const now = texts(later);
  return texts(earlier).every(
    ({ text, synthetic, callId }, index) =>
      now[index]?.text === text || (synthetic && now[index]?.callId === callId),
  );
}

/** What was shortened once stays as it is, or goes behind a note. */
function expectReductionsKept(later: SessionContext, earlier: SessionContext): void {
  const now = new Map(
    later.entries.map(({ seq, source }, index) => [
      seq,
      { source, text: JSON.stringify(later.messages[index]) },
    ]),
  );
  const notes = later.entries.flatMap(({ seq, source }) => (source === 'omitted' ? [seq!] : []));
  earlier.entries.forEach(({ seq, source }, index) => {
    if (source !== 'reduced') return;
    const shown = now.get(seq);
    if (shown?.source === 'reduced') expect(shown.text).toBe(JSON.stringify(earlier.messages[index]));
    else expect(notes.some((from) => from <= seq!)).toBe(true);
  });
}

const counter = counterFor('o200k_base');

/** The most that these messages add to a context: labels of orphan results and synthetic results included. */
function mostShown(messages: readonly ChatMessage[]): number {
  const calls = messages.flatMap(({ tool_calls, function_call }) => [
    ...(tool_calls ?? []),
    ...(function_call ? [function_call] : []),
  ]);
  return messages.reduce((sum, message) => sum + countMessage(message, counter) + 120, calls.length * 40);
}

interface Tally {
  extended: number;
  emergencies: number;
  commits: number;
}

/** Appends the turns one by one, reads after each, and compares every two contexts of one generation. */
async function follow(
  session: string,
  turns: readonly ChatMessage[][],
  policy: PolicyInput,
  between: (index: number) => Promise<void>,
): Promise<Tally> {
  const { palimpsest } = stack;
  const tally: Tally = { extended: 0, emergencies: 0, commits: 0 };
  let earlier: SessionContext | null = null;
  for (const [index, messages] of turns.entries()) {
    await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
    const later = await contextOrNull(palimpsest, session);
    if (earlier && later && later.generation === earlier.generation) {
      if (extendsPrefix(later, earlier)) tally.extended++;
      else {
        tally.emergencies++;
        // Only where the earlier context with the new messages at its end would not fit.
        expect(earlier.tokens + mostShown(messages)).toBeGreaterThan(later.budget);
        expectReductionsKept(later, earlier);
      }
    } else if (earlier && later) tally.commits++;
    if (later) {
      const again = await palimpsest.context({ session });
      if (again.generation === later.generation) expect(again).toEqual(later);
    }
    earlier = later;
    await between(index);
  }
  return tally;
}

/** Turns of an agent that outgrow a small window again and again. */
const step = fc.record({
  kind: fc.constantFrom('talk' as const, 'talk' as const, 'work' as const, 'late' as const),
  size: fc.integer({ min: 1, max: 700 }),
  id: fc.constantFrom('a', 'b', 'c'),
});

type Step = typeof step extends fc.Arbitrary<infer Value> ? Value : never;

function turnOf({ kind, size, id }: Step, index: number): ChatMessage[] {
  const call = (callId: string) => ({
    id: callId,
    type: 'function',
    function: { name: 'bash', arguments: `{"n": ${index}}` },
  });
  if (kind === 'talk')
    return [
      { role: 'user', content: `Question ${index}: ${words(Math.ceil(size / 4), index)}` },
      { role: 'assistant', content: `Answer ${index}: ${words(size, index)}` },
    ];
  const result: ChatMessage = {
    role: 'tool',
    tool_call_id: id,
    content: `Output ${index}: ${words(size * 2, index)}`,
  };
  if (kind === 'late') return [result];
  // The second call stays open, until a late result answers it.
  return [{ role: 'assistant', content: null, tool_calls: [call(id), call(`${id}2`)] }, result];
}

describe('invariant 10: a stable prefix', () => {
  test('between two commits every context begins with the one before, except for emergencies', async () => {
    const { palimpsest } = stack;
    let run = 0;
    const sum: Tally = { extended: 0, emergencies: 0, commits: 0 };
    await fc.assert(
      fc.asyncProperty(
        fc.array(
          fc.oneof(
            { weight: 4, arbitrary: step },
            { weight: 1, arbitrary: histories.filter(({ length }) => length > 0) },
          ),
          {
            minLength: 8,
            maxLength: 24,
          },
        ),
        fc.array(fc.boolean(), { minLength: 24, maxLength: 24 }),
        async (steps, settles) => {
          const session = `random-${++run}`;
          const turns = steps.map((one, index) => (Array.isArray(one) ? one : turnOf(one, index)));
          const policy: PolicyInput = {
            contextWindow: 4_000,
            summary: { model: session, contextWindow: 16_000 },
          };
          const tally = await follow(session, turns, policy, async (index) => {
            if (settles[index]) await palimpsest.settled({ session });
          });
          for (const key of ['extended', 'emergencies', 'commits'] as const) sum[key] += tally[key];
        },
      ),
      { numRuns: sized(3, 8), endOnFailure: true },
    );
    expect(sum.extended).toBeGreaterThan(sum.emergencies);
    expect(sum.commits).toBeGreaterThan(0);
  });

  test('while no compaction can commit, one emergency serves many turns', async () => {
    const { model } = stack;
    model.hold();
    const turns = dialogue(120, 40);
    const tally = await follow('held', turns, { contextWindow: 4_000 }, async () => {});
    expect(tally.commits).toBe(0);
    expect(tally.emergencies).toBeGreaterThan(0);
    // 90 tokens a turn; an emergency makes room from the budget of 3,500 down to the target of 1,890.
    expect(tally.emergencies).toBeLessThanOrEqual(Math.ceil((120 * 90) / (3_500 - 1_890)));
    expect(tally.extended + tally.emergencies).toBe(119);
  });

  test('concurrent readers in an emergency see the same context', async () => {
    const { palimpsest, model } = stack;
    model.hold();
    const session = 'readers';
    const policy: PolicyInput = { contextWindow: 4_000, summary: { model: session, contextWindow: 16_000 } };
    for (const [index, messages] of dialogue(40).entries()) {
      await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
      const [first, ...others] = await Promise.all(
        [1, 2, 3, 4, 5].map(() => palimpsest.context({ session })),
      );
      for (const other of others) expect(other).toEqual(first);
    }
  });

  // The turns that come after the plan fit beside its head, or are for another compaction.
  test.each([24, 48])(
    'the next commit begins a new prefix, without the emergency reductions of the old one: %d turns',
    async (turns) => {
      const { palimpsest, model } = stack;
      model.hold();
      const session = `new prefix after ${turns} turns`;
      const policy: PolicyInput = {
        contextWindow: 4_000,
        summary: { model: session, contextWindow: 16_000 },
      };
      for (const [index, messages] of dialogue(turns).entries()) {
        await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
        await palimpsest.context({ session });
        const asked = () => model.requests.some(({ body }) => body.model === session);
        if (index === 15) await model.waitUntil(asked, 'a compaction of the first 16 turns');
      }
      const reduced = await palimpsest.context({ session });
      expect(reduced.entries.some(({ source }) => source === 'reduced' || source === 'omitted')).toBe(true);
      model.release();
      await palimpsest.settled({ session });
      const committed = await palimpsest.context({ session });
      expect(committed.generation).toBeGreaterThan(0);
      expect(committed.entries.every(({ source }) => source !== 'reduced' && source !== 'omitted')).toBe(
        true,
      );
      expect(committed.etag).not.toBe(reduced.etag);
      expect((await palimpsest.context({ session })).etag).toBe(committed.etag);
    },
  );
});
