/** The AI SDK's messages: those for the model, and those a chat keeps. */
import { describe, expect, it } from 'vitest';
import { aiSdk } from '../../../src/formats/ai-sdk.js';
import type { Json } from '../../../src/conversation/message.js';
import { logged, shown, shownChat } from '../../support/formats.js';

const messagesOf = (...items: Json[]) =>
  aiSdk.normalize(items, 'messages').flatMap(({ messages }) => messages);

const calls: Json = {
  role: 'assistant',
  content: [
    { type: 'reasoning', text: 'hm', providerOptions: { anthropic: { signature: 's' } } },
    { type: 'text', text: 'Looking.' },
    { type: 'tool-call', toolCallId: 'a', toolName: 'bash', input: { command: 'ls' } },
    { type: 'tool-call', toolCallId: 'b', toolName: 'read', input: {} },
  ],
};

const results: Json = {
  role: 'tool',
  content: [
    { type: 'tool-result', toolCallId: 'a', toolName: 'bash', output: { type: 'json', value: { files: 1 } } },
    { type: 'tool-result', toolCallId: 'b', toolName: 'read', output: { type: 'error-text', value: 'gone' } },
  ],
};

describe('the meaning of ModelMessages', () => {
  it('is a message for each result', () => {
    const items = [{ role: 'system', content: 'Be brief.' }, { role: 'user', content: 'Hi' }, calls, results];
    expect(messagesOf(...items)).toEqual([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Hi' },
      {
        role: 'assistant',
        content: 'Looking.',
        reasoning_content: 'hm',
        tool_calls: [
          { id: 'a', type: 'function', function: { name: 'bash', arguments: '{"command":"ls"}' } },
          { id: 'b', type: 'function', function: { name: 'read', arguments: '{}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'a', name: 'bash', content: '{"files":1}' },
      { role: 'tool', tool_call_id: 'b', name: 'read', content: 'gone' },
    ]);
    expect(shown(logged([items], 'ai-sdk'), 'ai-sdk')).toEqual({ messages: items });
  });

  it('has pictures and files in the form in which tokens are counted', () => {
    const [message] = messagesOf({
      role: 'user',
      content: [
        { type: 'image', image: 'iVBORw0KGgo=' },
        { type: 'image', image: 'https://example.com/a.png' },
        { type: 'file', data: 'JVBERi0=', mediaType: 'application/pdf', filename: 'a.pdf' },
      ],
    });
    expect(message!.content).toEqual([
      { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
      { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
      { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' } },
    ]);
  });

  it.each<[Json, string]>([
    [{ content: 'x' }, 'messages[0].role'],
    [{ role: 'robot', content: 'x' }, 'messages[0].role'],
    [{ role: 'user', content: 3 }, 'messages[0].content'],
    [{ role: 'user', content: [{ type: 'text' }] }, 'messages[0].content[0].text'],
    [
      { role: 'assistant', content: [{ type: 'tool-call', toolName: 'x' }] },
      'messages[0].content[0].toolCallId',
    ],
    [
      { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'x' }] },
      'messages[0].content[0].toolName',
    ],
    [
      { role: 'tool', content: [{ type: 'tool-result', toolName: 'x', output: '' }] },
      'messages[0].content[0].toolCallId',
    ],
    [{ role: 'user', parts: [3] }, 'messages[0].parts[0]'],
  ])('refuses %j with the path of the field', (item, path) => {
    expect(() => aiSdk.normalize([item], 'messages')).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path }),
    );
  });
});

describe('the meaning of UIMessages', () => {
  const chat: Json[] = [
    {
      id: '1',
      role: 'user',
      parts: [
        { type: 'text', text: 'Weather?' },
        { type: 'file', mediaType: 'image/png', url: 'data:image/png;base64,iVBORw0KGgo=' },
      ],
    },
    {
      id: '2',
      role: 'assistant',
      parts: [
        { type: 'step-start' },
        { type: 'reasoning', text: 'hm', providerMetadata: { anthropic: { signature: 's' } } },
        {
          type: 'tool-weather',
          toolCallId: 'a',
          state: 'output-available',
          input: { city: 'Bern' },
          output: { celsius: 3 },
        },
        { type: 'step-start' },
        { type: 'text', text: 'Cold.', state: 'done' },
        { type: 'source-url', sourceId: 's', url: 'https://example.com' },
      ],
    },
  ];

  it('is a message for each step and each result', () => {
    expect(messagesOf(...chat).slice(1)).toEqual([
      {
        role: 'assistant',
        content: null,
        reasoning_content: 'hm',
        tool_calls: [
          { id: 'a', type: 'function', function: { name: 'weather', arguments: '{"city":"Bern"}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'a', name: 'weather', content: '{"celsius":3}' },
      { role: 'assistant', content: 'Cold.' },
    ]);
  });

  it("is shown as ModelMessages, with the provider's signatures", () => {
    const rendered = shown(logged([chat], 'ai-sdk'), 'ai-sdk');
    expect(rendered.messages).toEqual([
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Weather?' },
          { type: 'file', mediaType: 'image/png', data: 'data:image/png;base64,iVBORw0KGgo=' },
        ],
      },
      {
        role: 'assistant',
        content: [
          { type: 'reasoning', text: 'hm', providerOptions: { anthropic: { signature: 's' } } },
          { type: 'tool-call', toolCallId: 'a', toolName: 'weather', input: { city: 'Bern' } },
        ],
      },
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            toolCallId: 'a',
            toolName: 'weather',
            output: { type: 'json', value: { celsius: 3 } },
          },
        ],
      },
      { role: 'assistant', content: [{ type: 'text', text: 'Cold.' }] },
    ]);
    expect(aiSdk.violations(rendered)).toEqual([]);
  });
});

describe('a context as ModelMessages', () => {
  it('is made of chat messages', () => {
    expect(
      shownChat(
        [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'See' },
              { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
            ],
          },
          {
            role: 'assistant',
            content: null,
            tool_calls: [{ id: 'c', type: 'function', function: { name: 'ls', arguments: '{"a":1}' } }],
          },
        ],
        'ai-sdk',
      ).messages,
    ).toEqual([
      {
        role: 'user',
        content: [
          { type: 'text', text: 'See' },
          { type: 'image', image: 'https://example.com/a.png' },
        ],
      },
      {
        role: 'assistant',
        content: [{ type: 'tool-call', toolCallId: 'c', toolName: 'ls', input: { a: 1 } }],
      },
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            toolCallId: 'c',
            toolName: 'ls',
            output: { type: 'text', value: '(no result recorded)' },
          },
        ],
      },
    ]);
  });

  it.each<[string, Json[]]>([
    ['call a has no result', [calls]],
    ['message 1: call a has no result before it', [calls, { role: 'user', content: 'x' }]],
    ['message 0: result for a without its call before it', [results]],
    ['message 0: empty message', [{ role: 'user', content: [] }]],
    [
      'message 0: a part of type tool-call in a message of user',
      [{ role: 'user', content: [{ type: 'tool-call' }] }],
    ],
    ['message 0: file without mediaType', [{ role: 'user', content: [{ type: 'file', data: 'x' }] }]],
  ])('finds invalid content: %s', (violation, messages) => {
    expect(aiSdk.violations({ messages })).toContain(violation);
  });
});
