/**
 * The legal cuts and the chosen one: groups stay whole, calls that can still be answered stay in the tail, the newest user
 * message stays verbatim, and long runs without a user turn are also cut.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { buildView } from '../../../src/context/view/view.js';
import { groupMessages } from '../../../src/conversation/groups.js';
import type { ChatMessage, MessageMeta } from '../../../src/conversation/message.js';
import { linkViolations } from '../../../src/context/view/validity.js';
import { boundedCut, chooseCut, cutCandidates, type CutOptions } from '../../../src/compaction/plan/cut.js';
import { legalCuts, safeCuts } from '../../support/cuts.js';
import { resolvePolicy } from '../../../src/policy/layers.js';
import { limitsOf } from '../../../src/limits/limits.js';
import { atOnce } from '../../../src/steps.js';
import { irreducibleFloor } from '../../../src/context/reductions/to-fit.js';
import { assertPlannable, smallestContext } from '../../../src/compaction/plan/plannable.js';
import { isFailure } from '../../../src/errors.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { histories, logOf, metasOf, sourceOf } from '../../support/histories.js';

const counter = counterFor('chars/4');
const user: ChatMessage = { role: 'user', content: 'please' };
const says: ChatMessage = { role: 'assistant', content: 'answer' };

const calls = (...ids: string[]): ChatMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 'bash', arguments: '{}' } })),
});

const result = (id: string): ChatMessage => ({ role: 'tool', tool_call_id: id, content: 'output' });
const step = (id: string) => [calls(id), result(id)];

const options: CutOptions = { keep: {}, now: 1_000_000, deadCallAfterMs: 600_000, closed: false };

/** Metas of messages that weigh 10 tokens each, or as given by seq. */
function tail(messages: ChatMessage[], tokens: Record<number, number> = {}, at = 0): MessageMeta[] {
  return metasOf(logOf(messages, counter), at).map((meta) => ({ ...meta, tokens: tokens[meta.seq] ?? 10 }));
}

const choose = (metas: MessageMeta[], keep: CutOptions['keep'], more: Partial<CutOptions> = {}) =>
  chooseCut(metas, { ...options, ...more, keep });

describe('legal cuts', () => {
  test('lie between groups', () => {
    expect(legalCuts(tail([user, calls('a', 'b'), result('a'), user, result('b'), says]), options)).toEqual([
      1, 5, 6,
    ]);
  });

  test('never lie after a call that can still be answered', () => {
    const metas = tail([user, says, calls('a', 'b'), result('a'), user, says], {}, 900_000);
    expect(legalCuts(metas, options)).toEqual([1, 2]);
  });

  test('lie after an abandoned call: a later message and enough time, or a closed session', () => {
    const answeredByUser = [user, calls('a'), user, says];
    expect(legalCuts(tail(answeredByUser), options)).toEqual([1, 2, 3, 4]);
    expect(legalCuts(tail(answeredByUser, {}, 999_999), options)).toEqual([1]);
    // An autonomous run: no user message follows, but the agent itself went on without the result.
    expect(legalCuts(tail([user, calls('a'), says]), options)).toEqual([1, 2, 3]);
    expect(legalCuts(tail([user, calls('a'), says], {}, 999_999), options)).toEqual([1]);
    expect(legalCuts(tail([user, calls('a')]), options)).toEqual([1]);
    expect(legalCuts(tail([user, calls('a')]), { ...options, closed: true })).toEqual([1, 2]);
  });

  test('never lie before an orphan result, so that no tail begins with one', () => {
    const orphan: ChatMessage = { role: 'tool', content: 'x' };
    const empty: ChatMessage = { role: 'assistant', content: null };
    expect(legalCuts(tail([user, says, orphan, empty, orphan, says, user]), options)).toEqual([1, 5, 6, 7]);
  });

  test('never lie inside or directly after the leading system messages', () => {
    const system: ChatMessage = { role: 'system', content: 's' };
    expect(legalCuts(tail([system, { ...system, role: 'developer' }, user, system, says]), options)).toEqual([
      3, 4, 5,
    ]);
    expect(legalCuts(tail([system, system]), options)).toEqual([]);
  });
});

