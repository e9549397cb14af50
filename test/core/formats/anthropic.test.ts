/** Anthropic messages: no part of them is lost, and the API accepts the context of any session. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { anthropic } from '../../../src/formats/anthropic.js';
import { gemini } from '../../../src/formats/gemini.js';
import type { Json } from '../../../src/conversation/message.js';
import { checkMessages } from '../../../src/conversation/validate.js';
import { validateView } from '../../../src/context/view/validity.js';
import { itemsOf, logged, shown, shownChat } from '../../support/formats.js';
import { histories } from '../../support/histories.js';
import { anthropicAgents } from '../../support/native-agents.js';
import { anthropicHistories } from '../../support/native-histories.js';

const messagesOf = (...items: Json[]) =>
  anthropic.normalize(items, 'messages').flatMap(({ messages }) => messages);

const withoutMarks = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (key, inner: unknown) => (key === 'cache_control' ? undefined : inner)));

/** Whether a call of the provider's own tools has no result. */
function isAwaiting(messages: readonly Json[]): boolean {
  const written = JSON.stringify(messages);
  const count = (pattern: RegExp) => written.match(pattern)?.length ?? 0;
  return count(/"type":"server_tool_use"/g) > count(/"type":"web_search_tool_result"/g);
}

describe('the meaning of Anthropic messages', () => {
  it("has results before the user's text in the same message", () => {
    expect(
      messagesOf(
        { role: 'system', content: 'Be brief.' },
        { role: 'user', content: 'List the files.' },
        {
          role: 'assistant',
          content: [
            { type: 'thinking', thinking: 'ls will do', signature: 's' },
            { type: 'text', text: 'Looking.' },
            { type: 'tool_use', id: 'toolu_1', name: 'bash', input: { command: 'ls' } },
          ],
        },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'And hurry.' },
            {
              type: 'tool_result',
              tool_use_id: 'toolu_1',
              content: [{ type: 'text', text: 'a.txt' }],
              is_error: false,
            },
          ],
        },
      ),
    ).toEqual([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'List the files.' },
      {
        role: 'assistant',
        content: 'Looking.',
        reasoning_content: 'ls will do',
        tool_calls: [
          { id: 'toolu_1', type: 'function', function: { name: 'bash', arguments: '{"command":"ls"}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'toolu_1', content: 'a.txt' },
      { role: 'user', content: 'And hurry.' },
    ]);
  });

  it('has images and documents in the form in which tokens are counted', () => {
    const [message] = messagesOf({
      role: 'user',
      content: [
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'iVBORw0KGgo=' } },
        { type: 'image', source: { type: 'url', url: 'https://example.com/a.png' } },
        {
          type: 'document',
          source: { type: 'base64', media_type: 'application/pdf', data: 'JVBERi0=' },
          title: 'a.pdf',
        },
        { type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'plain words' } },
      ],
    });
    expect(message!.content).toEqual([
      { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
      { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
      { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' } },
      { type: 'text', text: 'plain words' },
    ]);
  });

  it('keeps unknown blocks and names their type', () => {
    const item = { role: 'assistant', content: [{ type: 'of_next_year', value: 7 }] };
    const [unit] = anthropic.normalize([item], 'messages');
    expect(unit).toEqual({
      items: [item],
      messages: [{ role: 'assistant', content: '[of_next_year] {"value":7}' }],
    });
  });

  it.each([
    [7, 'messages[0]'],
    [{ content: 'x' }, 'messages[0].role'],
    [{ role: 'tool', content: 'x' }, 'messages[0].role'],
    [{ role: 'user' }, 'messages[0].content'],
    [{ role: 'user', content: 3 }, 'messages[0].content'],
    [{ role: 'user', content: ['x'] }, 'messages[0].content[0]'],
    [{ role: 'user', content: [{ type: 'text' }] }, 'messages[0].content[0].text'],
    [
      { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'b', input: 'c' }] },
      'messages[0].content[0].input',
    ],
    [
      { role: 'assistant', content: [{ type: 'tool_use', id: 'a', input: {} }] },
      'messages[0].content[0].name',
    ],
    [{ role: 'user', content: [{ type: 'tool_result', content: '' }] }, 'messages[0].content[0].tool_use_id'],
  ])('refuses %j with the path of the field', (item, path) => {
    expect(() => anthropic.normalize([item as Json], 'messages')).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path }),
    );
  });
});

