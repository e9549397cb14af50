/** Without a model, the rules write the journal. However long the session is, the journal keeps to its room and has content. */
import { expect, test } from 'vitest';
import { Conversation } from '../../../src/compaction/in-memory/conversation.js';
import { leftOutLine } from '../../../src/summary/answer/sections.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { dialogue } from '../../support/dialogue.js';

const counter = counterFor('chars/4');

test('the entries that are left out share one line, and the others keep their content', async () => {
  const policy = { contextWindow: 6_000, tokenizer: 'chars/4', summary: { method: 'extractive' } } as const;
  const conversation = new Conversation({ policy, counter });
  const lines: number[] = [];
  const entries: number[] = [];
  for (const turn of dialogue(400)) {
    conversation.append(turn);
    if (!conversation.isDue()) continue;
    await conversation.compact(null);
    const text = JSON.stringify(conversation.context().messages);
    lines.push(text.split(leftOutLine).length - 1);
    entries.push(text.split('### Messages').length - 1);
  }
  expect(lines.length).toBeGreaterThan(50);
  expect(Math.max(...lines)).toBe(1);
  expect(Math.min(...entries.slice(20))).toBeGreaterThan(2);
});