describe('the chosen cut', () => {
  test('keeps as many messages as the ceiling allows, from a user turn on', () => {
    expect(choose(tail([user, says, user, says, user, says]), { messages: 3 })).toMatchObject({
      throughSeq: 4,
      carriedSeq: null,
      boundary: 'user',
      evictedTokens: 40,
      evictedMessages: 4,
      keptTokens: 20,
      keptMessages: 2,
    });
  });

  test('obeys the stricter ceiling', () => {
    const metas = tail([user, says, user, says, user, says, user, says]);
    expect(choose(metas, { messages: 6, tokens: 40 })?.throughSeq).toBe(4);
    expect(choose(metas, { messages: 2, tokens: 400 })?.throughSeq).toBe(6);
  });

  test('lies at an assistant boundary inside a long run, and carries the request', () => {
    const metas = tail([user, says, user, ...step('a'), ...step('b'), ...step('c'), ...step('d')]);
    expect(choose(metas, { messages: 4 })).toMatchObject({
      throughSeq: 7,
      carriedSeq: 3,
      boundary: 'assistant',
      carriedTokens: 10,
    });
  });

  test('carries the request of a run that began before the tail', () => {
    const metas = tail([...step('a'), ...step('b'), ...step('c')]).map((meta) => ({
      ...meta,
      seq: meta.seq + 50,
    }));
    expect(choose(metas, { messages: 2 }, { previousCarriedSeq: 7 })).toMatchObject({
      throughSeq: 54,
      carriedSeq: 7,
      carriedTokens: 0,
    });
  });

  test('prefers a user turn within reach to a slightly larger tail', () => {
    const metas = tail([user, ...step('a'), ...step('b'), user, ...step('c'), says]);
    expect(choose(metas, { messages: 6 })).toMatchObject({
      throughSeq: 5,
      boundary: 'user',
      keptMessages: 4,
    });
  });

  test('does not give up most of the tail for a user turn', () => {
    const metas = tail([user, ...step('a'), ...step('b'), ...step('c'), ...step('d'), user]);
    expect(choose(metas, { messages: 8 })).toMatchObject({
      throughSeq: 3,
      boundary: 'assistant',
      keptMessages: 7,
    });
  });

  test('keeps the newest group with the user message before it, even if it exceeds the ceilings', () => {
    const batch = [calls('a', 'b', 'c'), result('a'), result('b'), result('c')];
    expect(
      choose(tail([user, says, user, ...batch], { 5: 9_000 }), { messages: 2, tokens: 100 }),
    ).toMatchObject({
      throughSeq: 2,
      boundary: 'user',
      keptTokens: 9_040,
    });
    expect(
      choose(tail([user, ...step('x'), ...batch], { 5: 9_000 }), { messages: 2, tokens: 100 }),
    ).toMatchObject({
      throughSeq: 3,
      carriedSeq: 1,
      boundary: 'assistant',
    });
  });

  test('keeps system messages in the middle together with the turn that follows them', () => {
    const note: ChatMessage = { role: 'system', content: 'time' };
    expect(choose(tail([user, says, note, user, says]), { messages: 3 })).toMatchObject({
      throughSeq: 2,
      boundary: 'user',
      carriedSeq: null,
    });
  });

  test('never splits queued user messages where a turn boundary is within reach', () => {
    expect(choose(tail([user, says, user, says, user, user, says]), { messages: 4 })).toMatchObject({
      throughSeq: 4,
      boundary: 'user',
    });
  });

  test('stays before an open call, whatever the ceilings', () => {
    const metas = tail([user, says, user, calls('a'), user, says, user, says], {}, 999_999);
    expect(choose(metas, { messages: 1 })).toMatchObject({ throughSeq: 2, keptMessages: 6 });
  });
});

