/** The times of messages in each format. */
import { describe, expect, test } from 'vitest';
import type { FormatName } from '../../../src/conversation/format-names.js';
import type { Json } from '../../../src/conversation/message.js';
import { openDocument } from '../../../src/formats/documents.js';
import { readNative } from '../../../src/formats/native.js';
import { nativeFiles, readNativeFile } from '../../support/native-files.js';

const noon = '2025-06-14T12:00:00.000Z';
const later = '2025-06-14T13:30:00.000Z';
const seconds = (time: string) => Date.parse(time) / 1_000;

const said = (role: string, text: string) => ({ role, content: [{ type: 'text', text }] });

const cases: [FormatName, Json[], (string | null)[]][] = [
  [
    'openai-chat',
    [
      { role: 'user', content: 'Hi', timestamp: noon },
      { role: 'assistant', content: 'Hello', created_at: seconds(later) },
      { role: 'user', content: 'A day is no time', at: '2025-06-14' },
      { role: 'assistant', content: 'None' },
    ],
    [noon, later, null, null],
  ],
  [
    'claude-code',
    [
      { type: 'user', uuid: 'a', parentUuid: null, timestamp: noon, message: said('user', 'Look') },
      {
        type: 'assistant',
        uuid: 'b',
        parentUuid: 'a',
        timestamp: later,
        message: { id: 'm', ...said('assistant', 'I') },
      },
      {
        type: 'assistant',
        uuid: 'c',
        parentUuid: 'b',
        timestamp: '2025-06-14T13:31:00Z',
        message: { id: 'm', ...said('assistant', 'see') },
      },
      { type: 'user', uuid: 'd', parentUuid: 'c', timesstamp: later, message: said('user', 'Misspelt') },
    ],
    [noon, later, null],
  ],
  [
    'codex',
    [
      { timestamp: '2025-06-14T11:59:00Z', type: 'session_meta', payload: { id: 's' } },
      {
        timestamp: noon,
        type: 'response_item',
        payload: { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Go' }] },
      },
      {
        timestamp: later,
        type: 'response_item',
        payload: { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Gone' }] },
      },
    ],
    [noon, later],
  ],
  [
    'gemini-cli',
    [
      { id: '1', type: 'user', timestamp: noon, content: 'Read it' },
      {
        ...{ id: '2', type: 'gemini', timestamp: noon, content: '' },
        toolCalls: [{ id: 'c', name: 'read', args: {}, result: 'text', timestamp: later }],
      },
    ],
    [noon, noon, later],
  ],
  [
    'chatgpt',
    [
      {
        id: 'n',
        message: {
          author: { role: 'user' },
          create_time: seconds(noon),
          content: { content_type: 'text', parts: ['Hi'] },
        },
      },
    ],
    [noon],
  ],
  ['cline', [{ ...said('user', 'Hi'), ts: Date.parse(noon) }, said('assistant', 'Hello')], [noon, null]],
  [
    'openhands',
    [{ source: 'user', action: 'message', args: { content: 'Hi' }, timestamp: '2025-06-14T12:00:00.000000' }],
    [noon],
  ],
  [
    'google-adk',
    [{ author: 'user', content: { role: 'user', parts: [{ text: 'Hi' }] }, timestamp: seconds(noon) }],
    [noon],
  ],
  [
    'ai-sdk',
    [
      { id: '1', role: 'user', createdAt: noon, parts: [{ type: 'text', text: 'Hi' }] },
      {
        id: '2',
        role: 'assistant',
        metadata: { createdAt: Date.parse(later) },
        parts: [{ type: 'text', text: 'Hello' }],
      },
    ],
    [noon, later],
  ],
  ['anthropic', [said('user', 'Hi')], [null]],
];

describe('times of messages', () => {
  test.each(cases)('%s', (format, items, times) => {
    const read = readNative(items, format);
    expect(read.times).toEqual(times);
    expect(read.messages).toHaveLength(times.length);
  });

  test.each(
    nativeFiles().filter((file) =>
      /^(?:claude-code|codex|gemini-cli|cline|chatgpt|google-adk|openhands)/.test(file),
    ),
  )('%s: every message of the recording has a time, except the instructions', (file) => {
    const { value, layout } = readNativeFile(file);
    const { items, format } = openDocument(value, layout);
    const { messages, times } = readNative(items, format);
    const without = messages.filter((_, index) => (times[index] ?? null) === null);
    expect(times).toHaveLength(messages.length);
    expect(without.filter(({ role }) => role !== 'system')).toEqual([]);
  });
});
