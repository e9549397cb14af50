/**
 * Items of the Responses API that belong together: programs with their calls, calls and outputs of every type, known or not.
 * They are one group by their call id, and are returned to the API unchanged.
 */
import { describe, expect, it } from 'vitest';
import { buildView } from '../../../src/context/view/view.js';
import { shownUnits } from '../../../src/formats/native.js';
import { openaiResponses } from '../../../src/formats/openai-responses.js';
import { groupMessages } from '../../../src/conversation/groups.js';
import type { Json } from '../../../src/conversation/message.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';
import { logged, shown } from '../../support/formats.js';
import { metasOf, sourceOf } from '../../support/histories.js';

const caller = { type: 'program', caller_id: 'p' };
const asked: Json = { role: 'user', content: 'Sum the sizes.' };
const program: Json = { type: 'program', id: 'prog_1', call_id: 'p', code: 'await ls()', fingerprint: 'f' };

const call = (id: string): Json => ({
  ...{ type: 'function_call', id: `fc_${id}`, call_id: id, name: 'ls', arguments: '{}' },
  caller,
});

const output = (id: string): Json => ({
  type: 'function_call_output',
  call_id: id,
  output: `size of ${id}`,
  caller,
});

const ended: Json = { type: 'program_output', id: 'po_1', call_id: 'p', result: '42', status: 'completed' };

const told: Json = {
  type: 'message',
  role: 'assistant',
  content: [{ type: 'output_text', text: '42 bytes.' }],
};

const whole = [
  asked,
  program,
  call('a'),
  call('b'),
  output('a'),
  output('b'),
  call('c'),
  output('c'),
  ended,
  told,
];

const input = (...turns: Json[][]): Json[] => {
  const rendered = shown(logged(turns, 'openai-responses'), 'openai-responses');
  expect(openaiResponses.violations(rendered)).toEqual([]);
  return rendered.messages;
};

const messagesOf = (...items: Json[]) =>
  openaiResponses.normalize(items, 'messages').flatMap(({ messages }) => messages);

describe('a program that calls tools', () => {
  it('is a call with a result, and one group with all its calls', () => {
    const log = logged([whole], 'openai-responses');
    expect(log.map(({ message: { role, tool_call_id: id } }) => [role, id])).toEqual([
      ...[
        ['user', undefined],
        ['assistant', undefined],
        ['tool', 'a'],
        ['tool', 'b'],
      ],
      ...[
        ['assistant', undefined],
        ['tool', 'c'],
        ['tool', 'p'],
        ['assistant', undefined],
      ],
    ]);
    expect(log[1]!.message.tool_calls!.map(({ function: called }) => called)).toEqual([
      { name: 'program', arguments: '{"code":"await ls()","fingerprint":"f"}' },
      { name: 'ls', arguments: '{}' },
      { name: 'ls', arguments: '{}' },
    ]);
    expect(log[6]!.message.content).toBe('42');
    expect(groupMessages(metasOf(log)).groups).toEqual([
      ...[
        { from: 0, to: 1 },
        { from: 1, to: 7 },
        { from: 7, to: 8 },
      ],
    ]);
  });

  it('is shown unchanged, for any division into turns', () => {
    expect(input(whole)).toEqual(whole);
    expect(input(whole.slice(0, 4), whole.slice(4, 7), whole.slice(7, 8), whole.slice(8))).toEqual(whole);
  });

  it('has no result only while it waits for its calls', () => {
    for (const end of [4, 6, 8])
      expect(input(whole.slice(0, end)).slice(0, end)).toEqual(whole.slice(0, end));
    expect(input(whole.slice(0, 6))).toEqual(whole.slice(0, 6));
    expect(input(whole.slice(0, 4)).slice(4)).toEqual([
      { ...(output('a') as object), output: '(no result recorded)' },
      { ...(output('b') as object), output: '(no result recorded)' },
    ]);
  });

  it('is an ordinary function call with all its calls if it was interrupted', () => {
    const [, first, ...rest] = input([...whole.slice(0, 6), asked]);
    expect(first).toEqual({
      ...{ type: 'function_call', call_id: 'p', name: 'program' },
      arguments: '{"code":"await ls()","fingerprint":"f"}',
    });
    expect(rest.map((item) => (item as { type?: string }).type)).toEqual([
      ...[
        'function_call',
        'function_call',
        'function_call_output',
        'function_call_output',
        'function_call_output',
        undefined,
      ],
    ]);
    expect(JSON.stringify(rest)).not.toContain('caller');
  });

  it('keeps its calls if one of the results is shortened', () => {
    const log = logged([whole], 'openai-responses');
    const counter = counterFor('chars/4');
    const short = { role: 'tool' as const, tool_call_id: 'a', content: '[…]' };
    const reductions = [
      {
        fromSeq: 3,
        throughSeq: 3,
        kind: 'tool_result' as const,
        body: JSON.stringify(short),
        tokens: countMessage(short, counter),
      },
    ];
    const view = buildView({ ...sourceOf(log), reductions }, counter);
    const bySeq = new Map(log.map((message) => [message.seq, message]));
    const rendered = openaiResponses.render(shownUnits(view, bySeq, 'openai-responses'));
    expect(openaiResponses.violations(rendered)).toEqual([]);
    const shortened = { type: 'function_call_output', call_id: 'a', output: '[…]', caller };
    expect(rendered.messages).toEqual(whole.map((item, index) => (index === 4 ? shortened : item)));
  });

  it.each<[string, Json[]]>([
    ['input 0: called by the program p, which does not run', [call('a'), output('a')]],
    ['input 2: called by the program p, which does not run', [program, ended, call('a'), output('a')]],
    [
      'input 1: program_output answers a function_call',
      [{ type: 'function_call', call_id: 'p', name: 'x', arguments: '{}' }, ended],
    ],
    [
      'input 0: an approval without its request',
      [{ type: 'mcp_approval_response', approval_request_id: 'm', approve: true }],
    ],
    ['input 0: a compaction trigger before other items', [{ type: 'compaction_trigger' }, asked]],
  ])('finds invalid content: %s', (violation, messages) => {
    expect(openaiResponses.violations({ messages })).toContain(violation);
  });
});