describe('the phases of the choice', () => {
  const interrupted = [calls('x'), says];

  test("an interrupted call is not separated from the agent's next step if another cut is within reach", () => {
    const metas = tail([user, ...step('a'), ...interrupted, ...step('b'), ...step('c')]);
    expect(choose(metas, { messages: 5 })).toMatchObject({ throughSeq: 5, boundary: 'assistant', torn: 0 });
    expect(choose(metas, { messages: 6 })).toMatchObject({ throughSeq: 3, boundary: 'assistant', torn: 0 });
    expect(cutCandidates(metas, options).find(({ throughSeq }) => Number(throughSeq) === 4)?.torn).toBe(1);
  });

  test('if every cut separates one, the tail with the best beginning and the most messages is chosen', () => {
    const metas = tail([user, calls('x'), calls('y'), calls('z'), says]);
    expect(choose(metas, { messages: 3 })).toMatchObject({ throughSeq: 2, boundary: 'assistant', torn: 1 });
  });

  test("a call that a user interrupts may be separated from the user's message", () => {
    const metas = tail([user, says, user, calls('x'), user, says]);
    expect(choose(metas, { messages: 2 })).toMatchObject({ throughSeq: 4, boundary: 'user', torn: 0 });
  });

  test('if no boundary begins a message of user or assistant, the largest tail is chosen', () => {
    const note: ChatMessage = { role: 'system', content: 'note' };
    const metas = tail([user, says, user, { role: 'assistant', content: 'a' }, note, note, user]);
    expect(choose(metas, { messages: 3 })).toMatchObject({ boundary: 'user', throughSeq: 4 });
  });
});

describe('safe cuts', () => {
  test('are all positions at which the tail may begin, including the beginning of the log', () => {
    const metas = tail([user, calls('a', 'b'), result('a'), user, result('b'), says]);
    expect(safeCuts(metas, options)).toEqual([0, 1, 5, 6]);
  });
});

describe('whether any compaction can make it fit', () => {
  const limits = limitsOf(resolvePolicy({ contextWindow: 10_000, overhead: 1_000, tokenizer: 'chars/4' }));
  const state = (metas: MessageMeta[], system: MessageMeta[] = [], pinTokens = 0) => ({
    system,
    tail: metas,
    pinTokens,
    limits,
    liveness: options,
  });

  test('large results and old messages do not matter', () => {
    const metas = tail([user, says, user, ...step('a')], { 1: 90_000, 2: 90_000, 5: 90_000 });
    expect(() => assertPlannable(state(metas))).not.toThrow();
    expect(smallestContext(state(metas))).toMatchObject({ overhead: 1_000, newestUser: 10, rest: 22 });
  });

  test('Budget.Unreachable, with the numbers, if overhead, system messages, pins and the newest user message alone are too large', () => {
    const system = tail([{ role: 'system', content: 's' }], { 1: 3_000 });
    const metas = tail([user, says, user, says], { 3: 3_500 }).map((meta) => ({
      ...meta,
      seq: meta.seq + 1,
    }));
    const large = metas.map((meta) => (meta.seq === 4 ? { ...meta, tokens: 3_500 } : meta));
    try {
      assertPlannable(state(large, system, 1_500));
      expect.unreachable();
    } catch (error) {
      if (!isFailure(error, 'Budget.Unreachable')) throw error;
      expect(error.details).toEqual({
        floor: 9_010,
        window: 8_750,
        overhead: 1_000,
        system: 3_000,
        pins: 1_500,
        newestUser: 3_500,
        rest: 10,
      });
    }
    expect(() => assertPlannable(state(large, system, 1_000))).not.toThrow();
  });

  test('any history: reductions after any cut never reach less than the stated minimum', () => {
    fc.assert(
      fc.property(histories, (messages) => {
        const log = logOf(messages, counter);
        const { system, tail: rest } = sourceOf(log);
        const metas = metasOf(log);
        const smallest = smallestContext(state(metas.slice(system.length), metas.slice(0, system.length)));
        const kept = cutCandidates(metas.slice(system.length), options).at(-1)?.throughSeq ?? 0;
        const newest = metas.findLast(
          ({ role, empty }, index) => index >= system.length && role === 'user' && !empty,
        );
        const view = buildView(
          { system, head: null, tail: rest.filter(({ seq }) => seq > kept), reductions: [] },
          counter,
        );
        const carried = newest && newest.seq <= kept ? newest.tokens : 0;
        const floor = atOnce(irreducibleFloor(view, counter, 'tools')).tokens + carried;
        expect(smallest.tokens - smallest.overhead).toBeLessThanOrEqual(floor);
      }),
      { numRuns: 300 },
    );
  });
});

