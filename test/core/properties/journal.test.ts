/**
 * The journal over random sessions, windows, calibrations and writers: it keeps its room, its order and its ranges, rewrites
 * few lines, and leaves a context that fills its target.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Conversation } from '../../../src/compaction/in-memory/conversation.js';
import type { Summarizer } from '../../../src/compaction/in-memory/asker.js';
import type { Generation } from '../../../src/compaction/in-memory/generation.js';
import { cutCandidates } from '../../../src/compaction/plan/cut.js';
import { breakdownBySizes } from '../../../src/context/view/breakdown.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { metaOf } from '../../../src/conversation/validate.js';
import { isFailure } from '../../../src/errors.js';
import type { Limits } from '../../../src/limits/limits.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { notesAsAsked } from '../../../src/rehearsal/notes.js';
import { describeJournal } from '../../../src/summary/journal/rewrites.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { sized } from '../../support/size.js';

const counter = counterFor('chars/4');
const asAsked = notesAsAsked(counter);

/** One message: who speaks, and tokens of what is said. */
interface Said {
  role: 'user' | 'assistant' | 'tool';
  tokens: number;
}

interface Session {
  window: number;
  system: number;
  said: Said[];
  /** Provider's tokens for one of ours, as reported. */
  factor: number;
}

const words = 'ledger parcel harbour window gravel planner copper bridge lantern orchard meadow signal'.split(
  ' ',
);

/** Text of about so many tokens that no other message has. */
function textOf(seq: number, tokens: number): string {
  const parts: string[] = [];
  for (let length = 0, at = 0; length < tokens * 4 - 8; at++) {
    const word = `${words[(seq * 7 + at * 5) % words.length]}${at % 9 === 0 ? `-${seq * 31 + at}` : ''}`;
    parts.push(word);
    length += word.length + 1;
  }
  return parts.join(' ') || 'ok';
}

/** A turn each: a tool's message is an agent's call with its result. */
function turnsOf({ system, said }: Session): ChatMessage[][] {
  const turns = said.map(({ role, tokens }, index): ChatMessage[] => {
    const content = textOf(index + 1, tokens);
    if (role !== 'tool') return [{ role, content }];
    const id = `call_${index}`;
    return [
      {
        role: 'assistant',
        content: null,
        tool_calls: [
          { id, type: 'function', function: { name: 'read', arguments: `{"path":"src/f${index}.ts"}` } },
        ],
      },
      { role: 'tool', tool_call_id: id, content },
    ];
  });
  const first: ChatMessage[][] = system === 0 ? [] : [[{ role: 'system', content: textOf(0, system) }]];
  return [...first, ...turns];
}

/** Sizes from a word to half a window, small ones more often. */
const session = (windows: readonly number[]): fc.Arbitrary<Session> =>
  fc.constantFrom(...windows).chain((window) =>
    fc.record({
      window: fc.constant(window),
      system: fc.constantFrom(0, 0.02, 0.2).map((share) => Math.floor(share * window)),
      factor: fc.constantFrom(1, 1, 0.8, 1.4),
      said: fc.array(
        fc.record({
          role: fc.constantFrom('user' as const, 'assistant' as const, 'tool' as const),
          tokens: fc
            .double({ min: 0, max: 1, noNaN: true })
            .map((share) => Math.floor(Math.max(2, (window / 200) * Math.pow(60, share * share)))),
        }),
        { minLength: 60, maxLength: 220 },
      ),
    }),
  );

/** Writers that write what is asked, a third of it, or three times as much; with a state that grows at every turn, or none. */
const writers = fc.record({
  length: fc.constantFrom(1, 1, 0.3, 3),
  states: fc.boolean(),
});

function writer({ length, states }: { length: number; states: boolean }): Summarizer {
  let written = 0;
  const lines = () =>
    states
      ? Array.from({ length: 6 }, () => `- new open: what is with ${textOf(++written, 25)}?`).join('\n')
      : '- none';
  return async (request, about) => {
    if (about.kind === 'state') return lines();
    const asked = Math.ceil((request.asked ?? request.maxTokens) * length);
    const answer = await asAsked({ ...request, asked }, about);
    return answer.replace('- none', lines());
  };
}

const policyOf = ({ window }: Session): PolicyInput => ({
  contextWindow: window,
  tokenizer: 'chars/4',
  model: 'some-model',
  summary: { mode: 'journal' },
});

