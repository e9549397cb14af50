/**
 * Recorded sessions, clean and malformed, through the whole service with a scripted model at small windows: each ends with a
 * valid context within its budget and replays identically. `Budget.Unreachable` occurs only if the messages that must not be
 * shortened exceed the budget alone.
 */
import { encode } from 'gpt-tokenizer/encoding/o200k_base';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { cutTurns } from '../../../src/conversation/groups.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { validateView } from '../../../src/context/view/validity.js';
import { isFailure } from '../../../src/errors.js';
import type { SessionContext } from '../../../src/contract/context.js';
import { sized } from '../../support/size.js';
import { startStack, type Stack } from '../../support/stack.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

/** A session is appended in at most this many turns; its context is read after each. */
const mostTurns = 12;
const atOnce = 8;

describe.skipIf(skipWithoutTranscripts())('recorded sessions', () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await startStack();
  });
  afterAll(() => stack.stop());

  test.for([8_000, 32_000])(
    'end valid, within budget and identical at window %i',
    { timeout: 600_000 },
    async (window) => {
      const unreachable: string[] = [];
      let sessions = 0;
      let compactions = 0;
      const transcripts = readTranscripts(sized(8, 1));
      const lanes = Array.from({ length: atOnce }, async () => {
        for (let next = await transcripts.next(); !next.done; next = await transcripts.next()) {
          const { id, messages } = JSON.parse(next.value.line) as { id: string; messages: ChatMessage[] };
          const outcome = await play(`${id}-${window}`, messages, window);
          sessions++;
          if (outcome === 'unreachable') unreachable.push(id);
          else compactions += outcome;
        }
      });
      await Promise.all(lanes);
      console.log(
        `window ${window}: ${sessions} sessions, ${compactions} compactions, unreachable: ${unreachable.join(', ') || 'none'}`,
      );
      expect(sessions).toBeGreaterThan(0);
      expect(stack.model.paidTwice()).toEqual([]);
    },
  );

  async function play(
    session: string,
    messages: ChatMessage[],
    window: number,
  ): Promise<number | 'unreachable'> {
    const { palimpsest } = stack;
    let context: SessionContext | null = null;
    for (const [turn, { from, to }] of inFewTurns(messages).entries()) {
      await palimpsest.appendTurn({
        session,
        turnId: `t-${turn}`,
        messages: messages.slice(from, to),
        policy: { contextWindow: window },
      });
      context = await read(session, messages.slice(0, to), window);
    }
    await palimpsest.settled({ session });
    context = await read(session, messages, window);
    let seq = 0;
    for await (const { message } of palimpsest.replay({ session })) {
      if (JSON.stringify(message) !== JSON.stringify(messages[seq++]))
        throw new Error(`${session}: message ${seq} is not what was appended`);
    }
    expect(seq, session).toBe(messages.length);
    return context === null ? 'unreachable' : (await palimpsest.compactions({ session })).length;
  }

  async function read(session: string, soFar: ChatMessage[], window: number): Promise<SessionContext | null> {
    const budget = window - window / 8;
    try {
      const context = await stack.palimpsest.context({ session });
      expect(validateView(context.messages), session).toEqual([]);
      expect(context.budget).toBe(budget);
      expect(
        context.messages.reduce((sum, message) => sum + weigh(message), 0),
        session,
      ).toBeLessThanOrEqual(budget);
      return context;
    } catch (error) {
      if (!isFailure(error, 'Budget.Unreachable')) throw error;
      const leading = soFar.findIndex(({ role }) => role !== 'system' && role !== 'developer');
      const newest = soFar.findLast(({ role, content }) => role === 'user' && content);
      const fixed = [...soFar.slice(0, Math.max(0, leading)), ...(newest ? [newest] : [])];
      // The head and what stands for the rest come on top; they take less than a quarter of the budget.
      expect(
        fixed.reduce((sum, message) => sum + weigh(message), 0),
        session,
      ).toBeGreaterThan(0.75 * budget);
      return null;
    }
  }
});

/** Turns as a platform would append them, neighbours joined. */
function inFewTurns(messages: ChatMessage[]): { from: number; to: number }[] {
  const turns = cutTurns(messages);
  const step = Math.ceil(turns.length / mostTurns);
  return turns.flatMap(({ from }, index) =>
    index % step === 0 ? [{ from, to: turns[index + step - 1]?.to ?? messages.length }] : [],
  );
}

/** Counted here anew, without the product's counter: text, names and arguments, 4 tokens a message. */
function weigh({ content, tool_calls: calls }: ChatMessage): number {
  const texts = typeof content === 'string' ? [content] : (content ?? []).map(({ text }) => text ?? '');
  for (const call of calls ?? []) texts.push(call.function?.name ?? '', call.function?.arguments ?? '');
  return texts.reduce((sum, text) => sum + encode(text, { disallowedSpecial: new Set() }).length, 4);
}
