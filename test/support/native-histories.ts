/** Histories of other formats for property tests: valid ones, mixed with defects that providers would refuse. */
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

/** An assistant's calls and their answers, in one message or in several. The answers are in any order, and some are missing. */
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

const signed = fc.option(fc.constant('c2lnbmF0dXJl'), { nil: undefined, freq: 3 });
const functionIds = fc.option(fc.constantFrom('f1', 'f2', 'f 3'), { nil: undefined });
const functionNames = fc.constantFrom('bash', 'read_file', 'ns.exec', 'odd name');
const said = fc
  .tuple(anyText, signed, fc.option(fc.constant(true), { nil: undefined, freq: 3 }))
  .map(([value, thoughtSignature, thought]) => clean({ text: value, thought, thoughtSignature }));
const shownPart = fc.constantFrom(
  clean({ inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=' } }),
  clean({ inline_data: { mime_type: 'audio/ogg', data: 'T2dnUw==' } }),
  clean({ fileData: { mimeType: 'video/mp4', fileUri: 'gs://bucket/a.mp4' } }),
  clean({ executableCode: { language: 'PYTHON', code: 'print(1)' } }),
  clean({ codeExecutionResult: { outcome: 'OUTCOME_OK', output: '1' } }),
  clean({ ofNextYear: { value: 7 } }),
);
const functionCall = fc
  .record({ id: functionIds, name: functionNames, args: inputs, thoughtSignature: signed })
  .map(({ thoughtSignature, ...call }) => clean({ functionCall: call, thoughtSignature }));
const functionResponse = fc
  .record({
    id: functionIds,
    name: functionNames,
    response: fc.oneof(
      anyText.map((output) => ({ output })),
      texts.map((error) => ({ error, code: 1 })),
      fc.constant({}),
    ),
  })
  .map((response) => clean({ functionResponse: response }));

const content = (role: string, parts: fc.Arbitrary<Item[]>): fc.Arbitrary<Item[]> =>
  parts.map((value) => [{ role, parts: value }]);

const functionBatch: fc.Arbitrary<Item[]> = fc
  .record({
    before: fc.array(said, { maxLength: 2 }),
    calls: fc.array(functionCall, { minLength: 1, maxLength: 4 }),
    kept: fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }),
    role: fc.constantFrom('user', 'function'),
    after: fc.option(said),
    split: fc.boolean(),
    output: anyText,
  })
  .map(({ before, calls, kept, role, after, split, output }) => {
    const responses = calls
      .filter((_, index) => kept[index] || index > 1)
      .map(({ functionCall: call }): Item => {
        const { id, name } = call as Item;
        return clean({ functionResponse: { id, name, response: { output } } });
      });
    const contents = split ? responses.map((one) => [one]) : [[...responses, ...(after ? [after] : [])]];
    return [
      { role: 'model', parts: [...before, ...calls] },
      ...contents.filter((parts) => parts.length > 0).map((parts): Item => ({ role, parts })),
    ];
  });

const anyPart = fc.array(fc.oneof(said, shownPart, functionCall, functionResponse), { maxLength: 5 });

/** Contents of Gemini's API; the first may be the system instruction. */
export const geminiHistories: fc.Arbitrary<Item[]> = fc
  .tuple(
    fc.option(anyText.map((value) => ({ role: 'system', parts: [{ text: value }] }))),
    fc.array(
      fc.oneof(
        {
          weight: 4,
          arbitrary: content(
            'user',
            anyText.map((value) => [{ text: value }]),
          ),
        },
        {
          weight: 3,
          arbitrary: content('model', fc.array(fc.oneof(said, shownPart), { minLength: 1, maxLength: 3 })),
        },
        { weight: 6, arbitrary: functionBatch },
        { weight: 2, arbitrary: content('user', anyPart) },
        { weight: 2, arbitrary: content('model', anyPart) },
      ),
      { maxLength: 10 },
    ),
  )
  .map(([system, contents]) => [...(system === null ? [] : [system]), ...contents.flat()]);
