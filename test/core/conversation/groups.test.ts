/**
 * Messages that belong together are found by their order. Every case here occurs in recorded transcripts: ids are used again
 * within a turn and across turns, results come late, twice, not at all, or without an id.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { groupMessages } from '../../../src/conversation/groups.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { histories, logOf, metasOf } from '../../support/histories.js';

const counter = counterFor('chars/4');
const user: ChatMessage = { role: 'user', content: 'do it' };
const done: ChatMessage = { role: 'assistant', content: 'done' };

const calls = (...ids: string[]): ChatMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 'bash', arguments: '{}' } })),
});

const result = (id: string): ChatMessage => ({ role: 'tool', tool_call_id: id, content: `output of ${id}` });

function grouped(...messages: ChatMessage[]) {
  const { groups, answeredBy, orphans } = groupMessages(metasOf(logOf(messages, counter)));
  return { spans: groups.map(({ from, to }) => [from, to]), answeredBy, orphans: [...orphans] };
}

describe('a result answers a call', () => {
  test('with its id, in parallel calls and in any order', () => {
    expect(grouped(user, calls('a', 'b', 'c'), result('c'), result('a'), done)).toEqual({
      spans: [
        [0, 1],
        [1, 4],
        [4, 5],
      ],
      answeredBy: [[], [3, null, 2], [], [], []],
      orphans: [],
    });
  });

  test('of the latest message with an open one, if turns share an id', () => {
    expect(grouped(calls('a'), result('a'), calls('a'), result('a')).answeredBy).toEqual([[1], [], [3], []]);
    expect(grouped(calls('a'), calls('a'), result('a'), result('a')).answeredBy).toEqual([[3], [2], [], []]);
  });

  test('in call order, if one message uses an id twice', () => {
    expect(grouped(calls('a', 'a'), result('a'), result('a')).answeredBy).toEqual([[1, 2], [], []]);
  });

  test('by name if the call is a legacy function_call', () => {
    const call: ChatMessage = {
      role: 'assistant',
      content: null,
      function_call: { name: 'f', arguments: '{}' },
    };
    const answer: ChatMessage = { role: 'function', name: 'f', content: '1' };
    expect(grouped(call, answer, answer)).toMatchObject({ answeredBy: [[1], [], []], orphans: [2] });
    expect(grouped(call, { ...answer, name: 'g' })).toMatchObject({ answeredBy: [[null], []], orphans: [1] });
  });
});

describe('a result is an orphan', () => {
  test('when it comes before its call, twice, or without an id', () => {
    expect(
      grouped(result('a'), calls('a'), result('a'), result('a'), { role: 'tool', content: 'x' }),
    ).toMatchObject({
      answeredBy: [[], [2], [], [], []],
      orphans: [0, 3, 4],
    });
  });
});

describe('a group', () => {
  test('includes all messages between a call and its last result', () => {
    expect(grouped(user, calls('a', 'b'), result('a'), user, result('b'), done).spans).toEqual([
      [0, 1],
      [1, 5],
      [5, 6],
    ]);
  });

  test('includes groups that overlap it', () => {
    expect(grouped(calls('a'), calls('b'), result('a'), user, result('b'), done).spans).toEqual([
      [0, 5],
      [5, 6],
    ]);
  });

  test('of no messages is empty', () =>
    expect(grouped()).toEqual({ spans: [], answeredBy: [], orphans: [] }));
});

test('any history: groups partition it, pairs lie inside one group, every result is paired once or an orphan', () => {
  fc.assert(
    fc.property(histories, (messages) => {
      const { groups, answeredBy, orphans } = groupMessages(metasOf(logOf(messages, counter)));
      expect(groups.flatMap(({ from, to }) => Array.from({ length: to - from }, (_, i) => from + i))).toEqual(
        messages.map((_, i) => i),
      );
      const results = messages.flatMap(({ role }, index) =>
        role === 'tool' || role === 'function' ? [index] : [],
      );
      const paired = answeredBy.flatMap((answers, caller) =>
        answers.flatMap((answer) => {
          if (answer === null) return [];
          expect(answer).toBeGreaterThan(caller);
          expect(groups.some(({ from, to }) => from <= caller && answer < to)).toBe(true);
          return [answer];
        }),
      );
      expect([...paired, ...orphans].sort((a, b) => a - b)).toEqual(results);
    }),
  );
});

test('any history: messages appended later never change how earlier ones were paired', () => {
  fc.assert(
    fc.property(histories, fc.nat(), (messages, at) => {
      const metas = metasOf(logOf(messages, counter));
      const cut = at % (metas.length + 1);
      const before = groupMessages(metas.slice(0, cut));
      const after = groupMessages(metas);
      before.answeredBy.forEach((answers, caller) =>
        answers.forEach((answer, call) => {
          const later = after.answeredBy[caller]![call]!;
          if (answer === null) expect(later === null || later >= cut).toBe(true);
          else expect(later).toBe(answer);
        }),
      );
      expect([...after.orphans].filter((index) => index < cut)).toEqual([...before.orphans]);
    }),
  );
});

test('100,000 calls under one id are paired in linear time', () => {
  const metas = metasOf(
    logOf(
      [calls(...Array.from({ length: 5 }, () => 'a')), ...Array.from({ length: 5 }, () => result('a'))],
      counter,
    ),
  );
  const many = Array.from({ length: 20_000 }, (_, round) =>
    metas.map((meta, index) => ({ ...meta, seq: round * 6 + index + 1 })),
  ).flat();
  const { groups, orphans } = groupMessages(many);
  expect(groups).toHaveLength(20_000);
  expect(orphans.size).toBe(0);
});