describe('nothing is evicted', () => {
  test('when all of it may stay', () =>
    expect(choose(tail([user, says, user, says]), { messages: 6, tokens: 100 })).toBeNull());
  test('of an empty tail', () => expect(choose([], { messages: 0 }, { force: true })).toBeNull());
  test('of a single message', () => expect(choose(tail([user]), { tokens: 1 }, { force: true })).toBeNull());
  test('when only the request would be evicted, which the head then carries', () => {
    expect(choose(tail([user, says]), { messages: 1 }, { force: true })).toBeNull();
    expect(choose(tail([user, ...step('a')]), { messages: 1 }, { force: true })).toBeNull();
  });
  test('after an open call', () =>
    expect(choose(tail([calls('a'), says, says], {}, 999_999), { messages: 1 })).toBeNull());
});

test('on request, a tail within the ceilings is cut to about half', () => {
  const metas = tail([user, says, user, says, user, says]);
  expect(choose(metas, { messages: 100 })).toBeNull();
  expect(choose(metas, { messages: 100 }, { force: true })).toMatchObject({
    throughSeq: 4,
    boundary: 'user',
  });
  expect(choose(tail([user, ...step('a'), ...step('b')]), { messages: 100 }, { force: true })).toMatchObject({
    throughSeq: 3,
    carriedSeq: 1,
  });
});

test('a cut that evicts too much is moved forward, to a near user turn if there is one, and keeps at least half', () => {
  const bounded = (metas: MessageMeta[], most: number) =>
    boundedCut(metas, options, choose(metas, { messages: 1 })!, most).throughSeq;
  const talk = tail(Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? user : says)));
  expect(choose(talk, { messages: 1 })!.evictedTokens).toBe(180);
  expect(bounded(talk, 200)).toBe(18);
  expect(bounded(talk, 110)).toBe(10);
  const run = tail([user, ...Array.from({ length: 9 }, (_, index) => step(`c${index}`)).flat()]);
  expect(bounded(run, 100)).toBe(9);
  // One group larger than the bound goes whole.
  expect(bounded(tail([user, calls('a'), result('a'), user, says], { 3: 500 }), 100)).toBe(3);
});

const anyOptions = fc.record({
  keep: fc.record({ messages: fc.option(fc.nat(12)), tokens: fc.option(fc.nat(600)) }),
  now: fc.constantFrom(0, 1_000_000),
  deadCallAfterMs: fc.constant(600_000),
  closed: fc.boolean(),
  force: fc.boolean(),
});

test('any history: a legal cut separates no pair and evicts no call that can still be answered', () => {
  fc.assert(
    fc.property(histories, anyOptions, (messages, options) => {
      const metas = metasOf(logOf(messages, counter));
      const { answeredBy } = groupMessages(metas);
      const lastTurn = metas.findLastIndex(
        ({ role, empty }) => (role === 'user' || role === 'assistant') && !empty,
      );
      for (const cut of legalCuts(metas, options)) {
        answeredBy.forEach((answers, caller) =>
          answers.forEach((answer) => {
            if (caller + 1 > cut) return;
            if (answer !== null) expect(answer + 1).toBeLessThanOrEqual(cut);
            else
              expect(options.closed || (lastTurn > caller && options.now >= options.deadCallAfterMs)).toBe(
                true,
              );
          }),
        );
      }
    }),
  );
});

test('any history: the context after the chosen cut is valid, within the ceilings if possible, and has the newest user message', () => {
  fc.assert(
    fc.property(histories, anyOptions, (messages, options) => {
      const log = logOf(messages, counter);
      const { system, tail } = sourceOf(log);
      const metas = metasOf(log).slice(system.length);
      const cut = chooseCut(metas, options);
      if (cut === null) return;
      const smallest = cutCandidates(metas, options).at(-1)!;
      expect(cut.keptTokens).toBeLessThanOrEqual(
        Math.max(options.keep.tokens ?? Infinity, smallest.keptTokens + smallest.carriedTokens),
      );
      expect(legalCuts(metas, options)).toContain(cut.throughSeq);

      const kept = tail.filter(({ seq }) => seq > cut.throughSeq);
      const carried = log.find(({ seq }) => seq === cut.carriedSeq);
      const head = {
        messages: [{ role: 'user' as const, content: 'summary' }, ...(carried ? [carried.message] : [])],
        tokens: [6, ...(carried ? [carried.tokens] : [])],
        carriedSeq: cut.carriedSeq,
      };
      const shown = buildView({ system, head, tail: kept, reductions: [] }, counter).map(
        ({ message }) => message,
      );
      expect(linkViolations(shown)).toEqual([]);
      const newest = tail.findLast(
        ({ seq, message }) => message.role === 'user' && !metas.find((meta) => meta.seq === seq)!.empty,
      );
      if (newest) expect(shown).toContainEqual(newest.message);
      expect(cut.evictedTokens + cut.keptTokens).toBe(
        metas.reduce((sum, { tokens, empty }) => sum + (empty ? 0 : tokens), 0),
      );
    }),
    { numRuns: 300 },
  );
});