interface Committed {
  generation: Generation;
  limits: Limits;
  conversation: Conversation;
  partial: boolean;
}

async function play(
  given: Session,
  summarizer: Summarizer,
  after: (committed: Committed) => void,
  policy = policyOf(given),
): Promise<Conversation> {
  const conversation = new Conversation({ policy, counter });
  let live = 0;
  for (const turn of turnsOf(given)) {
    const usage = { inputTokens: Math.round(given.factor * live), outputTokens: 10 };
    const isReported = turn[0]?.role === 'assistant' && live > 200;
    conversation.append(turn, undefined, isReported ? usage : undefined);
    for (let tries = 0; conversation.isDue(); tries++) {
      if (tries === 8) throw new Error('still due after 8 compactions in a row');
      try {
        const plan = await conversation.plan();
        if ('nothing' in plan) {
          await conversation.compact(summarizer);
          break;
        }
        const { limits } = conversation;
        const generation = await conversation.carryOut(plan, summarizer);
        after({ generation, limits, conversation, partial: plan.partial });
      } catch (error) {
        if (!isFailure(error)) throw error;
        break;
      }
    }
    live = conversation.context(Infinity).tokens;
  }
  return conversation;
}

/** Failing sessions are reported as found: shrinking them takes longer than reading them. */
const runs = (most: number) => ({ numRuns: sized(Math.ceil(most / 5), most), endOnFailure: true });

const smallWindows = [8_000, 8_192, 16_000, 32_768];
const largeWindows = [128_000, 200_000, 1_000_000];

function expectWithinRoom({ generation, limits }: Committed): void {
  const { parts } = breakdownBySizes(generation.tokensAfter, 0, generation.head);
  const { note, journal, exact, state } = parts!;
  const acknowledgment = generation.head!.tokens[1] ?? 0;
  const carried = generation.head!.carriedSeq === null ? 0 : generation.head!.tokens.at(-1)!;
  const memory =
    note -
    (generation.head!.messages.length > 2 || carried === 0 ? acknowledgment : 0) +
    journal +
    exact +
    state;
  expect(memory, `of ${limits.headMax} in generation ${generation.generation}`).toBeLessThanOrEqual(
    limits.headMax,
  );
}

function expectInOrder({ layers, throughSeq }: Generation, system: number): void {
  const entries = layers ?? [];
  expect(entries.length).toBeGreaterThan(0);
  expect(entries[0]!.fromSeq).toBeLessThanOrEqual(system + 1);
  for (const [index, { fromSeq, throughSeq: through }] of entries.entries()) {
    expect(through).toBeGreaterThanOrEqual(fromSeq);
    const next = entries[index + 1];
    // Two entries may share one message that is larger than a chunk.
    if (next) expect([through, through + 1]).toContain(next.fromSeq);
  }
  expect(entries.at(-1)!.throughSeq).toBe(throughSeq);
}

const evicts = ({ fromSeq, throughSeq }: Generation): boolean => throughSeq >= fromSeq;

