/** The meaning of logs of Codex, the Agents SDK, SWE-agent and OpenHands. */
import { describe, expect, it } from 'vitest';
import { formatOf } from '../../../src/formats/index.js';
import type { FormatName } from '../../../src/conversation/format-names.js';
import type { Json } from '../../../src/conversation/message.js';

const codexLine: Json = {
  timestamp: 't',
  type: 'response_item',
  payload: { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hi' }] },
};

const messagesOf = (format: FormatName, items: Json[]) =>
  formatOf(format)
    .normalize(items, 'messages')
    .flatMap(({ messages }) => messages);

describe('logs of agents', () => {
  it('of Codex have its response items as messages; events and its compactions are stored with them', () => {
    const lines: Json[] = [
      { timestamp: 't', type: 'session_meta', payload: { id: 'abc' } },
      codexLine,
      { timestamp: 't', type: 'event_msg', payload: { type: 'user_message', message: 'Hi' } },
      { timestamp: 't', type: 'compacted', payload: { message: 'so far' } },
      { timestamp: 't', type: 'response_item', payload: { type: 'ghost_snapshot', ghost_commit: {} } },
    ];
    const units = formatOf('codex').normalize(lines, 'messages');
    expect(units).toEqual([{ items: lines, messages: [{ role: 'user', content: 'Hi' }] }]);
    expect(formatOf('codex').requestItems!(lines, units[0]!.messages)).toEqual([
      (codexLine as { payload: Json }).payload,
    ]);
  });

  it('of the Agents SDK repeat a call that waits for approval, which is shown once', () => {
    const raw_item = { type: 'function_call', call_id: 'a', name: 'pay', arguments: '{}' };
    const items: Json[] = [
      { role: 'user', content: 'Hi' },
      { type: 'tool_call_item', raw_item },
      { type: 'tool_approval_item', raw_item },
    ];
    expect(messagesOf('openai-agents', items)).toEqual([
      { role: 'user', content: 'Hi' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'pay', arguments: '{}' } }],
      },
    ]);
  });

  it('of the Agents SDK for JavaScript have other names', () => {
    const items: Json[] = [
      {
        type: 'tool_call_item',
        rawItem: { type: 'function_call', callId: 'a', name: 'pay', arguments: '{}' },
      },
      {
        type: 'tool_call_output_item',
        rawItem: {
          type: 'function_call_result',
          callId: 'a',
          name: 'pay',
          output: { type: 'text', text: 'ok' },
        },
      },
    ];
    const messages = messagesOf('openai-agents', items);
    expect(messages[1]).toEqual({ role: 'tool', tool_call_id: 'a', content: 'ok' });
    expect(formatOf('openai-agents').requestItems!(items.slice(0, 1), messages.slice(0, 1))).toEqual([
      { type: 'function_call', call_id: 'a', name: 'pay', arguments: '{}' },
    ]);
  });

  it('of SWE-agent name the call of each result', () => {
    expect(
      messagesOf('swe-agent', [
        {
          role: 'assistant',
          content: 'x',
          thought: 'x',
          action: 'ls',
          agent: 'main',
          tool_calls: [{ id: 'a', type: 'function', function: { name: 'ls', arguments: '{}' } }],
        },
        { role: 'tool', content: [{ type: 'text', text: 'a.txt' }], agent: 'main', tool_call_ids: ['a'] },
      ]),
    ).toEqual([
      {
        role: 'assistant',
        content: 'x',
        tool_calls: [{ id: 'a', type: 'function', function: { name: 'ls', arguments: '{}' } }],
      },
      { role: 'tool', content: 'a.txt', tool_call_id: 'a' },
    ]);
  });

  it("of OpenHands show each action with its call, the first with the model's text", () => {
    const model_response = {
      id: 'r',
      choices: [
        {
          message: {
            content: 'Both.',
            tool_calls: [
              { id: 'a', function: { name: 'run', arguments: '{"c":1}' } },
              { id: 'b', function: { name: 'run', arguments: '{}' } },
            ],
          },
        },
      ],
    };
    const metadata = (id: string) => ({ function_name: 'run', tool_call_id: id, model_response });
    const call = (id: string, args: string) => ({
      id,
      type: 'function',
      function: { name: 'run', arguments: args },
    });
    expect(
      messagesOf('openhands', [
        {
          source: 'user',
          action: 'message',
          args: { content: 'Do it.', image_urls: ['https://example.com/a.png'] },
        },
        { source: 'environment', observation: 'agent_state_changed', content: '' },
        { source: 'agent', action: 'run', args: {}, tool_call_metadata: metadata('a') },
        { source: 'agent', observation: 'run', content: 'one', tool_call_metadata: metadata('a') },
        { source: 'agent', action: 'run', args: {}, tool_call_metadata: metadata('b') },
        { source: 'agent', observation: 'run', content: 'two', tool_call_metadata: metadata('b') },
        { source: 'agent', action: 'browse', args: { thought: 'Look.', url: 'u' } },
      ]),
    ).toEqual([
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Do it.' },
          { type: 'image_url', image_url: { url: 'https://example.com/a.png' } },
        ],
      },
      { role: 'assistant', content: 'Both.', tool_calls: [call('a', '{"c":1}')] },
      { role: 'tool', tool_call_id: 'a', name: 'run', content: 'one' },
      { role: 'assistant', content: null, tool_calls: [call('b', '{}')] },
      { role: 'tool', tool_call_id: 'b', name: 'run', content: 'two' },
      {
        role: 'assistant',
        content: [
          { type: 'text', text: 'Look.' },
          { type: 'text', text: '[browse] {"url":"u"}' },
        ],
      },
    ]);
  });
});
