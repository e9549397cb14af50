/** OpenAI Responses: the meaning of items, and the items that a context may show unchanged. */
import { describe, expect, it } from 'vitest';
import { openaiResponses } from '../../../src/formats/openai-responses.js';
import type { ChatMessage, Json } from '../../../src/conversation/message.js';
import { logged, shown, shownChat } from '../../support/formats.js';
import { closeDocument } from '../../../src/formats/documents.js';
import { fileText } from '../../support/native-files.js';
import { each, joined } from '../../support/texts.js';

const messagesOf = (...items: Json[]) =>
  openaiResponses.normalize(items, 'messages').flatMap(({ messages }) => messages);

const asked = (text: string): Json => ({ role: 'user', content: text });

const told = (text: string, more = {}): Json => ({
  type: 'message',
  role: 'assistant',
  content: [{ type: 'output_text', text }],
  ...more,
});

const thought: Json = {
  type: 'reasoning',
  id: 'rs_1',
  summary: [{ type: 'summary_text', text: 'ls will do' }],
  encrypted_content: 'gAAAA',
};

const call: Json = {
  type: 'function_call',
  id: 'fc_1',
  call_id: 'call_1',
  name: 'bash',
  arguments: '{"command":"ls"}',
};

const output: Json = { type: 'function_call_output', call_id: 'call_1', output: 'a.txt' };

