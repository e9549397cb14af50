/** Gemini contents: no part of them is lost, and the API accepts the context of any session. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { anthropic } from '../../../src/formats/anthropic.js';
import { NO_SIGNATURE } from '../../../src/formats/gemini-render.js';
import { gemini } from '../../../src/formats/gemini.js';
import type { Json } from '../../../src/conversation/message.js';
import { checkMessages } from '../../../src/conversation/validate.js';
import { validateView } from '../../../src/context/view/validity.js';
import { itemsOf, logged, shown, shownChat } from '../../support/formats.js';
import { histories } from '../../support/histories.js';
import { geminiAgents } from '../../support/native-agents.js';
import { geminiHistories } from '../../support/native-histories.js';

const messagesOf = (...items: Json[]) =>
  gemini.normalize(items, 'messages').flatMap(({ messages }) => messages);

const call = (name: string, args: Json = {}): Json => ({ functionCall: { name, args } });

const response = (name: string, output: string): Json => ({
  functionResponse: { name, response: { output } },
});

describe('the meaning of Gemini contents', () => {
  it('pairs responses without ids by name and order', () => {
    expect(
      messagesOf(
        { role: 'system', parts: [{ text: 'Be brief.' }] },
        { role: 'user', parts: [{ text: 'Read both.' }] },
        {
          role: 'model',
          parts: [
            { text: 'two files', thought: true },
            { ...(call('read', { path: 'a' }) as object), thoughtSignature: 's' },
            call('bash'),
            call('read', { path: 'b' }),
          ],
        },
        { role: 'function', parts: [response('read', 'A'), response('bash', 'ok'), response('read', 'B')] },
      ),
    ).toEqual([
      { role: 'system', content: 'Be brief.' },
      { role: 'user', content: 'Read both.' },
      {
        role: 'assistant',
        content: null,
        reasoning_content: 'two files',
        tool_calls: [
          { id: 'read_1', type: 'function', function: { name: 'read', arguments: '{"path":"a"}' } },
          { id: 'bash_1', type: 'function', function: { name: 'bash', arguments: '{}' } },
          { id: 'read_2', type: 'function', function: { name: 'read', arguments: '{"path":"b"}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'read_1', content: 'A' },
      { role: 'tool', tool_call_id: 'bash_1', content: 'ok' },
      { role: 'tool', tool_call_id: 'read_2', content: 'B' },
    ]);
  });

  it('has media in the form in which tokens are counted, code and its output as text', () => {
    const [message] = messagesOf({
      role: 'user',
      parts: [
        { inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=' } },
        { inline_data: { mime_type: 'application/pdf', data: 'JVBERi0=', display_name: 'a.pdf' } },
        { fileData: { mimeType: 'video/mp4', fileUri: 'gs://bucket/a.mp4' } },
        { executableCode: { language: 'PYTHON', code: 'print(1)' } },
        { codeExecutionResult: { outcome: 'OUTCOME_OK', output: '1' } },
        { ofNextYear: { value: 7 } },
      ],
    });
    expect(message!.content).toEqual([
      { type: 'image_url', image_url: { url: 'data:image/png;base64,iVBORw0KGgo=' } },
      { type: 'file', file: { filename: 'a.pdf', file_data: 'data:application/pdf;base64,JVBERi0=' } },
      { type: 'file', file: { file_url: 'gs://bucket/a.mp4' } },
      { type: 'text', text: '```python\nprint(1)\n```' },
      { type: 'text', text: '[codeExecutionResult OUTCOME_OK]\n1' },
      { type: 'text', text: '[ofNextYear] {"ofNextYear":{"value":7}}' },
    ]);
  });

  it.each([
    [7, 'messages[0]'],
    [{ parts: [] }, 'messages[0].role'],
    [{ role: 'assistant', parts: [] }, 'messages[0].role'],
    [{ role: 'user', parts: 'x' }, 'messages[0].parts'],
    [{ role: 'user', parts: ['x'] }, 'messages[0].parts[0]'],
    [{ role: 'user', parts: [{ text: 3 }] }, 'messages[0].parts[0].text'],
    [{ role: 'model', parts: [{ functionCall: { args: {} } }] }, 'messages[0].parts[0].functionCall.name'],
    [
      { role: 'model', parts: [{ functionCall: { name: 'a', args: 'b' } }] },
      'messages[0].parts[0].functionCall.args',
    ],
  ])('refuses %j with the path of the field', (item, path) => {
    expect(() => gemini.normalize([item as Json], 'messages')).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path }),
    );
  });
});

describe('a context in the form of Gemini', () => {
  it('shows originals unchanged with their signatures, also for repeated calls of a function', () => {
    const turn = (text: string): Json[] => [
      { role: 'user', parts: [{ text }] },
      { role: 'model', parts: [{ ...(call('read') as object), thoughtSignature: text }] },
      { role: 'user', parts: [response('read', text)] },
      { role: 'model', parts: [{ text: 'Done.' }, { text: '', thoughtSignature: text }] },
    ];
    const system = { role: 'system', parts: [{ text: 'Be brief.' }] };
    const rendered = shown(logged([[system], turn('one'), turn('two')], 'gemini'), 'gemini');
    expect(rendered).toEqual({ system: { parts: system.parts }, messages: [...turn('one'), ...turn('two')] });
    expect(gemini.violations(rendered)).toEqual([]);
  });

  it('marks calls of other origin as unsigned', () => {
    const { messages } = shownChat(
      [
        { role: 'user', content: 'Go.' },
        {
          role: 'assistant',
          content: null,
          tool_calls: ['a', 'b'].map((id) => ({
            id,
            type: 'function',
            function: { name: 'run', arguments: '{}' },
          })),
        },
        { role: 'tool', tool_call_id: 'b', content: 'B' },
        { role: 'tool', tool_call_id: 'a', content: 'A' },
      ],
      'gemini',
    );
    expect(messages.slice(1)).toEqual([
      { role: 'model', parts: [{ ...(call('run') as object), thoughtSignature: NO_SIGNATURE }, call('run')] },
      { role: 'user', parts: [response('run', 'A'), response('run', 'B')] },
    ]);
  });

  it('accepts any session of chat messages', () => {
    fc.assert(
      fc.property(histories, (messages) => {
        expect(gemini.violations(shownChat(messages, 'gemini'))).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });
});

describe('for random histories of Gemini contents', () => {
  it('no item is lost, and their meaning consists of valid chat messages', () => {
    fc.assert(
      fc.property(geminiHistories, (items) => {
        const units = gemini.normalize(items, 'messages');
        expect(units.flatMap((unit) => unit.items)).toEqual(items);
        expect(units.every(({ messages }) => messages.length > 0)).toBe(true);
        checkMessages(units.flatMap(({ messages }) => messages));
        expect(itemsOf(logged([items], 'gemini'))).toEqual(items);
      }),
      { numRuns: 300 },
    );
  });

  it('the context is valid, for Gemini, Anthropic and chat completions', () => {
    fc.assert(
      fc.property(geminiHistories, (items) => {
        const log = logged([items], 'gemini');
        expect(gemini.violations(shown(log, 'gemini'))).toEqual([]);
        expect(anthropic.violations(shown(log, 'anthropic'))).toEqual([]);
        expect(validateView(shown(log, 'openai-chat').messages as never)).toEqual([]);
      }),
      { numRuns: 500 },
    );
  });

  it('appending changes only the end', () => {
    fc.assert(
      fc.property(geminiHistories, geminiHistories, (before, after) => {
        // A late result replaces the one that stood for it: that is the session's own rule.
        const later = after.filter((item) => !JSON.stringify(item).includes('functionResponse'));
        const first = shown(logged([before], 'gemini'), 'gemini');
        const both = shown(logged([before, later], 'gemini'), 'gemini');
        const kept = first.messages.slice(0, -1);
        expect(both.messages.slice(0, kept.length)).toEqual(kept);
        if (kept.length > 0) expect(both.system).toEqual(first.system);
      }),
      { numRuns: 300 },
    );
  });

  it('runs of agents are shown unchanged, with all their parts', () => {
    fc.assert(
      fc.property(geminiAgents, (items) => {
        expect(gemini.violations({ messages: items })).toEqual([]);
        expect(shown(logged([items], 'gemini'), 'gemini')).toEqual({ messages: items });
      }),
      { numRuns: 300 },
    );
  });

  it('valid input of the API is shown unchanged', () => {
    fc.assert(
      fc.property(geminiHistories, (items) => {
        const [first, ...rest] = items;
        const system = first?.role === 'system' ? { parts: first.parts! } : undefined;
        const messages = system === undefined ? items : rest;
        const request = { messages, ...(system === undefined ? {} : { system }) };
        fc.pre(
          gemini.violations(request).length === 0 &&
            !messages.some(({ parts }) => saysNothing(parts as Json[])),
        );
        expect(shown(logged([items], 'gemini'), 'gemini')).toEqual(request);
      }),
      { numRuns: 300 },
    );
  });
});

/** A turn of white space or thoughts alone is never shown. */
function saysNothing(parts: readonly Json[]): boolean {
  return parts.every((part) => {
    const { text, thought } = part as { text?: string; thought?: boolean };
    return text !== undefined && (thought === true || text.trim() === '');
  });
}
