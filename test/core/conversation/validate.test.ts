/**
 * The check of messages: a defect inside one message is refused with its path; defects between messages, as in real
 * transcripts, are stored unchanged and reported.
 */
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { parseExact } from '../../../src/conversation/json.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import {
  checkMessages,
  metaOf,
  serializeMessage,
  textOf,
  warningsOf,
} from '../../../src/conversation/validate.js';
import { PalimpsestError } from '../../../src/errors.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

function refusal(value: unknown): PalimpsestError {
  try {
    checkMessages(value);
  } catch (error) {
    if (error instanceof PalimpsestError && error.type === 'Input.Invalid') return error;
    throw error;
  }
  throw new Error(`accepted: ${JSON.stringify(value)}`);
}

const call = (id: string | null | undefined, name = 'bash') => ({
  ...(id === undefined ? {} : { id }),
  type: 'function',
  function: { name, arguments: '{}' },
});

const calls = (...ids: string[]) => ({
  role: 'assistant',
  content: null,
  tool_calls: ids.map((id) => call(id)),
});

const result = (id?: string) => ({
  role: 'tool',
  ...(id === undefined ? {} : { tool_call_id: id }),
  content: 'done',
});

describe('refused, with the path of the field', () => {
  const user = { role: 'user', content: 'hello' };
  const assistant = (fields: object) => [user, { role: 'assistant', ...fields }];
  test.each([
    ['messages', 'text', 'messages', /must be an array of messages, but is a string/],
    ['messages', { messages: [] }, 'messages', /but is an object/],
    ['a message', [user, 'hello'], 'messages[1]', /must be an object, but is a string/],
    ['a message', [user, null], 'messages[1]', /but is null/],
    ['a message', [[]], 'messages[0]', /but is an array/],
    ['role', [{ content: 'x' }], 'messages[0].role', /but is missing/],
    ['role', [{ role: 7 }], 'messages[0].role', /but is a number/],
    ['role', [{ role: 'robot' }], 'messages[0].role', /"robot" is not known/],
    ['content', [{ role: 'user', content: 5 }], 'messages[0].content', /string, an array of parts or null/],
    ['content', [{ role: 'user', content: { text: 'x' } }], 'messages[0].content', /but is an object/],
    ['a part', [{ role: 'user', content: ['x'] }], 'messages[0].content[0]', /object with a type/],
    ['a part', [{ role: 'user', content: [{ text: 'x' }] }], 'messages[0].content[0].type', /but is missing/],
    [
      'a part',
      [{ role: 'user', content: [{ type: 'text' }] }],
      'messages[0].content[0].text',
      /but is missing/,
    ],
    ['name', [{ role: 'user', content: 'x', name: 3 }], 'messages[0].name', /but is a number/],
    ['tool_call_id', [{ role: 'tool', tool_call_id: 3 }], 'messages[0].tool_call_id', /but is a number/],
    ['tool_calls', assistant({ tool_calls: {} }), 'messages[1].tool_calls', /must be an array/],
    ['a call', assistant({ tool_calls: ['ls'] }), 'messages[1].tool_calls[0]', /must be an object/],
    [
      'a call',
      assistant({ tool_calls: [call('a'), { id: 'b' }] }),
      'messages[1].tool_calls[1].function',
      /but is missing/,
    ],
    [
      'a call',
      assistant({ tool_calls: [{ ...call('a'), id: 9 }] }),
      'messages[1].tool_calls[0].id',
      /but is a number/,
    ],
    [
      'a call',
      assistant({ tool_calls: [call('a', '')] }),
      'messages[1].tool_calls[0].function.name',
      /must not be empty/,
    ],
    [
      'a call',
      assistant({ tool_calls: [{ function: { arguments: '{}' } }] }),
      'messages[1].tool_calls[0].function.name',
      /missing/,
    ],
    [
      'a call',
      assistant({ tool_calls: [{ function: { name: 'ls', arguments: {} } }] }),
      'messages[1].tool_calls[0].function.arguments',
      /but is an object/,
    ],
    [
      'a call',
      assistant({ tool_calls: [{ custom: { name: 'ls', input: 1 } }] }),
      'messages[1].tool_calls[0].custom.input',
      /a number/,
    ],
    ['a legacy call', assistant({ function_call: 'ls' }), 'messages[1].function_call', /but is a string/],
    [
      'calls of a user',
      [{ role: 'user', content: 'x', tool_calls: [call('a')] }],
      'messages[0].tool_calls',
      /role user/,
    ],
    ['a value JSON cannot hold', [{ role: 'user', content: 'x', at: Number.NaN }], 'messages[0].at', /NaN/],
  ])('%s: %#', (_what, value, path, reason) => {
    const error = refusal(value);
    expect(error.path).toBe(path);
    expect(error.message).toMatch(reason);
  });

  test('the error for an unknown role lists the known ones', () => {
    expect(refusal([{ role: 'robot' }]).hint).toBe(
      'Known roles: system, developer, user, assistant, tool, function.',
    );
  });
});

