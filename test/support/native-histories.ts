/** Histories of other formats for property tests: as providers make them, mixed with what they would refuse. */
import fc from 'fast-check';
import type { Json } from '../../src/conversation/message.js';
import { texts } from './histories.js';

type Item = Record<string, Json>;

const ids = fc.constantFrom('toolu_1', 'toolu_2', 'a', 'b', 'call:3', 'call 3', '');
const names = fc.constantFrom('bash', 'read_file', 'functions.exec', 'x'.repeat(140));
const inputs = fc.oneof(
  fc.constant({}),
  texts.map((text) => ({ path: '/tmp/a', content: text, nested: { n: [1, null] } })),
);
const anyText = fc.oneof(
  { weight: 8, arbitrary: texts },
  { weight: 1, arbitrary: fc.constantFrom('', ' \n', 'ends  ') },
);
const mark = fc.option(fc.constant({ type: 'ephemeral' }), { nil: undefined, freq: 5 });

const clean = <T>(value: T): Item => JSON.parse(JSON.stringify(value)) as Item;
const block = <T extends object>(arbitrary: fc.Arbitrary<T>): fc.Arbitrary<Item> =>
  fc.tuple(arbitrary, mark).map(([fields, cache]) => clean({ ...fields, cache_control: cache }));

const text = block(anyText.map((value) => ({ type: 'text', text: value })));
const image = block(
  fc.constantFrom(
    { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } },
    { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
    { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'words' }, title: 'notes' },
    { type: 'document', source: { type: 'file', file_id: 'file_011' } },
  ),
);
const thinking = fc.oneof(
  texts.map((value) => clean({ type: 'thinking', thinking: value, signature: 'c2ln' })),
  fc.constant(clean({ type: 'redacted_thinking', data: 'abc=' })),
);
const server = fc.constantFrom(
  clean({ type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: { query: 'x' } }),
  clean({
    type: 'web_search_tool_result',
    tool_use_id: 'srvtoolu_1',
    content: [{ type: 'web_search_result', url: 'u', title: 't', encrypted_content: 'e' }],
  }),
  clean({ type: 'compaction', content: 'what came before' }),
  clean({ type: 'of_next_year', value: 7 }),
);
const use = block(fc.record({ type: fc.constant('tool_use'), id: ids, name: names, input: inputs }));
const result = block(
  fc.record(
    {
      type: fc.constant('tool_result'),
      tool_use_id: ids,
      content: fc.oneof(anyText, fc.array(fc.oneof(text, image), { maxLength: 3 })),
      is_error: fc.boolean(),
    },
    { requiredKeys: ['type', 'tool_use_id'] },
  ),
);

const message = (role: string, content: fc.Arbitrary<Json>): fc.Arbitrary<Item> =>
  content.map((value) => ({ role, content: value }));

/** An assistant's calls and their answers, some missing, in any order, in one message or in several. */
const batch: fc.Arbitrary<Item[]> = fc
  .record({
    before: fc.array(fc.oneof(text, thinking), { maxLength: 2 }),
    uses: fc.uniqueArray(use, { minLength: 1, maxLength: 4, selector: ({ id }) => id }),
    kept: fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }),
    reversed: fc.boolean(),
    split: fc.boolean(),
    after: fc.option(text),
    output: fc.oneof(anyText, fc.array(fc.oneof(text, image), { maxLength: 2 })),
  })
  .map(({ before, uses, kept, reversed, split, after, output }) => {
    const results = uses
      .filter((_, index) => kept[index] || index > 1)
      .map(({ id }): Item => ({ type: 'tool_result', tool_use_id: id!, content: output }));
    if (reversed) results.reverse();
    const contents = split ? results.map((one) => [one]) : [results];
    const users = contents
      .filter((content) => content.length > 0)
      .map((content): Item => ({ role: 'user', content: [...content, ...(after && !split ? [after] : [])] }));
    return [{ role: 'assistant', content: [...before, ...uses] }, ...users];
  });

const anything = fc.array(fc.oneof(text, image, thinking, server, use, result), { maxLength: 5 });

/** Messages of Anthropic's API; the first may be the system's. */
export const anthropicHistories: fc.Arbitrary<Item[]> = fc
  .tuple(
    fc.option(fc.oneof(anyText, fc.array(text, { minLength: 1, maxLength: 2 }))),
    fc.array(
      fc.oneof(
        { weight: 4, arbitrary: message('user', anyText).map((one) => [one]) },
        {
          weight: 3,
          arbitrary: message(
            'assistant',
            fc.array(fc.oneof(text, thinking, server), { minLength: 1, maxLength: 3 }),
          ).map((one) => [one]),
        },
        { weight: 6, arbitrary: batch },
        { weight: 2, arbitrary: message('user', anything).map((one) => [one]) },
        { weight: 2, arbitrary: message('assistant', anything).map((one) => [one]) },
        { weight: 1, arbitrary: message('system', anyText).map((one) => [one]) },
      ),
      { maxLength: 10 },
    ),
  )
  .map(([system, messages]) => [
    ...(system === null ? [] : [{ role: 'system', content: system }]),
    ...messages.flat(),
  ]);
