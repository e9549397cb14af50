/** Rollouts of Codex: turns that were rolled back, and malformed items. */
import { describe, expect, it } from 'vitest';
import { contextFormatOf, formatOf } from '../../../src/formats/index.js';
import type { Json } from '../../../src/conversation/message.js';
import { textOf } from '../../../src/conversation/validate.js';
import { itemsOf, logged, shown } from '../../support/formats.js';

const line = (type: string, payload: Json): Json => ({ timestamp: 't', type, payload });
const item = (payload: object): Json => line('response_item', payload as Json);

const says = (role: string, text: string): Json =>
  item({
    type: 'message',
    role,
    content: [{ type: role === 'assistant' ? 'output_text' : 'input_text', text }],
  });

const rollback = (turns: number): Json => line('event_msg', { type: 'thread_rolled_back', num_turns: turns });
const meta: Json = line('session_meta', { id: 's-1' });

function read(...lines: Json[]) {
  const opened = formatOf('codex').open!([meta, ...lines], 'lines')!;
  const log = logged([opened.items], 'codex');
  expect(itemsOf(log)).toEqual([meta, ...lines]);
  const rendered = shown(log, 'openai-responses');
  expect(contextFormatOf('openai-responses').violations(rendered)).toEqual([]);
  return {
    said: log.map(({ message }) => textOf(message) || (message.tool_calls ?? []).map(({ id }) => id).join()),
    input: rendered.messages,
  };
}

describe('a rollout of Codex', () => {
  const environment = says('user', '<environment_context>\n  <cwd>/work</cwd>\n</environment_context>');

  it('does not show turns that were rolled back, and keeps them', () => {
    const { said, input } = read(
      ...[environment, says('user', 'one'), says('assistant', 'first')],
      ...[
        says('developer', 'now in plan mode'),
        says('user', 'two'),
        line('event_msg', { type: 'user_message', message: 'two' }),
      ],
      item({ type: 'reasoning', summary: [], encrypted_content: 'gAAAA' }),
      item({ type: 'function_call', call_id: 'a', name: 'ls', arguments: '{}' }),
      item({ type: 'function_call_output', call_id: 'a', output: 'two files' }),
      ...[
        says('assistant', 'second'),
        says('user', 'three'),
        rollback(2),
        says('user', 'four'),
        says('assistant', 'fourth'),
      ],
    );
    expect(said.slice(1)).toEqual(['one', 'first', 'four', 'fourth']);
    expect(input).toHaveLength(5);
    expect(JSON.stringify(input)).not.toMatch(/two|three|plan mode/);
  });

  it('keeps the items before the first turn if all turns were rolled back', () => {
    expect(read(environment, says('user', 'one'), rollback(9), says('user', 'two')).said.slice(1)).toEqual([
      'two',
    ]);
    expect(
      read(says('user', 'one'), rollback(0), rollback(1), rollback(1), says('user', 'two')).said,
    ).toEqual(['two']);
  });
});
