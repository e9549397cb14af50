/** Random histories in the formats of LangChain and of the AI SDK: valid ones, mixed with defects that are refused. */
import fc from 'fast-check';
import type { Json } from '../../src/conversation/message.js';
import { texts } from './histories.js';
import {
  answering,
  answers,
  anyText,
  callIds,
  clean,
  flat,
  inputs,
  names,
  png,
  record,
  type Item,
} from './item-parts.js';

const block: fc.Arbitrary<Item> = fc.oneof(
  { weight: 4, arbitrary: anyText.map((text) => ({ type: 'text', text })) },
  {
    weight: 2,
    arbitrary: fc.constantFrom<Item>(
      { type: 'image_url', image_url: { url: `data:image/png;base64,${png}` } },
      { type: 'image', source_type: 'base64', mime_type: 'image/png', data: png },
      { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } },
      { type: 'file', base64: 'JVBERi0=', mime_type: 'application/pdf', filename: 'a.pdf' },
      { type: 'of_next_year', value: 7 },
    ),
  },
);
const blocks: fc.Arbitrary<Json> = fc.oneof(anyText, fc.array(block, { maxLength: 3 }));
const thinking = texts.map((text): Item => ({ type: 'thinking', thinking: text, signature: 's' }));
type Message = { type: string; fields: Item };
const said = (of: string, content: fc.Arbitrary<Json>): fc.Arbitrary<Message[]> =>
  content.map((value) => [{ type: of, fields: { content: value } }]);
const langchainBatch = fc
  .record({
    text: blocks,
    calls: fc.uniqueArray(fc.record({ name: names, args: inputs, id: callIds }), {
      minLength: 1,
      maxLength: 4,
      selector: ({ id }) => id,
    }),
    broken: fc.boolean(),
    anthropic: fc.option(thinking),
    answering,
    output: blocks,
  })
  .map(({ text, calls, broken, anthropic, answering: how, output }): Message[] => {
    const uses = calls.map(({ name, args, id }): Item => ({ type: 'tool_use', id, name, input: args }));
    const content: Json = anthropic ? [anthropic, ...uses] : text;
    const valid = broken ? calls.slice(1) : calls;
    const invalid = broken
      ? calls.slice(0, 1).map(({ name, id }) => ({ name, id, args: '{"broken', error: null }))
      : [];
    return [
      {
        type: 'ai',
        fields: {
          content,
          tool_calls: valid.map((call): Item => ({ ...call, type: 'tool_call' })),
          invalid_tool_calls: invalid,
          response_metadata: { model: 'm' },
        },
      },
      ...answers([...invalid, ...valid], how).map(({ id, name }): Message => ({
        type: 'tool',
        fields: { content: output, tool_call_id: id, name },
      })),
    ];
  });
const classes: Record<string, string> = {
  human: 'HumanMessage',
  ai: 'AIMessage',
  system: 'SystemMessage',
  tool: 'ToolMessage',
  function: 'FunctionMessage',
  remove: 'RemoveMessage',
};

function serialised({ type: of, fields }: Message, form: number): Item {
  if (form === 0) return { type: of, ...fields };
  if (form === 1) return { type: of, data: { ...fields, type: of } };
  return {
    lc: 1,
    type: 'constructor',
    id: ['langchain', 'schema', 'messages', classes[of]!],
    kwargs: { ...fields, type: of },
  };
}

/** All messages of a history are serialised in one form. */
export const langchainHistories: fc.Arbitrary<Item[]> = fc
  .tuple(
    fc.nat(2),
    fc.array(
      fc.oneof(
        { weight: 4, arbitrary: said('human', blocks) },
        { weight: 3, arbitrary: said('ai', blocks) },
        { weight: 1, arbitrary: said('system', anyText) },
        { weight: 6, arbitrary: langchainBatch },
        {
          weight: 1,
          arbitrary: fc
            .tuple(callIds, blocks)
            .map(([id, content]): Message[] => [{ type: 'tool', fields: { content, tool_call_id: id } }]),
        },
        {
          weight: 1,
          arbitrary: fc.constant<Message[]>([{ type: 'remove', fields: { id: 'm1', content: '' } }]),
        },
        {
          weight: 1,
          arbitrary: fc.tuple(names, texts).map(([name, text]): Message[] => [
            {
              type: 'ai',
              fields: { content: '', additional_kwargs: { function_call: { name, arguments: text } } },
            },
            { type: 'function', fields: { name, content: text } },
          ]),
        },
      ),
      { maxLength: 10 },
    ),
  )
  .map(([form, messages]) =>
    [{ type: 'human', fields: { content: 'Begin.' } }, ...messages.flat()].map((message) =>
      serialised(message, form),
    ),
  );

// AI SDK