test('any history: on request, a cut is found if any legal one evicts and keeps something', () => {
  fc.assert(
    fc.property(histories, anyOptions, (messages, options) => {
      const log = logOf(messages, counter);
      const metas = metasOf(log).slice(sourceOf(log).system.length);
      const forced = chooseCut(metas, { ...options, force: true });
      expect(forced === null).toBe(cutCandidates(metas, options).length === 0);
    }),
  );
});

test('1,000 steps after one user message: the cut keeps the tail and carries the request', () => {
  const metas = tail([user, ...Array.from({ length: 1_000 }, (_, index) => step(`call_${index}`)).flat()]);
  expect(choose(metas, { messages: 6 })).toMatchObject({
    throughSeq: 1_995,
    carriedSeq: 1,
    boundary: 'assistant',
    keptMessages: 6,
  });
});

interface PeerCase {
  name: string;
  config: { checkCutIndex?: number; preserveThinkingLoops?: boolean };
  messages: ChatMessage[];
  expect: {
    cutSafe?: boolean;
    safeCutIndices?: number[];
    atomicGroups?: number[][];
    notGrouped?: number[][];
  };
}

/** A result whose id two open calls share: the peer pairs it with neither, here it answers the latest. */
const ownChoice = new Set(['ambiguous duplicate pending ids: result belongs to neither']);

const peerCases = process.env.PALIMPSEST_PEER_CASES;
if (!peerCases) console.log("cut.test.ts: PALIMPSEST_PEER_CASES is not set, peers' cases did not run");

describe.runIf(peerCases)("peers' cases", () => {
  const cases: PeerCase[] = peerCases
    ? JSON.parse(readFileSync(path.join(peerCases, 'cases.json'), 'utf8'))
    : [];

  test.each(cases.filter(({ config }) => config.checkCutIndex !== undefined))(
    '$name',
    ({ config, messages, expect: { cutSafe } }) => {
      expect(
        legalCuts(tail(messages, {}, 999_999), options).some((cut) => Number(cut) === config.checkCutIndex),
      ).toBe(cutSafe);
    },
  );

  test.each(
    cases.filter(
      ({ name, expect: { atomicGroups, notGrouped } }) =>
        (atomicGroups ?? notGrouped) && !ownChoice.has(name),
    ),
  )('$name', ({ messages, expect: { atomicGroups = [], notGrouped = [] } }) => {
    const { groups } = groupMessages(tail(messages));
    const together = (indexes: number[]) =>
      groups.some(({ from, to }) => indexes.every((index) => from <= index && index < to));
    for (const indexes of atomicGroups) expect(together(indexes)).toBe(true);
    for (const indexes of notGrouped) expect(together(indexes)).toBe(false);
  });

  test.each(
    cases.filter(({ config, expect: { safeCutIndices } }) => safeCutIndices && !config.preserveThinkingLoops),
  )('$name', ({ messages, expect: { safeCutIndices } }) => {
    expect(safeCuts(tail(messages), options)).toEqual(safeCutIndices);
  });

  test('every cut on request separates no pair', () => {
    for (const { name, messages } of cases) {
      const source = sourceOf(logOf(messages, counter));
      const cut = chooseCut(metasOf(source.tail), { ...options, closed: true, force: true });
      const kept = source.tail.filter(({ seq }) => seq > (cut?.throughSeq ?? 0));
      expect(
        linkViolations(buildView({ ...source, tail: kept }, counter).map(({ message }) => message)),
        name,
      ).toEqual([]);
    }
  });
});