describe('calls and outputs of any type', () => {
  const pairs: [string, Json, Json, string][] = [
    [
      'a search for tools',
      { type: 'tool_search_call', id: 't', call_id: 'x', execution: 'client', arguments: { query: 'mail' } },
      { type: 'tool_search_output', call_id: 'x', tools: [{ type: 'function', name: 'send_mail' }] },
      '{"tools":[{"type":"function","name":"send_mail"}]}',
    ],
    [
      'a patch that failed without a word',
      {
        type: 'apply_patch_call',
        call_id: 'x',
        status: 'completed',
        operation: { type: 'delete_file', path: 'a' },
      },
      { type: 'apply_patch_call_output', call_id: 'x', status: 'failed' },
      '{"status":"failed"}',
    ],
    [
      'a shell',
      { type: 'shell_call', call_id: 'x', action: { commands: ['ls'] } },
      {
        type: 'shell_call_output',
        call_id: 'x',
        output: [{ stdout: 'a.txt', stderr: '', outcome: { type: 'exit', exit_code: 0 } }],
      },
      '[{"stdout":"a.txt","stderr":"","outcome":{"type":"exit","exit_code":0}}]',
    ],
    [
      'a local shell, whose output has the id of the call',
      {
        type: 'local_shell_call',
        id: 'l',
        call_id: 'x',
        status: 'completed',
        action: { type: 'exec', command: ['ls'], env: {} },
      },
      { type: 'local_shell_call_output', id: 'x', output: 'a.txt' },
      'a.txt',
    ],
    [
      'a tool of next year',
      { type: 'time_travel', call_id: 'x', year: 2031 },
      { type: 'time_travel_output', call_id: 'x', outcome: { year: 2031 } },
      '{"outcome":{"year":2031}}',
    ],
  ];

  it.each(pairs)('%s: a group, shown unchanged', (_title, made, answer, text) => {
    const items = [asked, made, asked, answer, told];
    const log = logged([items], 'openai-responses');
    expect(log[3]!.message).toEqual({ role: 'tool', tool_call_id: 'x', content: text });
    expect(groupMessages(metasOf(log)).groups).toEqual([
      ...[
        { from: 0, to: 1 },
        { from: 1, to: 4 },
        { from: 4, to: 5 },
      ],
    ]);
    expect(input(items)).toEqual([asked, made, answer, asked, told]);
  });

  it('the output of a local shell may name its call by the id of the item', () => {
    const made: Json = {
      ...{ type: 'local_shell_call', id: 'l', call_id: 'x', status: 'completed' },
      action: { type: 'exec', command: ['ls'], env: {} },
    };
    const answer: Json = { type: 'local_shell_call_output', id: 'l', output: 'a.txt' };
    const items = [asked, made, answer, told];
    expect(messagesOf(...items)[2]).toEqual({ role: 'tool', tool_call_id: 'x', content: 'a.txt' });
    expect(input(items)).toEqual([asked, made, { ...(answer as object), id: 'x' }, told]);
  });

  it.each(pairs)('%s: a function call if its output is not shown', (_title, made) => {
    expect((input([asked, made])[1] as { type: string }).type).toBe('function_call');
  });

  it("findings of OpenAI's hosted tools are shown as text", () => {
    const items: Json[] = [
      asked,
      { type: 'tool_search_call', id: 't', call_id: null, execution: 'server', arguments: {} },
      { type: 'tool_search_output', id: 'o', call_id: null, execution: 'server', tools: [] },
      told,
    ];
    expect(messagesOf(...items).map(({ role }) => role)).toEqual(['user', 'assistant']);
    expect(input(items)).toEqual(items);
  });

  it('a generated image is an image, with its tokens', () => {
    const data = 'iVBORw0KGgo='.repeat(30);
    const items: Json[] = [
      asked,
      { type: 'image_generation_call', id: 'ig', status: 'completed', result: data },
    ];
    const log = logged([items], 'openai-responses');
    expect(log[1]!.message.content).toEqual([
      { type: 'text', text: '[image_generation_call] {"id":"ig","status":"completed"}' },
      { type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } },
    ]);
    expect(log[1]!.tokens).toBeGreaterThan(80);
    expect(input(items)).toEqual(items);
  });

  it('a request to compact is not shown; tools that a developer adds, references and approvals stay', () => {
    const kept: Json[] = [
      { type: 'additional_tools', role: 'developer', tools: [] },
      asked,
      { id: 'msg_9' },
      { type: 'mcp_approval_request', id: 'm', name: 'n', arguments: '{}', server_label: 's' },
      { type: 'mcp_approval_response', approval_request_id: 'm', approve: true },
    ];
    expect(input([...kept, { type: 'compaction_trigger' }])).toEqual(kept);
  });

  it('a call recorded without arguments has none', () => {
    const items: Json[] = [
      { type: 'function_call', call_id: 'x', name: 'ls', arguments: null },
      { type: 'function_call_output', call_id: 'x', output: 'a.txt' },
    ];
    expect(messagesOf(...items)[0]!.tool_calls![0]!.function).toEqual({ name: 'ls', arguments: '{}' });
    expect(input(items)).toEqual([{ ...(items[0] as object), arguments: '{}' }, items[1]]);
  });
});
