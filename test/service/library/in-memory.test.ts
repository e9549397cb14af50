/** A session in memory gives the same results as the service, for the same turns and answers. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Conversation, type Summarizer } from '../../../src/compaction/in-memory/index.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { places, planted, shownIn } from '../../cases/secrets.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { recorded, summaryOf, turnsOf } from '../../support/debugging-session.js';
import { completion } from '../../support/model-replies.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
  stack.model.reply((request) => {
    const content = summaryOf(request.body.messages.at(-1)?.content ?? '');
    return completion(request, { message: { content }, finish: 'stop', output: content, withoutUsage: true });
  });
});

afterAll(() => stack.stop());

const summarize: Summarizer = ({ messages }) => summaryOf(messages.at(-1)?.content ?? '');

test.for(['incremental', 'full_rewrite', 'journal'] as const)('%s', async (mode) => {
  const { palimpsest } = stack;
  const policy: PolicyInput = {
    contextWindow: 16_000,
    summary: { mode, model: 'test-summarizer', contextWindow: 16_000 },
  };
  const conversation = new Conversation({ policy, now: () => Date.now(), tenant: stack.queuePrefix });
  for (const [index, turn] of turnsOf(recorded).entries()) {
    await palimpsest.appendTurn({
      session: mode,
      turnId: `t-${index}`,
      messages: turn,
      ...(index === 0 ? { policy } : {}),
    });
    await palimpsest.settled({ session: mode });
    conversation.append(turn);
    if (conversation.isAlmostDue()) await conversation.writeAhead(summarize);
    while (conversation.isDue()) if (!(await conversation.compact(summarize))) break;
    const { messages, generation } = await palimpsest.context({ session: mode });
    expect(generation).toBe(conversation.generations.length);
    expect(messages).toEqual(conversation.context().messages);
  }
  expect(conversation.generations.length).toBeGreaterThan(1);
});

test('with secrets in every place, which both redact alike', async () => {
  const { palimpsest } = stack;
  const policy: PolicyInput = {
    contextWindow: 8_000,
    summary: { mode: 'journal', model: 'test-summarizer', contextWindow: 16_000 },
  };
  const conversation = new Conversation({ policy, now: () => Date.now(), tenant: stack.queuePrefix });
  const session = 'secrets';
  const turns = planted.slice(0, 30).flatMap((one, index): ChatMessage[][] =>
    Object.values(places).map((put, place) => [
      { role: 'user', content: `Step ${index}.${place}. ${put(one.text)}` },
      { role: 'assistant', content: `Step ${index}.${place} is done.` },
    ]),
  );
  for (const [index, turn] of turns.entries()) {
    await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages: turn, policy });
    await palimpsest.settled({ session });
    conversation.append(turn);
    if (conversation.isAlmostDue()) await conversation.writeAhead(summarize);
    while (conversation.isDue()) if (!(await conversation.compact(summarize))) break;
    const { messages, generation } = await palimpsest.context({ session });
    expect(generation).toBe(conversation.generations.length);
    expect(messages).toEqual(conversation.context().messages);
  }
  expect(conversation.generations.length).toBeGreaterThan(1);
  for (const { head, state, layers } of conversation.generations)
    expect(shownIn(JSON.stringify([head, state, layers]))).toEqual([]);
});
