/** Call ids of a context: the ids that a search from the first number finds, in time that many calls of one id do not multiply. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { assignCallIds } from '../../../src/context/view/projection.js';
import { buildView } from '../../../src/context/view/view.js';
import type { ChatMessage, Json, MessageMeta } from '../../../src/conversation/message.js';
import { groupMessages } from '../../../src/conversation/groups.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { shownChat } from '../../support/formats.js';
import { logOf, sourceOf } from '../../support/histories.js';

/** A quadratic search among so many calls takes longer than the limit of a test. */
const many = 200_000;

const metaOf = (seq: number, ids: readonly (string | null)[]): MessageMeta => ({
  seq,
  role: 'assistant',
  tokens: 1,
  calls: ids.map((id) => ({ id, name: 'f' })),
  answers: null,
  empty: false,
  at: 0,
});

/** Searches from the first number each time. */
function searched(metas: readonly MessageMeta[]): string[][] {
  const used = new Set<string>();
  return metas.map(({ seq, calls }) =>
    calls.map(({ id }, number) => {
      const given = id ?? '';
      let unique = given === '' ? `call_${seq}_${number + 1}` : given;
      for (let attempt = 1; used.has(unique); attempt += 1) {
        const suffix = attempt === 1 ? `-${seq}` : `-${seq}-${attempt}`;
        unique = given.slice(0, 40 - suffix.length).replace(/[\uD800-\uDBFF]$/, '') + suffix;
      }
      used.add(unique);
      return unique;
    }),
  );
}

describe('assignCallIds', () => {
  test('gives the first unused id of each call', () => {
    const start = 'x'.repeat(33);
    const id = fc.oneof(
      fc.constantFrom(null, '', 'a', 'a-1', 'a-2', 'a-2-2', 'a-2-3', 'a-2-2-2', '-1', '-1-2', 'call_1_1'),
      fc.constantFrom('\u{1F600}', 'yz', 'abcdefg', 'abcdef-2', 'abc-2-10').map((end) => start + end),
    );
    fc.assert(
      fc.property(fc.array(fc.array(id, { maxLength: 40 }), { maxLength: 4 }), (messages) => {
        const metas = messages.map((ids, index) => metaOf(index + 1, ids));
        expect(assignCallIds(metas)).toEqual(searched(metas));
      }),
    );
  });

  test('continues after the numbers of each length', () => {
    const taken = Array.from({ length: 120 }, (_, number) => `c-2-${number}`);
    const metas = [
      metaOf(1, ['c', ...taken]),
      metaOf(
        2,
        Array.from({ length: 300 }, () => 'c'),
      ),
    ];
    expect(assignCallIds(metas)).toEqual(searched(metas));
  });

  test.each([
    ['one id', () => 'c'],
    ['no id beside ids that look alike', (number: number) => (number < many / 2 ? `-1-${number}` : '-1')],
    ['long ids that begin alike', (number: number) => 'x'.repeat(40) + String(number % (many / 2))],
  ])('takes linear time for %s', (_name, idOf) => {
    const [ids = []] = assignCallIds([
      metaOf(
        1,
        Array.from({ length: many }, (_, number) => idOf(number)),
      ),
    ]);
    expect(new Set(ids).size).toBe(many);
  });
});

const callsOf = (idOf: (number: number) => string, length = many): ChatMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: Array.from({ length }, (_, number) => ({
    id: idOf(number),
    type: 'function',
    function: { name: 'f', arguments: '{}' },
  })),
});

describe('a message with very many calls', () => {
  test('has a view, in which each call has its result', () => {
    const counter = counterFor('chars/4');
    const results = Array.from({ length: many / 2 }, (_, number): ChatMessage => ({
      role: 'tool',
      tool_call_id: 'c',
      content: String(number),
    }));
    const view = buildView(sourceOf(logOf([callsOf(() => 'c'), ...results], counter)), counter);
    expect(view).toHaveLength(1 + many);
    expect(view.slice(1, 4).map(({ message }) => message.content)).toEqual(['0', '1', '2']);
    expect(view.slice(1).every(({ source }, index) => (source === 'log') === index < many / 2)).toBe(true);
  });

  test('has its results in groups: equal calls are answered in order', () => {
    const results = Array.from({ length: many }, (_, index): MessageMeta => ({
      ...metaOf(index + 2, []),
      role: 'tool',
      answers: 'c',
    }));
    const { answeredBy, groups } = groupMessages([
      metaOf(
        1,
        Array.from({ length: many }, () => 'c'),
      ),
      ...results,
    ]);
    expect(groups).toEqual([{ from: 0, to: many + 1 }]);
    expect(answeredBy[0]).toEqual(results.map((_, index) => index + 1));
  });

  test.each(['anthropic', 'gemini'] as const)('is rendered for %s', (format) => {
    // These ids have the same valid form for Anthropic.
    const idOf = (number: number) =>
      number.toString(2).padStart(20, '0').replaceAll('0', '.').replaceAll('1', ',');
    const { messages } = shownChat([callsOf(idOf)], format);
    const field = format === 'anthropic' ? 'content' : 'parts';
    const sizes = messages.map((message) => (message as Record<string, Json[]>)[field]?.length);
    expect(sizes.slice(1)).toEqual([many, many]);
  });
});