describe('accepted and stored unchanged', () => {
  test('all known roles, absent content, extra fields in their order, and defects between messages', () => {
    const text = JSON.stringify([
      { zebra: 1, role: 'developer', content: 'be brief', apple: { nested: [null] } },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'look' },
          { type: 'image_url', image_url: { url: 'https://x/y.png' } },
        ],
      },
      {
        role: 'assistant',
        content: null,
        refusal: null,
        tool_calls: [call('a'), call(undefined), call(null)],
      },
      { role: 'tool', content: '' },
      { role: 'function', name: 'legacy', content: 'x' },
      { role: 'assistant', function_call: { name: 'legacy', arguments: 'not json' }, tool_calls: null },
      { role: 'assistant', content: '' },
    ]);
    expect(JSON.stringify(checkMessages(parseExact(text)))).toBe(text);
  });

  test('as the text of JSON.stringify, with its sha256', () => {
    const message: ChatMessage = { role: 'user', extra: 1, content: 'ünï\u0000\ud800' };
    const { body, sha256 } = serializeMessage(message);
    expect(JSON.parse(body)).toEqual(message);
    expect(body).toContain('\\u0000\\ud800');
    expect(sha256).toBe(createHash('sha256').update(Buffer.from(body, 'utf8')).digest('hex'));
  });
});

describe('links of a message', () => {
  test('calls in order, legacy calls by name, ids that are empty count as absent', () => {
    const message = checkMessages([
      {
        role: 'assistant',
        tool_calls: [call('a', 'ls'), call('', 'cat'), { custom: { name: 'sql', input: 'select 1' } }],
      },
      { role: 'assistant', function_call: { name: 'legacy', arguments: '{}' } },
    ]);
    expect(message.map((one) => metaOf(one).calls)).toEqual([
      [
        { id: 'a', name: 'ls' },
        { id: null, name: 'cat' },
        { id: null, name: 'sql' },
      ],
      [{ id: null, name: 'legacy' }],
    ]);
  });

  test('a result answers its call id, with the role function its name', () => {
    const answers = (message: ChatMessage) => metaOf(message).answers;
    expect(answers({ role: 'tool', tool_call_id: 'a', name: 'ls' })).toBe('a');
    expect(answers({ role: 'tool', tool_call_id: '' })).toBeNull();
    expect(answers({ role: 'function', name: 'legacy' })).toBe('legacy');
    expect(answers({ role: 'user', name: 'Ada', content: 'x' })).toBeNull();
  });

  test.each<[boolean, ChatMessage]>([
    [true, { role: 'assistant' }],
    [true, { role: 'assistant', content: ' \n\t' }],
    [true, { role: 'user', content: [] }],
    [true, { role: 'user', content: [{ type: 'text', text: ' ' }] }],
    [true, { role: 'assistant', content: null, reasoning_content: 'thinking only', tool_calls: [] }],
    [false, { role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }],
    [false, { role: 'assistant', content: null, refusal: 'I cannot help with that.' }],
    [
      false,
      {
        role: 'assistant',
        content: '',
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'f', arguments: '' } }],
      },
    ],
    [false, { role: 'assistant', content: null, audio: { id: 'audio_1' } }],
    [false, { role: 'tool', content: '' }],
    [false, { role: 'function', name: 'f', content: null }],
  ])('empty: %s for %j', (empty, message) => {
    expect(metaOf(message).empty).toBe(empty);
  });
});

test('the text of a message joins its parts and shows media as placeholders, never as data', () => {
  const content = [
    { type: 'text', text: 'see' },
    { type: 'image_url', image_url: { url: `data:image/png;base64,${'A'.repeat(5_000)}` } },
    { type: 'input_audio', input_audio: { data: 'AAAA' } },
    { type: 'text', text: 'and answer' },
  ];
  expect(textOf({ role: 'user', content })).toBe('see\n[image]\n[audio]\nand answer');
  expect(textOf({ role: 'assistant', content: null, refusal: 'No.' })).toBe('No.');
  expect(textOf({ role: 'assistant' })).toBe('');
});

describe('warnings', () => {
  const typesOf = (messages: unknown[], scope?: 'turn') =>
    warningsOf(checkMessages(messages), scope).map(({ index, type }) => `${index} ${type}`);

  test('name each defect by its index', () => {
    const messages = [
      calls('a', 'b'),
      result('a'),
      result('zzz'),
      result(),
      calls('a'),
      result('a'),
      { role: 'user', content: ' ' },
    ];
    expect(typesOf(messages)).toEqual([
      '0 unanswered_call',
      '2 orphan_result',
      '3 result_without_id',
      '4 reused_id',
      '6 empty_turn',
    ]);
  });

  test('are empty for a clean session; for a single turn they name only certain defects', () => {
    expect(typesOf([{ role: 'user', content: 'go' }, calls('a', 'b'), result('b'), result('a')])).toEqual([]);
    expect(typesOf([result('from an earlier turn'), calls('open')], 'turn')).toEqual([]);
    expect(typesOf([result(), calls('a', 'a')], 'turn')).toEqual(['0 result_without_id', '1 reused_id']);
  });
});

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  test('are accepted and replayed as the same text; clean ones have only harmless warnings', async () => {
    let sessions = 0;
    let oddities = 0;
    for await (const { line, number, file, dirty } of readTranscripts()) {
      const session = parseExact(line, { line: number }) as { messages: unknown };
      const messages = checkMessages(session.messages);
      const original = JSON.parse(line) as { messages: unknown[] };
      expect(messages.map((message) => serializeMessage(message).body)).toEqual(
        original.messages.map((message) => JSON.stringify(message)),
      );
      // A clean session may end in an open call, and two hold an empty system message; nothing else is odd in them.
      const odd = warningsOf(messages).filter(
        ({ index, type }) =>
          type !== 'unanswered_call' && !(type === 'empty_turn' && messages[index]?.role === 'system'),
      );
      if (!dirty) expect(odd, file).toEqual([]);
      oddities += odd.length;
      sessions++;
    }
    expect(sessions).toBeGreaterThan(400);
    expect(oddities).toBeGreaterThan(500);
  });
});
