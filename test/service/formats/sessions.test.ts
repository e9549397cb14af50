/**
 * Sessions in the formats of providers, end to end: appended, compacted, read in their own format and in others, and replayed
 * item by item.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { contextFormatOf } from '../../../src/formats/index.js';
import type { ContextFormat, FormatName } from '../../../src/conversation/format-names.js';
import type { Json } from '../../../src/conversation/message.js';
import type { SessionContext } from '../../../src/contract/context.js';
import { words } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});

afterAll(() => stack.stop());

const png =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

type Item = Record<string, unknown>;

/** A turn of an agent: a request, a call with its thinking, the result with a picture, an answer. */
const turns: Record<'anthropic' | 'gemini' | 'claude-code', (turn: number) => Item[]> = {
  anthropic: (turn) => [
    { role: 'user', content: `Request ${turn}: ${words(60, turn)}` },
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: `Thought ${turn}`, signature: `c2ln${turn}` },
        { type: 'text', text: 'Reading.' },
        // Agents start their ids anew with each turn.
        { type: 'tool_use', id: 'toolu_1', name: 'read_file', input: { path: `/src/${turn}.ts` } },
      ],
    },
    {
      role: 'user',
      content: [
        {
          type: 'tool_result',
          tool_use_id: 'toolu_1',
          content: [
            { type: 'text', text: words(80, turn) },
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: png } },
          ],
        },
      ],
    },
    { role: 'assistant', content: [{ type: 'text', text: `Answer ${turn}: ${words(40, turn)}` }] },
  ],
  gemini: (turn) => [
    { role: 'user', parts: [{ text: `Request ${turn}: ${words(60, turn)}` }] },
    {
      role: 'model',
      parts: [
        { text: `Thought ${turn}`, thought: true },
        {
          functionCall: { name: 'read_file', args: { path: `/src/${turn}.ts` } },
          thoughtSignature: `c2ln${turn}`,
        },
      ],
    },
    {
      role: 'user',
      parts: [
        { functionResponse: { name: 'read_file', response: { output: words(80, turn) } } },
        { inlineData: { mimeType: 'image/png', data: png } },
      ],
    },
    { role: 'model', parts: [{ text: `Answer ${turn}: ${words(40, turn)}` }] },
  ],
  'claude-code': (turn) =>
    turns.anthropic(turn).flatMap((message, index): Item[] => {
      const { role, content } = message;
      const blocks = role === 'assistant' ? (content as unknown[]).map((block) => [block]) : [content];
      return blocks.map((own, block) => ({
        type: role,
        uuid: `${turn}-${index}-${block}`,
        sessionId: 's',
        message: { role, content: own, ...(role === 'assistant' ? { id: `msg_${turn}_${index}` } : {}) },
      }));
    }),
};

const text = (value: unknown): string => JSON.stringify(value);

async function replayedItems(session: string): Promise<Json[]> {
  const items: Json[] = [];
  for await (const { native } of stack.palimpsest.replay({ session })) items.push(...(native?.items ?? []));
  return items;
}

function expectValid(context: SessionContext<unknown>, format: ContextFormat): void {
  const { messages, system, tokens, budget } = context as SessionContext<Json>;
  expect(context.format).toBe(format);
  expect(
    contextFormatOf(format).violations({ messages, ...(system === undefined ? {} : { system }) }),
  ).toEqual([]);
  expect(tokens).toBeLessThanOrEqual(budget);
}

const rules = { anthropic: 'Be exact.', gemini: { parts: [{ text: 'Be exact.' }] } } as const;

const sessions = [
  ['anthropic', 'anthropic', { role: 'system', content: 'Be exact.' }],
  ['gemini', 'gemini', { role: 'system', parts: [{ text: 'Be exact.' }] }],
  ['claude-code', 'anthropic', null],
] as const;

describe.for(sessions)('a session in the format %s', ([format, provider, system]) => {
  const session = `in-${format}`;
  const appended: Item[] = [];
  const append = async (turn: number, policy = {}) => {
    const items = [...(turn === 0 && system ? [system] : []), ...turns[format](turn)];
    appended.push(...items);
    await stack.palimpsest.appendTurn({
      session,
      turnId: `t-${turn}`,
      messages: items,
      ...(turn === 0 ? { format, policy: { contextWindow: 8_000, ...policy } } : {}),
    });
  };

  test('is compacted, fits, and is valid with its last turns unchanged', async () => {
    for (let turn = 0; turn < 14; turn++) {
      await append(turn);
      expectValid(await stack.palimpsest.context({ session }), provider);
    }
    await stack.palimpsest.settled({ session });
    const context = await stack.palimpsest.context<Json>({ session });
    expectValid(context, provider);
    expect(context.generation).toBeGreaterThan(0);
    if (system) expect(context.system).toEqual(rules[provider]);
    // The last turn, four messages, as the provider had it; ids that were used before are told apart.
    const own = turns[provider](13).map(text);
    const shown = context.messages
      .slice(-4)
      .map((message) => text(message).replace(/toolu_1[\w-]*/g, 'toolu_1'));
    expect(shown).toEqual(own);
    const summary = context.entries.filter(({ source }) => source === 'summarization');
    expect(summary).toHaveLength(1);
  });

  test('is compacted on request', async () => {
    const { generation } = await stack.palimpsest.context({ session });
    expect(await stack.palimpsest.compact({ session })).toMatchObject({ generation: generation + 1 });
    expectValid(await stack.palimpsest.context({ session }), provider);
  });

  test('is valid in the formats of other providers', async () => {
    for (const other of ['openai-chat', 'anthropic', 'gemini'] as const)
      expectValid(await stack.palimpsest.context({ session, format: other }), other);
  });

  test('only grows at its end until the next compaction', async () => {
    const before = await stack.palimpsest.context<Json>({ session });
    await append(14);
    const after = await stack.palimpsest.context<Json>({ session });
    if (after.generation === before.generation)
      expect(after.messages.slice(0, before.messages.length).map(text)).toEqual(before.messages.map(text));
    expectValid(after, provider);
  });

  test('returns every appended item', async () => {
    expect((await replayedItems(session)).map(text)).toEqual(appended.map(text));
  });

  test('refuses a turn in another format', async () => {
    const other: FormatName = format === 'gemini' ? 'anthropic' : 'openai-chat';
    const refused = stack.palimpsest.appendTurn({
      session,
      turnId: 'other',
      messages: [{ role: 'user', content: 'Hello' }],
      format: other,
    });
    await expect(refused).rejects.toMatchObject({ type: 'Input.Invalid', path: 'format' });
  });

  test('refuses items of another format with the path of the field', async () => {
    if (format === 'claude-code') return;
    const refused = stack.palimpsest.appendTurn({
      session,
      turnId: 'odd',
      messages: [{ role: 'operator' }] as Json[],
    });
    await expect(refused).rejects.toMatchObject({ type: 'Input.Invalid', path: 'messages[0].role' });
    expect((await replayedItems(session)).length).toBe(appended.length);
  });
});

test("an evicted result is found by the provider's id of its call", async () => {
  const found = await stack.palimpsest.toolResponse({ session: 'in-anthropic', callId: 'toolu_1' });
  expect(text(found)).toContain('ledger');
});