const userPart: fc.Arbitrary<Item> = fc.oneof(
  { weight: 4, arbitrary: anyText.map((text) => ({ type: 'text', text })) },
  {
    weight: 1,
    arbitrary: fc.constantFrom<Item>(
      { type: 'image', image: png },
      { type: 'image', image: 'https://example.com/a.png', mediaType: 'image/png' },
      { type: 'file', data: 'JVBERi0=', mediaType: 'application/pdf', filename: 'a.pdf' },
      { type: 'file', data: `data:image/png;base64,${png}`, mediaType: 'image/png' },
    ),
  },
);
const answerPart: fc.Arbitrary<Item> = fc.oneof(
  { weight: 4, arbitrary: anyText.map((text) => ({ type: 'text', text })) },
  {
    weight: 2,
    arbitrary: texts.map((text) => ({ type: 'reasoning', text, providerOptions: { a: { signature: 's' } } })),
  },
  {
    weight: 1,
    arbitrary: inputs.map((input) => ({
      type: 'tool-call',
      toolCallId: 'srv_1',
      toolName: 'web_search',
      input,
      providerExecuted: true,
    })),
  },
);
const output: fc.Arbitrary<Item> = fc.oneof(
  anyText.map((value) => ({ type: 'text', value })),
  anyText.map((value) => ({ type: 'error-text', value })),
  inputs.map((value) => ({ type: 'json', value })),
  anyText.map((text): Item => ({
    type: 'content',
    value: [
      { type: 'text', text },
      { type: 'media', data: png, mediaType: 'image/png' },
    ],
  })),
);
const calls = fc.uniqueArray(
  fc.record({ toolCallId: callIds.filter((id) => id !== ''), toolName: names, input: inputs, output }),
  {
    minLength: 1,
    maxLength: 4,
    selector: ({ toolCallId }) => toolCallId,
  },
);
const modelBatch = fc
  .record({ before: fc.array(answerPart, { maxLength: 2 }), calls, answering, together: fc.boolean() })
  .map(({ before, calls: made, answering: how, together }): Item[] => {
    const results = answers(made, how).map(({ toolCallId, toolName, output: value }): Item => ({
      type: 'tool-result',
      toolCallId,
      toolName,
      output: value,
    }));
    const contents = together && results.length > 0 ? [results] : results.map((one) => [one]);
    return [
      {
        role: 'assistant',
        content: [
          ...before,
          ...made.map(({ output: _output, ...call }): Item => ({ type: 'tool-call', ...call })),
        ],
      },
      ...contents.map((content): Item => ({ role: 'tool', content })),
    ];
  });
const states = ['output-available', 'output-error', 'input-available', 'input-streaming', 'output-denied'];
const uiPart: fc.Arbitrary<Item> = fc.oneof(
  anyText.map((text) => ({ type: 'text', text, state: 'done' })),
  texts.map((text) => ({ type: 'reasoning', text })),
  fc.constantFrom<Item>(
    { type: 'step-start' },
    { type: 'source-url', sourceId: 's', url: 'https://example.com' },
    { type: 'file', mediaType: 'image/png', url: `data:image/png;base64,${png}` },
    { type: 'data-weather', data: { celsius: 3 } },
  ),
  fc
    .record({
      toolCallId: callIds.filter((id) => id !== ''),
      input: inputs,
      output: fc.oneof<fc.Arbitrary<Json>[]>(anyText, inputs),
      state: fc.constantFrom(...states),
      dynamic: fc.boolean(),
      providerExecuted: fc.constantFrom(true, undefined, undefined, undefined),
    })
    .map(({ dynamic, ...part }) =>
      clean({
        ...(dynamic ? { type: 'dynamic-tool', toolName: 'bash' } : { type: 'tool-bash' }),
        ...part,
        errorText: 'failed',
      }),
    ),
);
const uiMessage: fc.Arbitrary<Item> = record({
  id: fc.constant('m'),
  role: fc.constantFrom('user', 'assistant', 'assistant', 'system'),
  parts: fc.array(uiPart, { maxLength: 5 }),
});

export const modelMessageHistories: fc.Arbitrary<Item[]> = flat(
  fc.oneof(
    {
      weight: 4,
      arbitrary: fc
        .oneof(anyText, fc.array(userPart, { maxLength: 3 }))
        .map((content): Item[] => [{ role: 'user', content }]),
    },
    {
      weight: 3,
      arbitrary: fc
        .oneof(anyText, fc.array(answerPart, { maxLength: 3 }))
        .map((content): Item[] => [{ role: 'assistant', content }]),
    },
    { weight: 1, arbitrary: anyText.map((content): Item[] => [{ role: 'system', content }]) },
    { weight: 6, arbitrary: modelBatch },
  ),
);
export const uiMessageHistories: fc.Arbitrary<Item[]> = fc.array(uiMessage, { maxLength: 8 });
