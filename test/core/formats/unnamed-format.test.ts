/** The first turn of a session without a `format`: a refusal names the format that the messages seem to have. */
import { expect, test } from 'vitest';
import type { FormatName } from '../../../src/conversation/format-names.js';
import { readNative } from '../../../src/formats/native.js';

const question = { role: 'user', content: 'Where is my order?' };
const callItem = { type: 'function_call', call_id: 'c', name: 'look', arguments: '{}' };
const block = { type: 'tool_use', id: 'c', name: 'look', input: {} };

test.for<[FormatName, unknown[]]>([
  ['openai-responses', [question, callItem]],
  ['anthropic', [question, { role: 'assistant', content: [block] }]],
  ['langchain', [{ type: 'human', data: { content: 'Where is my order?' } }]],
  ['gemini', [{ role: 'user', parts: [{ text: 'Where is my order?' }] }]],
])('%s', ([format, messages]) => {
  expect(() => readNative(messages, 'openai-chat')).toThrow(
    expect.objectContaining({
      type: 'Input.Invalid',
      path: expect.stringMatching(/^messages\[\d\]\./),
      hint: expect.stringContaining(`begin a session with \`format: '${format}'\``),
    }),
  );
  expect(readNative(messages, format).messages).not.toEqual([]);
});

test('messages of chat completions with a mistake keep the hint of the mistake', () => {
  expect(() => readNative([question, { role: 'robot', content: 'Here.' }], 'openai-chat')).toThrow(
    expect.objectContaining({
      path: 'messages[1].role',
      hint: expect.stringContaining('Known roles: system'),
    }),
  );
});
