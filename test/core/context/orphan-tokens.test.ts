/** The tokens of a result without its call: those of its shown form, without a second count of its text. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { showOrphan } from '../../../src/context/view/projection.js';
import { buildView } from '../../../src/context/view/view.js';
import type { ChatMessage, ContentPart } from '../../../src/conversation/message.js';
import { counterFor, type TokenCounter } from '../../../src/tokens/counter.js';
import { countLabelled, countMessage } from '../../../src/tokens/message.js';
import { logOf, sourceOf } from '../../support/histories.js';

const names = ['o200k_base', 'cl100k_base', 'chars/4', 'chars/3.3'] as const;

/** Long enough that it is not counted again. */
const long = ' and so it went on: 漢字 12 (x)'.repeat(200);

const starts = fc.oneof(
  fc.constantFrom(
    ...[
      '',
      '\n',
      '\n\n',
      '\r\n',
      ' ',
      '  \n',
      '\t',
      '/',
      '//\n',
      '\n/',
      '\n/a',
      '\n \n/\n',
      ' /',
      "'s",
      '.',
      ']',
      '.\n',
    ],
    ...[
      'e\u0301',
      '\u0301',
      '\u{1F600}',
      '\ud83d',
      '\ude00',
      '漢字',
      '漢字。',
      '1',
      '\u00a0',
      '\u2028',
      '<|endoftext|>',
    ],
    ...[
      '\n'.repeat(300),
      ' '.repeat(300),
      '/'.repeat(300),
      '漢'.repeat(600),
      '.'.repeat(300),
      'a'.repeat(600),
    ],
  ),
  fc.string({ unit: 'binary', maxLength: 8 }),
);

const messages = fc
  .record({
    start: starts,
    end: starts,
    inParts: fc.boolean(),
    rest: fc.constantFrom<Partial<ChatMessage>>(
      {},
      { name: 'search' },
      { name: 'f'.repeat(2_000), tool_call_id: 'c' },
      { tool_call_id: 'call "1"\n', artifact: { text: long } },
      { refusal: 'no', reasoning: long },
    ),
  })
  .map(({ start, end, inParts, rest }): ChatMessage => {
    const text = start + long + end;
    const parts: ContentPart[] = [
      { type: 'text', text },
      { type: 'image_url', image_url: { url: 'https://example.net/a.png' } },
      { type: 'text', text: end },
    ];
    return { role: 'tool', ...rest, content: inParts ? parts : text };
  });

describe.each(names)('a long result without its call, in %s', (name) => {
  const counter = counterFor(name);
  test('has the tokens of its shown form', () => {
    fc.assert(
      fc.property(messages, (message) => {
        const shown = showOrphan(message, 7, null);
        const stored = { message, tokens: countMessage(message, counter) };
        expect(stored.tokens).toBeGreaterThan(1_000);
        expect(countLabelled(shown, stored, counter)).toBe(countMessage(shown, counter));
      }),
    );
  });
});

describe('a view counts no long text again', () => {
  const exact = counterFor('o200k_base');
  const counted: number[] = [];
  const counter: TokenCounter = {
    name: exact.name,
    count: (text) => {
      counted.push(text.length);
      return exact.count(text);
    },
  };
  const text = 'a long output of words '.repeat(20_000);
  test.each<[string, ChatMessage[]]>([
    ['without its call', [{ role: 'tool', tool_call_id: 'c', content: text }]],
    ['without its call, after empty lines', [{ role: 'tool', content: `\n\n ${text}` }]],
    ['without its call, without a space', [{ role: 'tool', content: '漢字'.repeat(50_000) }]],
    ['without its call, after many spaces', [{ role: 'tool', content: ' '.repeat(70_000) + text }]],
    ['without its call, in parts', [{ role: 'tool', content: [{ type: 'text', text }] }]],
    [
      'without its call, beside long fields',
      [{ role: 'tool', content: text, artifact: { text: text + text } }],
    ],
    [
      'of a call without an id',
      [
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: '', type: 'function', function: { name: 'f', arguments: '{}' } }],
        },
        { role: 'function', name: 'f', content: text },
      ],
    ],
    [
      'of a call in two fields',
      [
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }],
          function_call: { name: 'g', arguments: JSON.stringify({ text }) },
        },
      ],
    ],
  ])('of a message %s', (_name, log) => {
    const source = sourceOf(logOf(log, exact));
    counted.length = 0;
    const view = buildView(source, counter);
    expect(Math.max(0, ...counted)).toBeLessThan(1_000);
    const tokens = view.map(({ message }) => countMessage(message, exact));
    for (const [index, item] of view.entries()) {
      const above = item.tokens - tokens[index]!;
      expect(above).toBeGreaterThanOrEqual(0);
      if (!/long fields|many spaces/.test(_name)) expect(above).toBe(0);
    }
  });
});
