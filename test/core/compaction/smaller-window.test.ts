/**
 * A journal made for a large window is read in a small one, for another model or after a calibration: whole entries are
 * dropped, oldest first, and the next compaction merges the rest into the new room.
 */
import { beforeAll, describe, expect, test } from 'vitest';
import { Conversation } from '../../../src/compaction/in-memory/conversation.js';
import type { Summarizer } from '../../../src/compaction/in-memory/asker.js';
import { validateView } from '../../../src/context/view/validity.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { notesAsAsked } from '../../../src/rehearsal/notes.js';
import { leftOutLine } from '../../support/texts.js';
import { counterFor } from '../../../src/tokens/counter.js';

const counter = counterFor('chars/4');
const asAsked = notesAsAsked(counter);
const question = 'what became of the parcel for the harbour?';
const pin = 'Never ship on Sundays.';

/** Notes as long as asked for, and a question that stays open. */
const writer: Summarizer = async (request, about) =>
  (await asAsked(request, about)).replace('- none', `- new open: ${question}`);

const words = 'ledger parcel harbour window gravel planner copper bridge lantern orchard meadow signal'.split(
  ' ',
);
const text = (seq: number, tokens: number): string =>
  Array.from({ length: tokens / 2 }, (_, at) => `${words[(seq * 7 + at * 5) % words.length]}-${seq}`).join(
    ' ',
  );

function turn(index: number): ChatMessage[] {
  const id = `call_${index}`;
  return [
    { role: 'user', content: text(index, 120) },
    {
      role: 'assistant',
      content: null,
      tool_calls: [
        { id, type: 'function', function: { name: 'read', arguments: `{"path":"f${index}.ts"}` } },
      ],
    },
    { role: 'tool', tool_call_id: id, content: text(index + 10_000, 160) },
    { role: 'assistant', content: text(index + 20_000, 120) },
  ];
}

async function play(contextWindow: number, until: (conversation: Conversation) => boolean) {
  const policy: PolicyInput = {
    ...{ contextWindow, tokenizer: 'chars/4', pins: [pin] },
    summary: { mode: 'journal' },
  };
  const conversation = new Conversation({ policy, counter });
  for (let index = 0; !until(conversation); index++) {
    conversation.append(turn(index));
    if (conversation.isDue()) await conversation.compact(writer);
  }
  return conversation;
}

const entriesOf = (conversation: Conversation) => conversation.generations.at(-1)?.layers?.length ?? 0;
const headOf = ({ generations }: Conversation) => String(generations.at(-1)?.head?.messages[0]?.content);
const sizeOf = (shown: string) => counter.count(shown);
const turnOf = ({ messages }: { messages: ChatMessage[] }) => String(messages[0]!.content);

/** The text after the line for the dropped entries; null if none was dropped. */
function behindLeft(shown: string): string | null {
  const at = shown.indexOf(leftOutLine);
  return at === -1 ? null : shown.slice(at + leftOutLine.length);
}

describe('a journal made for 200,000 tokens', () => {
  let conversation: Conversation;
  let full: string;

  beforeAll(async () => {
    conversation = await play(200_000, (one) => entriesOf(one) > 2 && sizeOf(headOf(one)) > 10_000);
    full = headOf(conversation);
  });

  test('stays whole if it fits its room, or if shorter messages are enough', () => {
    for (const budget of [190_000, 60_000, 40_000]) expect(turnOf(conversation.context(budget))).toBe(full);
  });

  test.each([24_000, 12_000, 7_168, 6_000])(
    'fits %d tokens: its oldest entries are dropped, all other text stays identical',
    (budget) => {
      const context = conversation.context(budget);
      expect(context.tokens).toBeLessThanOrEqual(budget);
      expect(validateView(context.messages)).toEqual([]);
      const shown = turnOf(context);
      const opening = full.slice(0, full.indexOf('### Messages'));
      const behind = behindLeft(shown)!;
      expect(shown).toMatch(/### Messages 1–\d+\n/);
      expect(shown.startsWith(opening)).toBe(true);
      expect(full.endsWith(behind)).toBe(true);
      for (const kept of ['### Messages', question, pin, 'in the archive, word for word'])
        expect(behind).toContain(kept);
      const left = Number(/### Messages 1–(\d+)\n/.exec(shown)![1]);
      expect(behind).toContain(`### Messages ${left + 1}–`);
      expect(conversation.context(budget).messages).toEqual(context.messages);
    },
  );

  test('keeps earlier reductions: later reads of that budget begin alike, and drop more entries only if necessary', () => {
    const shown = [full];
    for (const tokens of [46_000, 50_000]) {
      conversation.append([{ role: 'user', content: text(7, tokens) }]);
      const context = conversation.context(60_000);
      expect(context.tokens).toBeLessThanOrEqual(60_000);
      const turn = turnOf(context);
      expect(turn.length).toBeLessThan(shown.at(-1)!.length);
      expect(full.endsWith(behindLeft(turn)!)).toBe(true);
      expect(turn.match(new RegExp(leftOutLine, 'g'))).toHaveLength(1);
      conversation.append([{ role: 'user', content: text(8, 100) }]);
      expect(turnOf(conversation.context(60_000)) === turn).toBe(true);
      shown.push(turn);
    }
    expect(turnOf(conversation.context(190_000)) === full).toBe(true);
  });

  test('drops neither its newest entry nor the other parts of the head', () => {
    expect(() => conversation.context(400)).toThrow('the smallest valid context');
    expect(turnOf(conversation.context(190_000)) === full).toBe(true);
  });
});

test('if a provider counts more tokens, entries are dropped, then the next compaction merges into the smaller room', async () => {
  const conversation = await play(24_000, (one) => entriesOf(one) > 2 && sizeOf(headOf(one)) > 5_000);
  const before = { ...conversation.limits };
  const { generation } = conversation.generations.at(-1)!;
  const full = headOf(conversation);
  let live = conversation.context(Infinity).tokens;
  for (let index = 1_000; conversation.limits.budget > before.budget / 2; index++) {
    conversation.append([{ role: 'user', content: text(index, 60) }]);
    const usage = { inputTokens: Math.round(3 * live), outputTokens: 10 };
    conversation.append([{ role: 'assistant', content: text(index + 1, 60) }], undefined, usage);
    live = conversation.context(Infinity).tokens;
  }
  // Too short to be shortened.
  for (let index = 0; index < 200; index++) conversation.append([{ role: 'user', content: text(index, 16) }]);
  expect(conversation.generations.at(-1)!.generation).toBe(generation);
  const { budget, headMax } = conversation.limits;
  expect(headMax).toBeLessThan(before.headMax);
  const context = conversation.context();
  expect(context.tokens).toBeLessThanOrEqual(budget);
  expect(validateView(context.messages)).toEqual([]);
  expect(full.endsWith(behindLeft(turnOf(context))!)).toBe(true);

  const committed = await conversation.compact(writer);
  expect(committed!.method).toBe('model');
  expect(committed!.head!.tokens[0]).toBeLessThanOrEqual(headMax + conversation.limits.pinTokens);
  expect(committed!.layers!.some(({ left }) => left)).toBe(false);
  const after = conversation.context();
  expect(after.tokens).toBeLessThanOrEqual(budget);
  expect(validateView(after.messages)).toEqual([]);
  expect(behindLeft(turnOf(after))).toBeNull();
  expect(turnOf(after)).toContain(question);
});
