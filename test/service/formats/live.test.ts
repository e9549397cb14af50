/**
 * Agents with another format, end to end: their sessions are compacted, and every context is in their format, valid and within
 * budget.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { contextFormatOf } from '../../../src/formats/index.js';
import { contextFormats, type ContextFormat } from '../../../src/conversation/format-names.js';
import type { Json } from '../../../src/conversation/message.js';
import type { SessionContext } from '../../../src/contract/context.js';
import { smallPolicy, words } from '../../support/dialogue.js';
import { type Stack, startStack } from '../../support/stack.js';
import { joined } from '../../support/texts.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});

afterAll(() => stack.stop());

const items = (...all: Json[]): Json[] => all;

/** A request, a call with thoughts, its result, an answer: about 250 tokens. */
const turns: Partial<Record<ContextFormat, (n: number) => Json[]>> = {
  'openai-responses': (n) =>
    items(
      { role: 'user', content: `Request ${n}: ${words(60, n)}` },
      { type: 'reasoning', id: `rs_${n}`, summary: [], encrypted_content: 'gAAAA' },
      { type: 'function_call', id: `fc_${n}`, call_id: `call_${n}`, name: 'search', arguments: `{"n":${n}}` },
      { type: 'function_call_output', call_id: `call_${n}`, output: words(100, n + 1) },
      {
        type: 'message',
        role: 'assistant',
        id: `msg_${n}`,
        content: [{ type: 'output_text', text: `Answer ${n}: ${words(60, n + 2)}`, annotations: [] }],
      },
    ),
  langchain: (n) =>
    items(
      { type: 'human', data: { content: `Request ${n}: ${words(60, n)}`, type: 'human' } },
      {
        type: 'ai',
        data: {
          content: [{ type: 'thinking', thinking: 'hm', signature: 's' }],
          tool_calls: [{ name: 'search', args: { n }, id: `call_${n}`, type: 'tool_call' }],
          type: 'ai',
        },
      },
      { type: 'tool', data: { content: words(100, n + 1), tool_call_id: `call_${n}`, type: 'tool' } },
      { type: 'ai', data: { content: `Answer ${n}: ${words(60, n + 2)}`, type: 'ai' } },
    ),
  'ai-sdk': (n) =>
    items(
      { role: 'user', content: `Request ${n}: ${words(60, n)}` },
      {
        role: 'assistant',
        content: [
          { type: 'reasoning', text: 'hm', providerOptions: { anthropic: { signature: 's' } } },
          { type: 'tool-call', toolCallId: `call_${n}`, toolName: 'search', input: { n } },
        ],
      },
      {
        role: 'tool',
        content: [
          {
            type: 'tool-result',
            toolCallId: `call_${n}`,
            toolName: 'search',
            output: { type: 'text', value: words(100, n + 1) },
          },
        ],
      },
      { role: 'assistant', content: `Answer ${n}: ${words(60, n + 2)}` },
    ),
};

const count = 30;

test.each(Object.entries(turns) as [ContextFormat, (n: number) => Json[]][])('%s', async (format, turn) => {
  const { palimpsest } = stack;
  const session = `agent-${format}`;
  const appended: Json[] = [];
  let before: { generation: number; messages: Json[] } | null = null;
  for (let n = 1; n <= count; n++) {
    const messages = turn(n);
    await palimpsest.appendTurn({ session, turnId: `turn-${n}`, messages, format, policy: smallPolicy });
    appended.push(...messages);
    // A context that is read before a compaction has committed is shortened where it must be.
    await palimpsest.settled({ session });
    const context: SessionContext<Json> = await palimpsest.context<Json>({ session });
    expect(context.format).toBe(format);
    expect(contextFormatOf(format).violations(context)).toEqual([]);
    expect(context.tokens).toBeLessThanOrEqual(context.budget);
    expect(context.messages.slice(-messages.length)).toEqual(messages);
    if (before?.generation === context.generation)
      expect(context.messages.slice(0, before.messages.length)).toEqual(before.messages);
    before = context;
  }
  await palimpsest.compact({ session });
  expect((await palimpsest.compactions({ session })).length).toBeGreaterThan(0);

  const context = await palimpsest.context<Json>({ session });
  const tail = context.messages.findIndex(
    (message) => JSON.stringify(message) === JSON.stringify(appended.at(-4)),
  );
  expect(context.messages.slice(tail)).toEqual(appended.slice(-4));
  for (const other of contextFormats) {
    const { messages, system } = await palimpsest.context<Json>({ session, format: other });
    const rendered = { messages, ...(system === undefined ? {} : { system }) };
    expect(contextFormatOf(other).violations(rendered)).toEqual([]);
  }

  expect(JSON.parse(await joined(palimpsest.export({ session })))).toEqual(appended);
});

test('a session keeps the format of its first turn', async () => {
  const { palimpsest } = stack;
  const turn = { session: 'mixed', turnId: 'a', messages: turns.langchain!(1), format: 'langchain' as const };
  await palimpsest.appendTurn(turn);
  await expect(
    palimpsest.appendTurn({ ...turn, turnId: 'b', format: 'ai-sdk', messages: turns['ai-sdk']!(1) }),
  ).rejects.toMatchObject({ type: 'Input.Invalid', path: 'format' });
  await expect(
    palimpsest.appendTurn({
      ...turn,
      turnId: 'c',
      format: undefined,
      messages: [{ type: 'human', content: 3 }],
    }),
  ).rejects.toMatchObject({ type: 'Input.Invalid', path: 'messages[0].content' });
});
