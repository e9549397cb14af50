/** The service stores the entries that the rules merge: later compactions read them, and `status` lists them. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { dialogue } from '../../support/dialogue.js';
import { appendTurns } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});

afterAll(() => stack.stop());

test('a session without a model merges its entries again and again', async () => {
  const { palimpsest } = stack;
  const session = 'by-rule';
  const summary = { mode: 'journal', method: 'extractive' } as const;
  const policy = { contextWindow: 4_000, tokenizer: 'chars/4', summary } as const;
  for (const [from, turn] of dialogue(60).entries()) {
    await appendTurns(palimpsest, session, [turn], { policy, from });
    await palimpsest.compact({ session });
  }
  const { journal, generation } = await palimpsest.status({ session });
  const entries = journal?.entries ?? [];
  expect(generation).toBeGreaterThan(3 * entries.length);
  expect(Math.max(...entries.map(({ rank }) => rank))).toBeGreaterThan(1);
  expect(entries.map(({ fromSeq }) => fromSeq)).toEqual([
    1,
    ...entries.slice(0, -1).map((entry) => entry.throughSeq + 1),
  ]);
  for (const { lines, byRule } of entries) expect([lines > 0, byRule]).toEqual([true, true]);
});
