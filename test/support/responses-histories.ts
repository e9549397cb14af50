/** Random histories in the formats of OpenAI Responses and of Codex: valid ones, mixed with defects that are refused. */
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
  itemIds,
  names,
  png,
  record,
  type,
  type Item,
} from './item-parts.js';

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
  { id: 'msg_8' },
  { type: 'compaction_trigger' },
  { type: 'additional_tools', id: 'at_1', role: 'developer', tools: [{ type: 'web_search' }] },
  { type: 'tool_search_call', id: 'ts_1', call_id: null, execution: 'server', arguments: { query: 'x' } },
  { type: 'tool_search_output', id: 'tso_1', call_id: null, execution: 'server', tools: [] },
  { type: 'mcp_approval_request', id: 'mcpr_1', name: 'n', arguments: '{}', server_label: 's' },
  { type: 'mcp_approval_response', approval_request_id: 'mcpr_1', approve: true },
  { type: 'mcp_approval_response', approval_request_id: 'mcpr_2', approve: false },
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
    kind: fc.nat(11),
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
    if (kind === 3) return { ...pairOf('shell_call', { action: { commands: [text] } }, [{ stdout: text }]) };
    if (kind === 4)
      return {
        call: clean({
          type: 'apply_patch_call',
          call_id: id,
          id: item,
          operation: { type: 'delete_file', path: 'a' },
        }),
        output: { type: 'apply_patch_call_output', call_id: id, status: 'failed' },
      };
    if (kind === 5)
      return {
        call: clean({
          type: 'tool_search_call',
          call_id: id,
          id: item,
          execution: 'client',
          arguments: input,
        }),
        output: {
          type: 'tool_search_output',
          call_id: id,
          tools: [{ type: 'function', name, parameters: {} }],
        },
      };
    if (kind === 6)
      return {
        call: clean({ type: 'time_travel', call_id: id, id: item, year: text }),
        output: { type: 'time_travel_output', call_id: id, outcome: text },
      };
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
/** A program, its calls in steps and, if it has one, its result at the end. Some ids are used again. */
const program = fc
  .record({
    id: fc.constantFrom('prog_1', 'prog_2', 'a'),
    item: itemIds,
    code: anyText,
    steps: fc.array(fc.uniqueArray(pair, { maxLength: 2, selector: ({ call }) => call.call_id }), {
      maxLength: 2,
    }),
    result: fc.option(anyText, { nil: null, freq: 3 }),
    interrupted: fc.option(asked, { nil: null, freq: 6 }),
    before: fc.array(thought, { maxLength: 1 }),
    answering,
  })
  .map(({ id, item, code, steps, result, interrupted, before, answering: how }): Item[] => {
    const caller = { type: 'program', caller_id: id };
    const called = steps.flatMap((step) => [
      ...step.map(({ call }): Item => ({ ...call, caller })),
      ...answers(step, how).map(({ output }): Item => ({ ...output, caller })),
    ]);
    return [
      ...before,
      clean({ type: 'program', id: item, call_id: id, code, fingerprint: 'fp' }),
      ...called,
      ...(interrupted ? [interrupted] : []),
      ...(result === null ? [] : [{ type: 'program_output', call_id: id, result, status: 'completed' }]),
    ];
  });
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
        { weight: 3, arbitrary: program },
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
/** Lines of a Codex rollout. */
export const codexHistories: fc.Arbitrary<Item[]> = fc
  .tuple(responsesHistories, fc.array(fc.tuple(fc.nat(30), noise), { maxLength: 6 }))
  .map(([items, extra]) => {
    const lines = items
      .filter((item) => !('palimpsest.document' in item))
      .map((payload): Item => ({ timestamp: 't', type: 'response_item', payload }));
    for (const [at, line] of extra) lines.splice(at, 0, line);
    return [{ timestamp: 't', type: 'session_meta', payload: { id: 's', instructions: null } }, ...lines];
  });
