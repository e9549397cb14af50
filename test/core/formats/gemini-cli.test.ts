/** Recordings of Gemini CLI, which only grow: rewritten and rewound records, and checkpoints of the whole conversation. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { contextFormatOf, formatOf } from '../../../src/formats/index.js';
import type { Json } from '../../../src/conversation/message.js';
import { textOf } from '../../../src/conversation/validate.js';
import { itemsOf, logged, shown } from '../../support/formats.js';

const header: Json = { sessionId: 's-1', projectHash: 'p', startTime: 't', kind: 'main' };

const user = (id: string, content: Json = `ask ${id}`): Json => ({
  id,
  timestamp: 't',
  type: 'user',
  content,
});

const gemini = (id: string, more: object = {}): Json => ({
  ...{ id, timestamp: 't', type: 'gemini', content: `answer ${id}`, thoughts: [], tokens: null },
  ...more,
});

const call = (id: string, output?: string): Json => ({
  ...{ id, name: 'ls', args: { path: id }, status: output === undefined ? 'executing' : 'success' },
  ...(output === undefined
    ? {}
    : { result: [{ functionResponse: { id, name: 'ls', response: { output } } }] }),
});

const updated: Json = { $set: { lastUpdated: 't' } };
const checkpoint = (...messages: Json[]): Json => ({ $set: { messages, lastUpdated: 't' } });

function read(...lines: Json[]) {
  const opened = formatOf('gemini-cli').open!([header, ...lines], 'lines')!;
  const log = logged([opened.items], 'gemini-cli');
  expect(itemsOf(log)).toEqual([header, ...lines]);
  const rendered = shown(log, 'gemini');
  expect(contextFormatOf('gemini').violations(rendered)).toEqual([]);
  return {
    said: log.map(({ message }) => `${message.role}: ${textOf(message)}`),
    contents: rendered.messages,
  };
}

describe('a recording of Gemini CLI', () => {
  it('counts a record once, in its last form and its first place', () => {
    const { said, contents } = read(
      user('1'),
      updated,
      gemini('2', { content: '' }),
      gemini('2', { content: 'Listing.', toolCalls: [call('a')] }),
      { id: 'i', type: 'info', content: 'Working.' },
      gemini('2', { content: 'Listing.', toolCalls: [call('a', 'empty')] }),
      updated,
      gemini('2', { content: 'Listing.', toolCalls: [call('a', 'empty')], tokens: { total: 9 } }),
      user('3'),
    );
    expect(said).toEqual(['user: ask 1', 'assistant: Listing.', 'tool: empty', 'user: ask 3']);
    expect(contents).toHaveLength(3);
  });

  it('does not show rewound records, and keeps them in the log', () => {
    expect(
      read(
        user('1'),
        gemini('2'),
        user('3'),
        gemini('4'),
        { $rewindTo: '3' },
        updated,
        user('5'),
        gemini('6'),
      ).said,
    ).toEqual(['user: ask 1', 'assistant: answer 2', 'user: ask 5', 'assistant: answer 6']);
  });

  it('rewinds everything if the CLI does not know the record', () => {
    expect(read(user('1'), gemini('2'), { $rewindTo: 'gone' }, user('3')).said).toEqual(['user: ask 3']);
    expect(read(user('1'), gemini('2'), { $rewindTo: '1' }, user('3'), gemini('4')).said).toEqual([
      'user: ask 3',
      'assistant: answer 4',
    ]);
  });

  it('keeps the messages that the CLI summarized, and its results unmasked', () => {
    const long = gemini('2', { toolCalls: [call('a', 'a long listing')] });
    const { said } = read(
      user('1'),
      long,
      user('3'),
      gemini('4'),
      checkpoint(
        user('s', [{ text: '<state_snapshot>They list files.</state_snapshot>' }]),
        gemini('k', { content: [{ text: 'Got it. Thanks for the additional context!' }] }),
        user('3', [{ text: 'ask 3' }]),
        gemini('4', { content: [{ text: 'answer 4' }] }),
      ),
      user('5'),
      checkpoint(
        user('1', [{ text: 'ask 1' }]),
        gemini('2', {
          content: [{ text: 'answer 2' }, { functionCall: { id: 'a', name: 'ls', args: { path: 'a' } } }],
          toolCalls: [call('a', '[masked]')],
        }),
        user('r', [{ functionResponse: { id: 'a', name: 'ls', response: { output: '[masked]' } } }]),
        user('3', [{ text: 'ask 3' }]),
        gemini('4', { content: [{ text: 'answer 4' }] }),
        user('5', [{ text: 'ask 5' }]),
      ),
    );
    expect(said).toEqual([
      ...['user: ask 1', 'assistant: answer 2', 'tool: a long listing'],
      ...['user: ask 3', 'assistant: answer 4', 'user: ask 5'],
    ]);
  });

  it('is a checkpoint if another conversation was loaded, or this one was shortened', () => {
    const loaded = checkpoint(
      user('x', [{ text: 'loaded' }]),
      gemini('y', { content: [{ text: 'so be it' }] }),
    );
    expect(read(user('1'), gemini('2'), loaded, user('3')).said).toEqual([
      ...['user: loaded', 'assistant: so be it', 'user: ask 3'],
    ]);
    expect(
      read(user('1'), gemini('2'), user('3'), checkpoint(user('1'), gemini('2')), user('4')).said,
    ).toEqual([...['user: ask 1', 'assistant: answer 2', 'user: ask 4']]);
  });

  it('has a call once that is both a part and a call, with the signature of the part', () => {
    const { said, contents } = read(
      user('1'),
      gemini('2', {
        content: [
          { text: 'hm', thought: true },
          { text: 'Both.' },
          { functionCall: { id: 'a', name: 'ls', args: { path: 'a' } }, thoughtSignature: 'signed' },
        ],
        toolCalls: [call('a', 'one'), call('b', 'two')],
      }),
    );
    expect(said).toEqual(['user: ask 1', 'assistant: Both.', 'tool: one', 'tool: two']);
    expect(contents[1]).toEqual({
      role: 'model',
      parts: [
        { text: 'hm', thought: true },
        { text: 'Both.' },
        { functionCall: { id: 'a', name: 'ls', args: { path: 'a' } }, thoughtSignature: 'signed' },
        { functionCall: { id: 'b', name: 'ls', args: { path: 'b' } } },
      ],
    });
  });

  /** What the CLI would load, but for checkpoints. */
  function loaded(lines: readonly Json[]): string[] {
    const messages = new Map<string, string>();
    for (const line of lines as Record<string, string>[]) {
      if (line.$rewindTo !== undefined) {
        const ids = [...messages.keys()];
        for (const id of ids.slice(Math.max(0, ids.indexOf(line.$rewindTo)))) messages.delete(id);
      } else if (line.id !== undefined) messages.set(line.id, line.content!);
    }
    return [...messages.values()];
  }

  it('with any rewritten and rewound records, has the conversation that the CLI would load, and loses no record', () => {
    const id = fc.constantFrom('1', '2', '3', '4', '5');
    const lines = fc.array(
      fc.oneof(
        {
          weight: 5,
          arbitrary: fc.tuple(id, fc.string({ minLength: 1 })).map(([one, text]) => user(one, `u${text}`)),
        },
        {
          weight: 5,
          arbitrary: fc
            .tuple(id, fc.string({ minLength: 1 }))
            .map(([one, text]) => gemini(one, { content: `g${text}` })),
        },
        { weight: 1, arbitrary: id.map((one): Json => ({ $rewindTo: one })) },
        { weight: 1, arbitrary: fc.constant(updated) },
      ),
      { maxLength: 14 },
    );
    fc.assert(
      fc.property(lines, (items) => {
        const expected = loaded(items);
        fc.pre(expected.length > 0);
        expect(read(...items).said.map((one) => one.slice(one.indexOf(': ') + 2))).toEqual(expected);
      }),
      { numRuns: 500 },
    );
  });
});