describe('the journal', () => {
  test.each([
    ['small', smallWindows, 30],
    ['large', largeWindows, 4],
  ] as const)(
    'keeps its room, order and ranges in %s windows, for any messages and notes',
    async (_size, windows, most) => {
      let commits = 0;
      await fc.assert(
        fc.asyncProperty(session(windows), writers, async (given, writing) => {
          await play(given, writer(writing), (committed) => {
            if (!evicts(committed.generation) || committed.generation.method !== 'model') return;
            commits++;
            expectWithinRoom(committed);
            expectInOrder(committed.generation, given.system === 0 ? 0 : 1);
          });
        }),
        runs(most),
      );
      expect(commits).toBeGreaterThan(0);
    },
    300_000,
  );

  test('rewrites a line at most 1 + log₂ n times in the mean, among n entries', async () => {
    let merges = 0;
    await fc.assert(
      fc.asyncProperty(session([8_000, 16_000]), writers, async (given, writing) => {
        let entries = 0;
        await play(given, writer(writing), ({ generation }) => {
          entries += generation.calls.filter(({ kind }) => kind === 'notes').length;
          merges += generation.calls.filter(({ kind }) => kind === 'merge').length;
          if (generation.layers === null || entries === 0) return;
          const { rewritesPerLine } = describeJournal(generation.layers, generation.snapshot ?? '', counter);
          expect(rewritesPerLine).toBeLessThanOrEqual(1 + Math.log2(entries));
        });
      }),
      runs(20),
    );
    expect(merges).toBeGreaterThan(0);
  }, 300_000);

  test('leaves a context at 85 to 100 % of its target, unless no cut is legal there', async () => {
    let filled = 0;
    await fc.assert(
      fc.asyncProperty(session(smallWindows), async (given) => {
        await play({ ...given, factor: 1 }, asAsked, ({ generation, limits, conversation, partial }) => {
          if (!evicts(generation) || generation.method !== 'model' || partial) return;
          const { contextTarget } = limits;
          const { tokensAfter, throughSeq, fromSeq } = generation;
          const share = tokensAfter / contextTarget;
          if (share >= 0.85 && share <= 1) return void filled++;
          const legal = candidates(conversation, fromSeq);
          const chosen = legal.find((one) => one.throughSeq === throughSeq)!;
          const smallest = legal.at(-1)!;
          const larger = legal.filter((one) => one.throughSeq < throughSeq).at(-1);
          // The newest group stays whole, whatever it takes.
          if (share > 1)
            expect(chosen.keptTokens).toBeLessThanOrEqual(smallest.keptTokens + smallest.carriedTokens);
          // A turn's start is preferred to a larger tail, and notes may come out shorter than planned for.
          else if (larger && larger.keptTokens - chosen.keptTokens <= contextTarget - tokensAfter)
            expect(share).toBeGreaterThanOrEqual(0.6);
        });
      }),
      runs(30),
    );
    expect(filled).toBeGreaterThan(0);
  }, 300_000);

  test('is identical after a restore', async () => {
    await fc.assert(
      fc.asyncProperty(session([8_000, 32_768]), writers, async (given, writing) => {
        const contexts = new Map<number, string>();
        const conversation = await play(given, writer(writing), ({ generation }) => {
          contexts.set(
            generation.generation,
            JSON.stringify([generation.head, generation.layers, generation.state]),
          );
        });
        for (const [generation, memory] of contexts) {
          const { head, layers, state } = conversation.restore(generation);
          expect(JSON.stringify([head, layers, state])).toBe(memory);
          const [message] = conversation
            .context(Infinity)
            .items.filter(({ source }) => source === 'summarization');
          expect(message?.message).toEqual(head?.messages[0]);
        }
      }),
      runs(10),
    );
  }, 300_000);
});

function candidates({ log }: Conversation, fromSeq: number) {
  const metas = log.map(({ seq, message, tokens }) => ({ seq, tokens, at: 0, ...metaOf(message) }));
  return cutCandidates(
    metas.filter(({ seq }) => seq >= fromSeq),
    { keep: {}, now: log.length * 60_000, deadCallAfterMs: 600_000, closed: false },
  );
}

describe('an import', () => {
  /** Tokens of the log; two million take minutes. */
  const tokens = sized(200_000, 2_000_000);

  test.each([
    ['128k', 128_000, 2],
    ['8k', 8_192, 4],
  ] as const)(
    'rewrites lines few times if the summarizer reads %s',
    async (_name, window, levels) => {
      const said = Array.from({ length: tokens / 500 }, (_, index): Said => ({
        role: index % 2 === 0 ? 'user' : 'assistant',
        tokens: 496,
      }));
      const given = { window: 8_192, system: 0, said, factor: 1 };
      const policy: PolicyInput = {
        ...policyOf(given),
        summary: { mode: 'journal', contextWindow: window },
      };
      const conversation = new Conversation({ policy, counter });
      conversation.append(turnsOf(given).flat());
      const rewrites: number[] = [];
      let calls = 0;
      for (let tries = 0; conversation.isDue() && tries < 500; tries++) {
        const generation = await conversation.compact(asAsked);
        if (generation === null) break;
        rewrites.push(...(generation.layers ?? []).map((layer) => layer.rewrites ?? layer.rank));
        calls += generation.calls.length;
      }
      expect(conversation.isDue()).toBe(false);
      expect(calls).toBeGreaterThan(0);
      expect(Math.max(...rewrites)).toBeLessThanOrEqual(levels);
      expect(conversation.context().tokens).toBeLessThanOrEqual(conversation.limits.contextTarget);
    },
    600_000,
  );
});
