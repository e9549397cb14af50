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
    'the status of an item that is complete',
    { type: 'function_call', call_id: 'c', name: 'look', arguments: '{}', status: 'completed' },
    { type: 'function_call', call_id: 'c', name: 'look', arguments: '{}' },
  ],
  [
    'the type of a message',
    { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Hi', annotations: [] }] },
    { role: 'assistant', content: 'Hi' },
  ],
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
    'words for a refusal',
    { role: 'tool', content: [{ ...result('c1'), output: { type: 'execution-denied', reason: 'No.' } }] },
    { role: 'tool', content: [result('c1', 'No.', 'error-text')] },
  ],
  [
    'form of an input that is not JSON',
    { role: 'assistant', content: [{ ...call('c1'), input: '{"a": oh' }] },
    { role: 'assistant', content: [{ ...call('c1'), input: {} }] },
  ],
  [
    'mark of a result',
    { role: 'assistant', content: [call('c1'), { ...result('c1'), providerExecuted: true }] },
    { role: 'assistant', content: [call('c1'), result('c1')] },
  ],
  [
    'name of content blocks',
    { type: 'human', data: { content_blocks: [{ type: 'text', text: 'Hi' }] } },
    { type: 'human', data: { content: [{ type: 'text', text: 'Hi' }] } },
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
    'inputs',
    { role: 'assistant', content: [call('c1')] },
    { role: 'assistant', content: [{ ...call('c1'), input: { order: 1 } }] },
  ],
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

test('arguments may be nested to any depth', () => {
  const called = (given: string): Json => ({
    ...{ role: 'assistant', content: null },
    tool_calls: [{ id: 'c', type: 'function', function: { name: 'look', arguments: given } }],
  });
  const nested = (depth: number, space = '') => `${'['.repeat(depth)}${space}${']'.repeat(depth)}`;
  const inText = `["${'}'.repeat(100_000)}",${nested(100_000)}]`;
  for (const given of [nested(100_000), inText]) expect(itemDigest(called(given))).toMatch(/^[0-9a-f]{64}$/);
  expect(itemDigest(called(nested(400)))).toBe(itemDigest(called(nested(400, ' '))));
});

test('the id of an item is that of its message', () => {
  expect(itemId({ id: 'm-1', role: 'user' })).toBe('m-1');
  expect(itemId({ type: 'human', data: { id: 'm-2', content: 'Hi' } })).toBe('m-2');
  expect(itemId({ type: 'human', data: { content: 'Hi' } })).toBeNull();
  expect(itemId({ lc: 1, type: 'constructor', id: ['a', 'HumanMessage'], kwargs: { id: 'm-3' } })).toBe(
    'm-3',
  );
});
