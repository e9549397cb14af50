/** Digests recognize a message in every form in which a framework sends it, and no other message. */
import { describe, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { itemDigest, itemId } from '../../../src/formats/list-digest.js';

const result = (toolCallId: string, value = 'Found.', type = 'text') => ({
  ...{ type: 'tool-result', toolCallId, toolName: 'look', output: { type, value } },
});
const call = (toolCallId: string) => ({ type: 'tool-call', toolCallId, toolName: 'look', input: {} });
const request = (approvalId: string, toolCallId: string) => ({
  ...{ type: 'tool-approval-request', approvalId, toolCallId },
});

const same: [string, Json, Json][] = [
  [
    'form of a text',
    { role: 'assistant', content: 'Hi' },
    { role: 'assistant', content: [{ type: 'text', text: 'Hi' }] },
  ],
  [
    'empty texts',
    { role: 'assistant', content: null, name: 'a' },
    { role: 'assistant', content: '', name: 'a' },
  ],
  [
    'ids and empty fields',
    { role: 'user', content: 'Hi' },
    { id: 'm', content: 'Hi', name: null, role: 'user' },
  ],
  [
    'a wrapper of LangChain',
    { type: 'human', data: { content: 'Hi', type: 'human', additional_kwargs: {} } },
    { type: 'human', content: 'Hi' },
  ],
  [
    'reports of usage',
    { type: 'ai', data: { content: 'Hi' } },
    { type: 'ai', data: { content: 'Hi', usage_metadata: { input_tokens: 3 }, response_metadata: { a: 1 } } },
  ],
  [
    'cache marks',
    { role: 'user', content: [{ type: 'text', text: 'Hi', cache_control: { type: 'ephemeral' } }] },
    { role: 'user', content: [{ type: 'text', text: 'Hi' }], providerOptions: { anthropic: {} } },
  ],
  [
    'the order of results',
    { role: 'tool', content: [result('c2'), result('c1')] },
    {
      role: 'tool',
      content: [result('c1'), { ...result('c2'), providerOptions: { openai: { itemId: 'i' } } }],
    },
  ],
  [
    'the order of requests for approval',
    { role: 'assistant', content: [call('c1'), request('a1', 'c1'), call('c2'), request('a2', 'c2')] },
    { role: 'assistant', content: [call('c1'), call('c2'), request('a1', 'c1'), request('a2', 'c2')] },
  ],
  [
    'texts of errors',
    { role: 'tool', content: [result('c1', 'connect ECONNREFUSED', 'error-text')] },
    { role: 'tool', content: [result('c1', 'An error occurred.', 'error-text')] },
  ],
  [
    'empty texts and reasoning',
    {
      role: 'assistant',
      content: [{ type: 'reasoning', text: 'Hm.' }, { type: 'text', text: '' }, call('c1')],
    },
    { role: 'assistant', content: [call('c1')] },
  ],
];

const different: [string, Json, Json][] = [
  ['roles', { role: 'user', content: 'Hi' }, { role: 'assistant', content: 'Hi' }],
  ['types', { type: 'human', data: { content: 'Hi' } }, { type: 'ai', data: { content: 'Hi' } }],
  [
    'classes',
    { lc: 1, type: 'constructor', id: ['langchain', 'HumanMessage'], kwargs: { content: 'Hi' } },
    { lc: 1, type: 'constructor', id: ['langchain', 'AIMessage'], kwargs: { content: 'Hi' } },
  ],
  ['results', { role: 'tool', content: [result('c1')] }, { role: 'tool', content: [result('c1', 'Lost.')] }],
  [
    'failure',
    { role: 'tool', content: [result('c1')] },
    { role: 'tool', content: [result('c1', 'x', 'error-text')] },
  ],
  ['calls', { role: 'assistant', content: [call('c1')] }, { role: 'assistant', content: [call('c2')] }],
  [
    'order of texts',
    {
      role: 'user',
      content: [
        { type: 'text', text: 'a' },
        { type: 'text', text: 'b' },
      ],
    },
    {
      role: 'user',
      content: [
        { type: 'text', text: 'b' },
        { type: 'text', text: 'a' },
      ],
    },
  ],
];

describe('two items are the same', () => {
  test.each(same)('whatever %s they have', (_, one, other) =>
    expect(itemDigest(one)).toBe(itemDigest(other)),
  );
});

describe('two items are different', () => {
  test.each(different)('with other %s', (_, one, other) =>
    expect(itemDigest(one)).not.toBe(itemDigest(other)),
  );
});

test('the id of an item is that of its message', () => {
  expect(itemId({ id: 'm-1', role: 'user' })).toBe('m-1');
  expect(itemId({ type: 'human', data: { id: 'm-2', content: 'Hi' } })).toBe('m-2');
  expect(itemId({ type: 'human', data: { content: 'Hi' } })).toBeNull();
  expect(itemId({ lc: 1, type: 'constructor', id: ['a', 'HumanMessage'], kwargs: { id: 'm-3' } })).toBe(
    'm-3',
  );
});