describe('the meaning of items of the Responses API', () => {
  it('is one message for consecutive items of the assistant', () => {
    const items = [asked('List the files.'), thought, told('Looking.'), call, output, told('Done.')];
    const units = openaiResponses.normalize(items, 'messages');
    expect(units.map((unit) => unit.items.length)).toEqual([1, 3, 1, 1]);
    expect(units.flatMap(({ messages }) => messages)).toEqual([
      { role: 'user', content: 'List the files.' },
      {
        role: 'assistant',
        content: 'Looking.',
        reasoning_content: 'ls will do',
        tool_calls: [
          { id: 'call_1', type: 'function', function: { name: 'bash', arguments: '{"command":"ls"}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'call_1', content: 'a.txt' },
      { role: 'assistant', content: 'Done.' },
    ]);
  });

  it('has images and files in the form in which tokens are counted', () => {
    const [message] = messagesOf({
      role: 'user',
      content: [
        { type: 'input_image', image_url: 'data:image/png;base64,iVBORw0KGgo=', detail: 'low' },
        { type: 'input_image', file_id: 'file_1' },
        { type: 'input_file', filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' },
      ],
    });
    expect(message!.content).toEqual([
      { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=', detail: 'low' } },
      { type: 'image_file', image_file: { file_id: 'file_1' } },
      { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' } },
    ]);
  });

  it('shows calls of hosted tools and unknown items as text, and every call with an output as a call', () => {
    expect(
      messagesOf(
        { type: 'web_search_call', id: 'ws_1', action: { query: 'x' } },
        { type: 'of_next_year', value: 7 },
        { type: 'local_shell_call', call_id: 'c', status: 'completed', action: { command: ['ls'] } },
        { type: 'custom_tool_call', call_id: 'd', name: 'patch', input: '*** Begin' },
        { type: 'local_shell_call_output', call_id: 'c', output: 'a.txt' },
        { type: 'custom_tool_call_output', call_id: 'd', output: [{ type: 'input_text', text: 'ok' }] },
      ),
    ).toEqual([
      {
        role: 'assistant',
        content: [
          { type: 'text', text: '[web_search_call] {"id":"ws_1","action":{"query":"x"}}' },
          { type: 'text', text: '[of_next_year] {"value":7}' },
        ],
        tool_calls: [
          {
            id: 'c',
            type: 'function',
            function: { name: 'local_shell', arguments: '{"action":{"command":["ls"]}}' },
          },
          { id: 'd', type: 'custom', custom: { name: 'patch', input: '*** Begin' } },
        ],
      },
      { role: 'tool', tool_call_id: 'c', content: 'a.txt' },
      { role: 'tool', tool_call_id: 'd', content: 'ok' },
    ]);
  });

  it.each<[Json, string]>([
    [7, 'messages[0]'],
    [{ content: 'x' }, 'messages[0].type'],
    [{ type: 3 }, 'messages[0].type'],
    [{ role: 'tool', content: 'x' }, 'messages[0].role'],
    [{ role: 'user', content: 3 }, 'messages[0].content'],
    [{ role: 'user', content: ['x'] }, 'messages[0].content[0]'],
    [{ role: 'user', content: [{ type: 'input_text' }] }, 'messages[0].content[0].text'],
    [{ type: 'function_call', call_id: 'a', arguments: '{}' }, 'messages[0].name'],
    [{ type: 'function_call', call_id: 'a', name: 'b', arguments: {} }, 'messages[0].arguments'],
    [{ type: 'function_call_output', call_id: 7, output: '' }, 'messages[0].call_id'],
  ])('refuses %j with the path of the field', (item, path) => {
    expect(() => openaiResponses.normalize([item], 'messages')).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path }),
    );
  });
});

describe('a context as input of the Responses API', () => {
  it('shows originals unchanged, reasoning with the items to which it led', () => {
    const items = [
      asked('List.'),
      thought,
      call,
      output,
      told('Done.', { id: 'msg_1', status: 'completed' }),
    ];
    expect(shown(logged([items], 'openai-responses'), 'openai-responses')).toEqual({ messages: items });
  });

  it('does not show reasoning without following items, and keeps it in the log', () => {
    const log = logged([[asked('Hi'), thought], [asked('Still there?')]], 'openai-responses');
    expect(log[1]!.native!.items).toEqual([thought]);
    expect(shown(log, 'openai-responses').messages).toEqual([asked('Hi'), asked('Still there?')]);
  });

  it('returns instructions apart from the input', async () => {
    const document = { model: 'gpt-5', instructions: 'Be brief.', input: [asked('Hi')] };
    const opened = openaiResponses.open!(document, 'document')!;
    const rendered = shown(logged([opened.items], 'openai-responses'), 'openai-responses');
    expect(rendered).toEqual({ system: 'Be brief.', messages: [asked('Hi')] });
    const text = await joined(closeDocument(each(opened.items), 'openai-responses'));
    expect(text).toBe(fileText(document, 'document'));
  });

  it('keeps the reasoning of a call whose id was used before, under a new id', () => {
    const again = [
      asked('Again.'),
      { ...(thought as object), id: 'rs_2' },
      { ...(call as object), id: 'fc_2' },
      output,
    ];
    const { messages } = shown(
      logged([[asked('List.'), thought, call, output], again], 'openai-responses'),
      'openai-responses',
    );
    expect(messages.slice(5)).toEqual([
      { ...(thought as object), id: 'rs_2' },
      { ...(call as object), id: 'fc_2', call_id: 'call_1-5' },
      { ...(output as object), call_id: 'call_1-5' },
    ]);
  });

  it('converts a second item with the same id', () => {
    const items = [asked('1'), told('one', { id: 'msg_1' }), asked('2'), told('two', { id: 'msg_1' })];
    const { messages } = shown(logged([items], 'openai-responses'), 'openai-responses');
    expect(messages[1]).toEqual(items[1]);
    expect(messages[3]).toEqual(told('two'));
  });

  it('shows a shell call without its output as a function call, whose output can be a text', () => {
    const shell: Json = { type: 'local_shell_call', call_id: 'c', action: { command: ['ls'] } };
    const { messages } = shown(logged([[asked('ls'), shell]], 'openai-responses'), 'openai-responses');
    expect(messages.slice(1)).toEqual([
      {
        type: 'function_call',
        call_id: 'c',
        name: 'local_shell',
        arguments: '{"action":{"command":["ls"]}}',
      },
      { type: 'function_call_output', call_id: 'c', output: '(no result recorded)' },
    ]);
  });

  it('makes items of chat messages', () => {
    const chat: ChatMessage[] = [
      { role: 'system', content: 'Be brief.' },
      { role: 'user', name: 'ann', content: 'Hi' },
      { role: 'assistant', content: null, function_call: { name: 'ls', arguments: '{}' } },
      { role: 'function', name: 'ls', content: 'a.txt' },
      { role: 'assistant', content: 'Done.', refusal: 'No more.' },
    ];
    expect(shownChat(chat, 'openai-responses')).toEqual({
      system: 'Be brief.',
      messages: [
        {
          type: 'message',
          role: 'user',
          content: [
            { type: 'input_text', text: '[ann]' },
            { type: 'input_text', text: 'Hi' },
          ],
        },
        { type: 'function_call', call_id: 'call_legacy_1', name: 'ls', arguments: '{}' },
        { type: 'function_call_output', call_id: 'call_legacy_1', output: 'a.txt' },
        {
          type: 'message',
          role: 'assistant',
          content: [
            { type: 'output_text', text: 'Done.' },
            { type: 'refusal', refusal: 'No more.' },
          ],
        },
      ],
    });
  });

  it.each<[string, Json[]]>([
    ['call call_1 has no output after it', [call]],
    ['input 0: output for call_1 without its call', [output]],
    ['input 0: reasoning that nothing of the assistant follows', [thought, asked('x')]],
    ['input 1: item id a used twice', [told('x', { id: 'a' }), told('y', { id: 'a' })]],
    ['input 0: empty message', [asked(' ')]],
    [
      'input 0: a part of type input_text in a message of assistant',
      [{ role: 'assistant', content: [{ type: 'input_text', text: 'x' }] }],
    ],
    [
      'input 1: custom_tool_call_output answers a function_call',
      [call, { type: 'custom_tool_call_output', call_id: 'call_1', output: '' }],
    ],
  ])('finds invalid content: %s', (violation, messages) => {
    expect(openaiResponses.violations({ messages })).toContain(violation);
  });
});
