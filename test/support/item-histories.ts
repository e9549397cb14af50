/** Random histories in the formats of OpenAI Responses, Codex, LangChain and the AI SDK: as they are made, mixed with what is refused. */
import fc from 'fast-check';
import type { Json } from '../../src/conversation/message.js';
import { texts } from './histories.js';

export type Item = Record<string, Json>;

const callIds = fc.constantFrom('call_1', 'call_2', 'a', 'b', '');
const itemIds = fc.option(fc.constantFrom('id_1', 'id_2', 'id_3', 'id_4', 'id_5', 'id_6'), {
  nil: undefined,
  freq: 3,
});
const names = fc.constantFrom('bash', 'read_file', 'web_search');
const inputs: fc.Arbitrary<Item> = fc.oneof(
  fc.constant({}),
  texts.map((text) => ({ path: '/tmp/a', content: text, nested: { n: [1, null] } })),
);
const anyText = fc.oneof(
  { weight: 8, arbitrary: texts },
  { weight: 1, arbitrary: fc.constantFrom('', ' \n', 'ends  ') },
);
const png = 'iVBORw0KGgo=';
const clean = (value: unknown): Item => JSON.parse(JSON.stringify(value)) as Item;
const record = (fields: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<Item> =>
  fc.record(fields).map(clean);
const type = (name: string) => fc.constant(name);

const flat = (turns: fc.Arbitrary<Item[]>): fc.Arbitrary<Item[]> =>
  fc.array(turns, { maxLength: 10 }).map((all) => all.flat());

/** Which calls are answered, and whether in turn. */
const answering = fc.record({
  answered: fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }),
  reversed: fc.boolean(),
});
function answers<T>(
  calls: readonly T[],
  { answered, reversed }: { answered: boolean[]; reversed: boolean },
): T[] {
  const kept = calls.filter((_, index) => answered[index] || index > 1);
  return reversed ? kept.reverse() : kept;
}

// OpenAI Responses

const inputPart: fc.Arbitrary<Item> = fc.oneof(
  { weight: 5, arbitrary: anyText.map((text) => ({ type: 'input_text', text })) },
  {
    weight: 1,
    arbitrary: fc.constantFrom<Item>(
      { type: 'input_image', image_url: `data:image/png;base64,${png}`, detail: 'low' },
      { type: 'input_image', file_id: 'file_1' },
      { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' },
    ),
  },
);
const asked: fc.Arbitrary<Item> = fc.oneof(
  anyText.map((content): Item => ({ role: 'user', content })),
  record({
    type: type('message'),
    role: fc.constantFrom('user', 'user', 'system', 'developer'),
    content: fc.array(inputPart, { maxLength: 3 }),
    id: itemIds,
  }),
);
const told = record({
  type: type('message'),
  role: type('assistant'),
  id: itemIds,
  content: fc.array(
    fc.oneof(
      anyText.map((text) => ({ type: 'output_text', text, annotations: [] })),
      texts.map((refusal) => ({ type: 'refusal', refusal })),
    ),
    { maxLength: 2 },
  ),
});
const thought = record({
  type: type('reasoning'),
  id: itemIds,
  summary: fc.array(
    anyText.map((text) => ({ type: 'summary_text', text })),
    { maxLength: 2 },
  ),
  encrypted_content: fc.constantFrom('gAAAAA==', null),
});
const hosted = fc.constantFrom<Item>(
  { type: 'web_search_call', id: 'ws_1', status: 'completed', action: { type: 'search', query: 'x' } },
  { type: 'image_generation_call', id: 'ig_1', status: 'completed', result: png.repeat(40) },
  { type: 'mcp_list_tools', id: 'mcpl_1', server_label: 's', tools: [] },
  { type: 'item_reference', id: 'msg_9' },
  { type: 'compaction', id: 'cmp_1', encrypted_content: 'gAAAA' },
  { type: 'of_next_year', value: 7 },
);
type Pair = { call: Item; output: Item };
const outputValue: fc.Arbitrary<Json> = fc.oneof(
  anyText,
  fc.array(inputPart, { minLength: 1, maxLength: 2 }),
);
const pair: fc.Arbitrary<Pair> = fc
  .record({
    id: callIds,
    name: names,
    input: inputs,
    text: anyText,
    output: outputValue,
    kind: fc.nat(7),
    item: itemIds,
  })
  .map(({ id, name, input, text, output, kind, item }): Pair => {
    const pairOf = (of: string, fields: Item, result: Json): Pair => ({
      call: clean({ type: of, call_id: id, id: item, ...fields }),
      output: { type: `${of}_output`, call_id: id, output: result },
    });
    if (kind === 0) return pairOf('custom_tool_call', { name, input: text }, text);
    if (kind === 1) return pairOf('local_shell_call', { action: { type: 'exec', command: [text] } }, text);
    if (kind === 2)
      return pairOf(
        'computer_call',
        { action: { type: 'click' } },
        { type: 'computer_screenshot', image_url: `data:image/png;base64,${png}` },
      );
    return pairOf('function_call', { name, arguments: JSON.stringify(input) }, output);
  });
const responsesBatch = fc
  .record({
    before: fc.array(fc.oneof(thought, told), { maxLength: 2 }),
    pairs: fc.uniqueArray(pair, { minLength: 1, maxLength: 4, selector: ({ call }) => call.call_id }),
    after: fc.array(fc.oneof(thought, told), { maxLength: 1 }),
    answering,
    between: fc.boolean(),
  })
  .map(({ before, pairs, after, answering: how, between }): Item[] =>
    between
      ? [...before, ...pairs.flatMap(({ call, output }) => [call, output])]
      : [
          ...before,
          ...pairs.map(({ call }) => call),
          ...after,
          ...answers(pairs, how).map(({ output }) => output),
        ],
  );
const instructions = fc.option(
  texts.map((text): Item[] => [{ 'palimpsest.document': { instructions: text, document: {}, lists: [] } }]),
  { nil: [] },
);

export const responsesHistories: fc.Arbitrary<Item[]> = fc
  .tuple(
    instructions,
    flat(
      fc.oneof(
        { weight: 4, arbitrary: asked.map((item) => [item]) },
        { weight: 4, arbitrary: fc.array(fc.oneof(thought, told, hosted), { minLength: 1, maxLength: 3 }) },
        { weight: 6, arbitrary: responsesBatch },
        { weight: 1, arbitrary: pair.map(({ output }) => [output]) },
      ),
    ),
  )
  .map(([first, rest]) => [...first, ...rest]);

const noise = fc.constantFrom<Item>(
  { timestamp: 't', type: 'event_msg', payload: { type: 'token_count', info: null } },
  { timestamp: 't', type: 'turn_context', payload: { model: 'gpt-5-codex' } },
  { timestamp: 't', type: 'compacted', payload: { message: 'so far' } },
  { timestamp: 't', type: 'response_item', payload: { type: 'ghost_snapshot', ghost_commit: {} } },
);
/** Lines of a rollout. */
export const codexHistories: fc.Arbitrary<Item[]> = fc
  .tuple(responsesHistories, fc.array(fc.tuple(fc.nat(30), noise), { maxLength: 6 }))
  .map(([items, extra]) => {
    const lines = items
      .filter((item) => !('palimpsest.document' in item))
      .map((payload): Item => ({ timestamp: 't', type: 'response_item', payload }));
    for (const [at, line] of extra) lines.splice(at, 0, line);
    return [{ timestamp: 't', type: 'session_meta', payload: { id: 's', instructions: null } }, ...lines];
  });

// LangChain

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

/** One form a history. */
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