describe('a context in the form of Anthropic', () => {
  it('shows originals unchanged', () => {
    const items: Json[] = [
      {
        role: 'system',
        content: [{ type: 'text', text: 'Be brief.', cache_control: { type: 'ephemeral' } }],
      },
      { role: 'user', content: 'List the files.' },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: 'ls', signature: 's' },
          { type: 'tool_use', id: 'toolu_1', name: 'bash', input: { command: 'ls' } },
          { type: 'tool_use', id: 'toolu_2', name: 'bash', input: {} },
        ],
      },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 'toolu_2', content: '' },
          { type: 'tool_result', tool_use_id: 'toolu_1', content: 'a.txt', is_error: true },
          { type: 'text', text: 'Go on.' },
        ],
      },
      { role: 'assistant', content: 'Done.' },
    ];
    const rendered = shown(logged([items], 'anthropic'), 'anthropic');
    expect(rendered).toEqual({ system: (items[0] as { content: Json }).content, messages: items.slice(1) });
    expect(anthropic.violations(rendered)).toEqual([]);
  });

  it('keeps the thinking of a call whose id was used before', () => {
    const call = (thought: string): Json[] => [
      { role: 'user', content: 'Again.' },
      {
        role: 'assistant',
        content: [
          { type: 'thinking', thinking: thought, signature: 's' },
          { type: 'tool_use', id: 'toolu_1', name: 'bash', input: {} },
        ],
      },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: 'ok' }] },
    ];
    const { messages } = shown(logged([call('one'), call('two')], 'anthropic'), 'anthropic');
    expect(messages[3]).toEqual({
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'two', signature: 's' },
        { type: 'tool_use', id: 'toolu_1-5', name: 'bash', input: {} },
      ],
    });
    expect(anthropic.violations({ messages })).toEqual([]);
  });

  it('keeps the newest four cache marks', () => {
    const turn = (text: string): Json => ({
      role: 'user',
      content: [{ type: 'text', text, cache_control: { type: 'ephemeral' } }],
    });
    const items = ['1', '2', '3', '4', '5', '6'].flatMap((text): Json[] => [
      turn(text),
      { role: 'assistant', content: text },
    ]);
    const { messages } = shown(logged([items], 'anthropic'), 'anthropic');
    const marked = messages.flatMap((message, index) =>
      JSON.stringify(message).includes('cache_control') ? [index] : [],
    );
    expect(marked).toEqual([4, 6, 8, 10]);
    expect(withoutMarks(messages)).toEqual(withoutMarks(items));
  });

  it('accepts any session of chat messages', () => {
    fc.assert(
      fc.property(histories, (messages) => {
        expect(anthropic.violations(shownChat(messages, 'anthropic'))).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });
});

describe('for random histories of Anthropic messages', () => {
  it('no item is lost, and their meaning consists of valid chat messages', () => {
    fc.assert(
      fc.property(anthropicHistories, (items) => {
        const units = anthropic.normalize(items, 'messages');
        expect(units.flatMap((unit) => unit.items)).toEqual(items);
        expect(units.every(({ messages }) => messages.length > 0)).toBe(true);
        checkMessages(units.flatMap(({ messages }) => messages));
        expect(itemsOf(logged([items], 'anthropic'))).toEqual(items);
      }),
      { numRuns: 300 },
    );
  });

  it('the context is valid, for Anthropic, Gemini and chat completions', () => {
    fc.assert(
      fc.property(anthropicHistories, (items) => {
        const log = logged([items], 'anthropic');
        expect(anthropic.violations(shown(log, 'anthropic'))).toEqual([]);
        expect(gemini.violations(shown(log, 'gemini'))).toEqual([]);
        expect(validateView(shown(log, 'openai-chat').messages as never)).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });

  it('appending changes only the end', () => {
    fc.assert(
      fc.property(anthropicHistories, anthropicHistories, (before, after) => {
        // A late result replaces the one that stood for it: that is the session's own rule.
        const later = after.filter((item) => !JSON.stringify(item).includes('tool_result'));
        const first = shown(logged([before], 'anthropic'), 'anthropic');
        // So does what interrupts a call that the provider has yet to answer.
        fc.pre(!isAwaiting(first.messages));
        const both = shown(logged([before, later], 'anthropic'), 'anthropic');
        const kept = first.messages.slice(0, -1);
        expect(withoutMarks(both.messages.slice(0, kept.length))).toEqual(withoutMarks(kept));
        if (kept.length > 0)
          expect(withoutMarks(both.system ?? null)).toEqual(withoutMarks(first.system ?? null));
      }),
      { numRuns: 300 },
    );
  });

  it('runs of agents are shown unchanged, with all their blocks', () => {
    fc.assert(
      fc.property(anthropicAgents, (items) => {
        expect(anthropic.violations({ messages: items })).toEqual([]);
        expect(shown(logged([items], 'anthropic'), 'anthropic')).toEqual({ messages: items });
      }),
      { numRuns: 300 },
    );
  });

  it('valid input of the API is shown unchanged', () => {
    fc.assert(
      fc.property(anthropicHistories, (items) => {
        const [first, ...rest] = items;
        const system = first?.role === 'system' ? first.content : undefined;
        const messages = system === undefined ? items : rest;
        fc.pre(anthropic.violations({ messages, ...(system === undefined ? {} : { system }) }).length === 0);
        const rendered = shown(logged([items], 'anthropic'), 'anthropic');
        expect(rendered).toEqual({ messages, ...(system === undefined ? {} : { system }) });
      }),
      { numRuns: 300 },
    );
  });
});

describe("calls of the provider's own tools", () => {
  const search = { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: { query: 'x' } };
  const found = { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_1', content: [] };
  const use = { type: 'tool_use', id: 'toolu_1', name: 'bash', input: {} };
  const asked = { role: 'user', content: 'Search for x.' };
  const says = (...content: Json[]): Json => ({ role: 'assistant', content });
  const answered = {
    role: 'user',
    content: [{ type: 'tool_result', tool_use_id: 'toolu_1', content: 'ok' }],
  };
  const done = { type: 'text', text: 'Done.' };
  const rendered = (...items: Json[]) => shown(logged([items], 'anthropic'), 'anthropic').messages;

  it.each([
    [
      'one that was interrupted before its result',
      [asked, says(search), { role: 'user', content: 'Stop.' }],
      1,
    ],
    ['a result whose call went with a compaction', [asked, says(found, done)], 1],
    [
      'a second call under an id that was used',
      [asked, says(search, found, done), asked, says(search, found, done)],
      3,
    ],
    ['one in a message of the user', [{ role: 'user', content: [search, done] }], 0],
    ['one that the next turn does not answer', [asked, says(search, use), answered, says(done)], 1],
  ])('%s is shown as text', (_what, items, at) => {
    const messages = rendered(...items);
    expect(anthropic.violations({ messages: items })).not.toEqual([]);
    expect(anthropic.violations({ messages })).toEqual([]);
    expect(messages).toHaveLength(items.length);
    expect(JSON.stringify(messages[at])).toMatch(/"text":"\[(?:server_tool_use|web_search_tool_result)\]/);
  });

  it.each([
    ['in one turn', [asked, says(search, found, done)]],
    ['after a pause', [asked, says(search)]],
    ["behind results of the client's tools", [asked, says(search, use), answered, says(found, done)]],
    ["beside calls of the client's tools", [asked, says(search, use), answered]],
  ])('pairs %s stay unchanged', (_what, items) => {
    expect(rendered(...items)).toEqual(items);
  });

  it("blocks of the assistant are shown as text in a user's message", () => {
    const thinking = { type: 'thinking', thinking: 'x', signature: 's' };
    const items = [{ role: 'user', content: [thinking, use, done] }];
    expect(anthropic.violations({ messages: items })).toHaveLength(2);
    expect(anthropic.violations({ messages: rendered(...items) })).toEqual([]);
  });

  it('a call by a program that is not shown does not name it', () => {
    const caller = { type: 'code_execution_20250825', tool_id: 'srvtoolu_0' };
    expect(rendered(asked, says({ ...use, caller }), answered)).toEqual([asked, says(use), answered]);
  });
});
