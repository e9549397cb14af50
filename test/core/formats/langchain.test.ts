/** LangChain messages: three serialized forms with one meaning. */
import { describe, expect, it } from 'vitest';
import { langchain } from '../../../src/formats/langchain.js';
import type { Json } from '../../../src/conversation/message.js';
import { logged, shown, shownChat } from '../../support/formats.js';

const messagesOf = (...items: Json[]) =>
  langchain.normalize(items, 'messages').flatMap(({ messages }) => messages);

const toolCall = { name: 'bash', args: { command: 'ls' }, id: 'call_1', type: 'tool_call' };

describe('the meaning of LangChain messages', () => {
  it.each<[string, Json[]]>([
    [
      'plain',
      [
        { type: 'human', content: 'List.', id: '1' },
        { type: 'ai', content: '', tool_calls: [toolCall], invalid_tool_calls: [] },
        { type: 'tool', content: 'a.txt', tool_call_id: 'call_1', status: 'success' },
      ],
    ],
    [
      'type and data',
      [
        { type: 'human', data: { content: 'List.', type: 'human' } },
        { type: 'ai', data: { content: '', tool_calls: [toolCall] } },
        { type: 'tool', data: { content: 'a.txt', tool_call_id: 'call_1' } },
      ],
    ],
    [
      'constructor',
      [
        {
          lc: 1,
          type: 'constructor',
          id: ['langchain', 'schema', 'messages', 'HumanMessage'],
          kwargs: { content: 'List.' },
        },
        {
          lc: 1,
          type: 'constructor',
          id: ['langchain_core', 'messages', 'AIMessageChunk'],
          kwargs: {
            content: [{ type: 'tool_use', id: 'call_1', name: 'bash', input: { command: 'ls' } }],
            tool_calls: [toolCall],
          },
        },
        {
          lc: 1,
          type: 'constructor',
          id: ['langchain', 'schema', 'messages', 'ToolMessage'],
          kwargs: { content: 'a.txt', tool_call_id: 'call_1' },
        },
      ],
    ],
  ])('is equal in the form %s', (_form, items) => {
    expect(messagesOf(...items)).toEqual([
      { role: 'user', content: 'List.' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [
          { id: 'call_1', type: 'function', function: { name: 'bash', arguments: '{"command":"ls"}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'call_1', content: 'a.txt' },
    ]);
    const rendered = shown(logged([items], 'langchain'), 'langchain');
    expect(rendered).toEqual({ messages: items });
    expect(langchain.violations(rendered)).toEqual([]);
  });

  it('reads thoughts, broken calls, calls of the provider and pictures', () => {
    expect(
      messagesOf(
        { type: 'ai', content: [{ type: 'thinking', thinking: 'hm' }, 'Well. '] },
        {
          type: 'ai',
          content: '',
          invalid_tool_calls: [{ name: 'bash', args: '{"a', id: 'x', error: null }],
        },
        {
          type: 'ai',
          content: '',
          additional_kwargs: {
            tool_calls: [{ id: 'y', type: 'function', function: { name: 'ls', arguments: '{}' } }],
          },
        },
        {
          type: 'human',
          content: [{ type: 'image', source_type: 'base64', mime_type: 'image/png', data: 'iVBORw0KGgo=' }],
        },
        { type: 'remove', content: '', id: 'm' },
      ),
    ).toEqual([
      { role: 'assistant', content: 'Well. ', reasoning_content: 'hm' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'x', type: 'function', function: { name: 'bash', arguments: '{"a' } }],
      },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'y', type: 'function', function: { name: 'ls', arguments: '{}' } }],
      },
      {
        role: 'user',
        content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } }],
      },
    ]);
  });

  it.each<[Json, string]>([
    [7, 'messages[0]'],
    [{ content: 'x' }, 'messages[0].type'],
    [{ type: 'martian', content: 'x' }, 'messages[0].type'],
    [{ type: 'human', content: 3 }, 'messages[0].content'],
    [{ type: 'human', data: { content: [{ text: 'x' }] } }, 'messages[0].data.content[0].type'],
    [{ type: 'ai', content: '', tool_calls: [{ args: {} }] }, 'messages[0].tool_calls[0].name'],
    [
      { lc: 1, type: 'constructor', id: ['ToolMessage'], kwargs: { content: '', tool_call_id: 3 } },
      'messages[0].kwargs.tool_call_id',
    ],
  ])('refuses %j with the path of the field', (item, path) => {
    expect(() => langchain.normalize([item], 'messages')).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path }),
    );
  });
});

describe('a context as LangChain messages', () => {
  it('is plain for a session of chat messages', () => {
    expect(
      shownChat(
        [
          { role: 'developer', content: 'Be brief.' },
          { role: 'user', content: 'List.' },
          {
            role: 'assistant',
            content: null,
            tool_calls: [{ id: 'c', type: 'function', function: { name: 'ls', arguments: '{"a":1}' } }],
          },
        ],
        'langchain',
      ),
    ).toEqual({
      messages: [
        { type: 'system', content: 'Be brief.', additional_kwargs: { __openai_role__: 'developer' } },
        { type: 'human', content: 'List.' },
        { type: 'ai', content: '', tool_calls: [{ name: 'ls', args: { a: 1 }, id: 'c', type: 'tool_call' }] },
        { type: 'tool', content: '(no result recorded)', tool_call_id: 'c' },
      ],
    });
  });

  it('has the form of the session, also if it is converted', () => {
    const items: Json[] = [
      { type: 'human', data: { content: 'List.', type: 'human' } },
      { type: 'ai', data: { content: '', type: 'ai', tool_calls: [toolCall] } },
    ];
    expect(shown(logged([items], 'langchain'), 'langchain').messages[2]).toEqual({
      type: 'tool',
      data: { content: '(no result recorded)', tool_call_id: 'call_1', type: 'tool' },
    });
  });

  it('keeps the data of a call whose id was used before', () => {
    const turn = (id: string): Json[] => [
      { type: 'human', content: 'Again.' },
      {
        type: 'ai',
        content: [
          { type: 'thinking', thinking: 'hm', signature: 's' },
          { type: 'tool_use', id: 'call_1', name: 'bash', input: {} },
        ],
        tool_calls: [toolCall],
        id,
      },
      { type: 'tool', content: 'ok', tool_call_id: 'call_1' },
    ];
    const { messages } = shown(logged([turn('1'), turn('2')], 'langchain'), 'langchain');
    expect(messages[4]).toEqual({
      type: 'ai',
      content: [
        { type: 'thinking', thinking: 'hm', signature: 's' },
        { type: 'tool_use', id: 'call_1-5', name: 'bash', input: {} },
      ],
      tool_calls: [{ ...toolCall, id: 'call_1-5' }],
      id: '2',
    });
    expect(langchain.violations({ messages })).toEqual([]);
  });

  it.each<[string, Json[]]>([
    ['call call_1 has no result', [{ type: 'ai', content: '', tool_calls: [toolCall] }]],
    [
      'message 1: call call_1 has no result directly after it',
      [
        { type: 'ai', content: '', tool_calls: [toolCall] },
        { type: 'human', content: 'x' },
      ],
    ],
    [
      'message 0: result for call_1 without its call before it',
      [{ type: 'tool', content: '', tool_call_id: 'call_1' }],
    ],
    ['message 0: result without tool_call_id', [{ type: 'tool', content: '' }]],
    ['message 0: empty human message', [{ type: 'human', content: '' }]],
  ])('finds invalid content: %s', (violation, messages) => {
    expect(langchain.violations({ messages })).toContain(violation);
  });
});
