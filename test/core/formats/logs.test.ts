/** Logs of agents: the meaning of their lines, records and nodes, and their form for the provider. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { contextFormatOf, formatOf } from '../../../src/formats/index.js';
import type { FormatName } from '../../../src/conversation/format-names.js';
import type { Json } from '../../../src/conversation/message.js';
import { itemsOf, logged, shown } from '../../support/formats.js';
import { anthropicHistories } from '../../support/native-histories.js';
import { closeDocument } from '../../../src/formats/documents.js';
import { fileText } from '../../support/native-files.js';
import { each, joined } from '../../support/texts.js';

const means = (format: FormatName, items: Json[]) =>
  formatOf(format)
    .normalize(items, 'messages')
    .map(({ items: own, messages }) => [own.length, ...messages]);

describe('logs of Claude Code', () => {
  const line = (type: 'user' | 'assistant', content: Json, more: object = {}): Json => ({
    type,
    uuid: 'u',
    sessionId: 's-1',
    message: { role: type, content, ...(type === 'assistant' ? { id: 'msg_1' } : {}) },
    ...more,
  });
  const use = (id: string): Json => ({ type: 'tool_use', id, name: 'Read', input: {} });
  const result = (id: string): Json => line('user', [{ type: 'tool_result', tool_use_id: id, content: id }]);
  const progress = { type: 'progress', uuid: 'p', sessionId: 's-1' };

  it('reads an answer in several lines as one message, with results between the lines', () => {
    const items = [
      { type: 'summary', summary: 'x', leafUuid: 'u' },
      line('user', 'Read both.'),
      line('assistant', [{ type: 'thinking', thinking: 'both', signature: 's' }]),
      line('assistant', [use('a')]),
      progress,
      result('a'),
      line('assistant', [use('b')]),
      progress,
      result('b'),
      line('assistant', 'Done.', { message: { role: 'assistant', id: 'msg_2', content: 'Done.' } }),
      { type: 'system', subtype: 'turn_duration', uuid: 't' },
    ];
    const call = (id: string) => ({ id, type: 'function', function: { name: 'Read', arguments: '{}' } });
    expect(means('claude-code', items)).toEqual([
      [2, { role: 'user', content: 'Read both.' }],
      [
        6,
        { role: 'assistant', content: null, reasoning_content: 'both', tool_calls: [call('a'), call('b')] },
        { role: 'tool', tool_call_id: 'a', content: 'a' },
      ],
      [1, { role: 'tool', tool_call_id: 'b', content: 'b' }],
      [2, { role: 'assistant', content: 'Done.' }],
    ]);
    expect(shown(logged([items], 'claude-code'), 'anthropic').messages).toEqual([
      { role: 'user', content: 'Read both.' },
      {
        role: 'assistant',
        content: [{ type: 'thinking', thinking: 'both', signature: 's' }, use('a'), use('b')],
      },
      {
        role: 'user',
        content: ['a', 'b'].map((id) => ({ type: 'tool_result', tool_use_id: id, content: id })),
      },
      { role: 'assistant', content: 'Done.' },
    ]);
  });

  it('reads a side chain as the conversation only if the log has nothing else', () => {
    const side = line('user', 'Explore.', { isSidechain: true, agentId: 'a1' });
    expect(means('claude-code', [line('user', 'Go.'), side])).toEqual([
      [2, { role: 'user', content: 'Go.' }],
    ]);
    expect(means('claude-code', [side])).toEqual([[1, { role: 'user', content: 'Explore.' }]]);
    expect(formatOf('claude-code').open!([side], 'lines')!.id).toBe('s-1-agent-a1');
  });

  it('keeps lines without messages, even if the log has no others', () => {
    expect(means('claude-code', [progress, 42])).toEqual([[2, { role: 'assistant', content: '' }]]);
  });

  it('with any lines, no line is lost and the context is valid', () => {
    const lines = fc
      .tuple(anthropicHistories, fc.array(fc.nat(3), { minLength: 1 }))
      .map(([messages, cuts]) =>
        messages
          .filter(({ role }) => role !== 'system')
          .flatMap(({ role, content }, index): Json[] => {
            const split = Array.isArray(content) && role === 'assistant' && cuts[index % cuts.length]! > 0;
            const contents = split ? content.map((block) => [block]) : [content!];
            const written = contents.flatMap((own, at): Json[] => [
              ...(cuts[(index + at) % cuts.length] === 2 ? [progress] : []),
              line(role as 'user', own, { message: { role: role!, id: `msg_${index}`, content: own } }),
            ]);
            return cuts[index % cuts.length] === 3 ? [...written, 'broken'] : written;
          }),
      );
    fc.assert(
      fc.property(lines, (items) => {
        const log = logged([items], 'claude-code');
        expect(itemsOf(log)).toEqual(items);
        expect(contextFormatOf('anthropic').violations(shown(log, 'anthropic'))).toEqual([]);
      }),
      { numRuns: 300 },
    );
  });
});

describe('sessions of Gemini CLI and Google ADK', () => {
  it('has the calls of an answer, their results, and its thoughts', () => {
    const items: Json[] = [
      { id: '1', type: 'user', content: [{ text: 'List.' }] },
      { id: '2', type: 'info', content: 'Update available.' },
      {
        id: '3',
        type: 'gemini',
        content: '',
        thoughts: [{ subject: 'Listing', description: 'ls' }],
        toolCalls: [
          {
            id: 'ls-1',
            name: 'ls',
            args: { path: '.' },
            result: [
              { functionResponse: { id: 'ls-1', name: 'ls', response: { output: 'empty' } } },
              { inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=' } },
            ],
          },
          { id: 'ls-2', name: 'ls', args: {} },
        ],
      },
    ];
    const call = (id: string, args: string) => ({
      id,
      type: 'function',
      function: { name: 'ls', arguments: args },
    });
    expect(means('gemini-cli', items)).toEqual([
      [2, { role: 'user', content: 'List.' }],
      [
        1,
        {
          role: 'assistant',
          content: null,
          reasoning_content: 'Listing: ls',
          tool_calls: [call('ls-1', '{"path":"."}'), call('ls-2', '{}')],
        },
        {
          role: 'tool',
          tool_call_id: 'ls-1',
          content: [
            { type: 'text', text: 'empty' },
            { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
          ],
        },
      ],
    ]);
    const rendered = shown(logged([items], 'gemini-cli'), 'gemini');
    expect(contextFormatOf('gemini').violations(rendered)).toEqual([]);
    expect(rendered.messages).toHaveLength(3);
  });

  it('takes the speaker from the author if an event has no role', () => {
    const event = (author: string, parts: Json[]): Json => ({ author, content: { parts }, id: 'e' });
    expect(
      means('google-adk', [
        event('user', [{ text: 'Go.' }]),
        { author: 'root', content: null, actions: { state_delta: {} } },
        event('root', [{ function_call: { name: 'run', args: {} } }]),
        event('root', [{ function_response: { name: 'run', response: { result: 'ok' } } }]),
        { author: 'root', partial: true, content: { parts: [{ text: 'Do' }] } },
        event('root', [{ text: 'Done.' }]),
      ]),
    ).toEqual([
      [2, { role: 'user', content: 'Go.' }],
      [
        1,
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'run_1', type: 'function', function: { name: 'run', arguments: '{}' } }],
        },
      ],
      [2, { role: 'tool', tool_call_id: 'run_1', content: 'ok' }],
      [1, { role: 'assistant', content: 'Done.' }],
    ]);
  });
});

describe('ChatGPT exports', () => {
  const node = (
    id: string,
    parent: string | null,
    children: string[],
    role: string | null,
    text = id,
  ): Json => ({
    id,
    parent,
    children,
    message: role === null ? null : { author: { role }, content: { content_type: 'text', parts: [text] } },
  });
  const mapping: Record<string, Json> = {
    new: node('new', 'ask', [], 'assistant'),
    root: node('root', null, ['ask'], null),
    ask: node('ask', 'root', ['old', 'new'], 'user'),
    old: node('old', 'ask', ['more'], 'assistant'),
    more: node('more', 'old', [], 'user'),
  };

  it.each([
    ['new', ['ask', 'new']],
    ['more', ['ask', 'old', 'more']],
    ['missing', ['ask', 'old', 'more']],
  ])(
    'the branch that ends at %s is the conversation, and the export is the whole file',
    async (current, said) => {
      const document = { title: 't', conversation_id: 'c', mapping, current_node: current };
      const { open, normalize } = formatOf('chatgpt');
      const { items, id } = open!(document, 'document')!;
      expect(id).toBe('c');
      expect(normalize(items, 'm').flatMap(({ messages }) => messages.map(({ content }) => content))).toEqual(
        said,
      );
      expect(await joined(closeDocument(each(items), 'chatgpt'))).toBe(fileText(document, 'document'));
    },
  );

  it('accepts later nodes at the end of the tree', async () => {
    const { items } = formatOf('chatgpt').open!({ mapping, current_node: 'new' }, 'document')!;
    const later = node('later', 'new', [], 'assistant');
    const text = await joined(closeDocument(each([...items, later]), 'chatgpt'));
    expect(text).toBe(fileText({ mapping: { ...mapping, later }, current_node: 'new' }, 'document'));
  });
});
