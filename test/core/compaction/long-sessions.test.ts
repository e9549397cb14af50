/** Properties over many compactions, over many readings of one history, and for any history. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Conversation } from '../../../src/compaction/in-memory/conversation.js';
import type { Summarizer } from '../../../src/compaction/in-memory/asker.js';
import { validateView } from '../../../src/context/view/validity.js';
import { isFailure, PalimpsestError } from '../../../src/errors.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { messageOf } from '../../cases/format.js';
import { textOf } from '../../cases/play.js';
import { sessions } from '../../cases/sessions.js';
import { saidOf } from '../../support/material.js';

const counter = counterFor('chars/4');

describe('twenty compactions in a row', () => {
  /** Forgets everything but its first lines. */
  const forgetful: Summarizer = (request) => {
    const content = request.messages.at(-1)?.content ?? '';
    const lines = content.split('\n').filter((line) => line.startsWith('- '));
    return saidOf(['- Baking goes on.', ...lines.slice(0, 1)].join('\n'), request);
  };

  test('keep pinned constraints and identifiers in use, in a summary that does not grow', async () => {
    const rule = 'Never bake before four: the neighbours sleep.';
    const conversation = new Conversation({
      policy: {
        tokenizer: 'chars/4',
        contextWindow: 12_000,
        trigger: { tokens: 5_000 },
        keep: { messages: 2 },
        pins: [rule],
        summary: { mode: 'incremental' },
      },
    });
    conversation.append(
      ['user: Work on order KX-40917 with /recipes/rye-v3.md.', 'assistant: Opened.'].map(messageOf),
    );
    for (let round = 0; conversation.generations.length < 20; round++) {
      expect(round).toBeLessThan(400);
      conversation.append(
        [
          `user: Batch ${round} of KX-40917. ~300`,
          `assistant: By /recipes/rye-v3.md, batch ${round} is done. ~300`,
        ].map(messageOf),
      );
      if (conversation.isDue()) await conversation.compact(forgetful);
    }
    const { items, tokens } = conversation.context();
    const shown = textOf(items);
    expect(shown).toContain(rule);
    expect(shown).toContain('KX-40917');
    expect(shown).toContain('/recipes/rye-v3.md');
    expect(tokens).toBeLessThanOrEqual(conversation.limits.contextTarget);
    for (const { head } of conversation.generations)
      expect(head?.tokens[0]).toBeLessThanOrEqual(
        conversation.limits.headMax + conversation.limits.pinTokens,
      );
    expect(conversation.replay()).toEqual(conversation.log.map(({ message }) => message));
  });
});

describe('a history far beyond the window of the summarizer', () => {
  const window = 8_000;
  const history = Array.from({ length: 120 }, (_, number) => [
    `user: Question ${number}. ~400`,
    `assistant: Answer ${number}. ~400`,
  ]).flat();
  const policy = {
    tokenizer: 'chars/4',
    contextWindow: 200_000,
    keep: { messages: 2 },
    summary: { mode: 'incremental', contextWindow: window, fallback: 'none' },
  } as const;

  test('is read in requests that fit, at every level of consolidation', async () => {
    const conversation = new Conversation({ policy });
    conversation.append(history.map(messageOf));
    const kinds: string[] = [];
    let read = '';
    const generation = await conversation.compact(
      (request, { kind }) => {
        const { messages, maxTokens } = request;
        const tokens = messages.reduce((sum, { content }) => sum + counter.count(content), 0);
        expect(tokens + maxTokens).toBeLessThanOrEqual(window);
        kinds.push(kind);
        read += messages.at(-1)?.content ?? '';
        return saidOf(`- Digest ${kinds.length}. ${'Much was asked and answered. '.repeat(20)}`, request);
      },
      { force: true },
    );
    expect(kinds.filter((kind) => kind === 'chunk').length).toBeGreaterThan(10);
    expect(kinds.filter((kind) => kind !== 'chunk').length).toBeGreaterThan(1);
    for (let number = 0; number < 119; number++) expect(read).toContain(`Question ${number}.`);
    expect(generation?.coverage.every(({ how }) => how !== 'withheld')).toBe(true);
  });

  test('is halved if the summarizer says that it is too long, and no request is repeated unchanged', async () => {
    const conversation = new Conversation({ policy });
    conversation.append(history.map(messageOf));
    const requests: string[] = [];
    const generation = await conversation.compact(
      (asked) => {
        const request = asked.messages.map(({ content }) => content).join('\n');
        requests.push(request);
        if (counter.count(request) > 2_600) throw new PalimpsestError('Llm.ContextOverflow', 'too long');
        return saidOf('- Digest.', asked);
      },
      { force: true },
    );
    expect(generation?.snapshot).toContain('- Digest.');
    expect(new Set(requests).size).toBe(requests.length);
  });

  test('is not paid for again after a failure late in it', async () => {
    const conversation = new Conversation({ policy });
    conversation.append(history.map(messageOf));
    const answered: string[] = [];
    const answers =
      (fails: boolean): Summarizer =>
      (request) => {
        if (fails && answered.length === 7) throw new PalimpsestError('Llm.RateLimited', 'slow down');
        answered.push(request.messages.map(({ content }) => content).join('\n'));
        return saidOf('- Digest.', request);
      };
    await expect(conversation.compact(answers(true), { force: true })).rejects.toThrow('slow down');
    expect(conversation.generations).toEqual([]);
    expect(await conversation.compact(answers(false), { force: true })).not.toBeNull();
    expect(new Set(answered).size).toBe(answered.length);
  });
});

describe('any history', () => {
  test('is, after compactions, in exactly one place, read, valid and within its budget', async () => {
    await fc.assert(
      fc.asyncProperty(
        sessions,
        fc.integer({ min: 1, max: 8 }),
        fc.boolean(),
        async (turns, messages, byRule) => {
          const conversation = new Conversation({
            policy: {
              tokenizer: 'chars/4',
              contextWindow: 6_000,
              trigger: { tokens: 3_000 },
              keep: { messages },
              summary: { mode: 'incremental' },
            },
          });
          for (const turn of turns) {
            conversation.append(turn);
            await compactWhereAsked(conversation, byRule);
            expect(validateView(messagesOf(conversation))).toEqual([]);
          }
          await compactWhereAsked(conversation, byRule, true);
          expect(conversation.replay()).toEqual(conversation.log.map(({ message }) => message));
          for (const { fromSeq, throughSeq, coverage } of conversation.generations)
            for (let seq = fromSeq; seq <= throughSeq; seq++)
              expect(
                coverage.filter((range) => range.fromSeq <= seq && seq <= range.throughSeq),
              ).toHaveLength(1);
        },
      ),
      { numRuns: 150 },
    );
  });

  async function compactWhereAsked(
    conversation: Conversation,
    byRule: boolean,
    force = false,
  ): Promise<void> {
    if (!force && !conversation.isDue()) return;
    try {
      await conversation.compact(byRule ? null : (request) => saidOf('- So far.', request), { force });
    } catch (error) {
      if (!isFailure(error, 'Budget.Unreachable') && !isFailure(error, 'Summary.NotSmaller')) throw error;
    }
  }

  function messagesOf(conversation: Conversation) {
    try {
      const { messages, tokens } = conversation.context();
      expect(tokens).toBeLessThanOrEqual(conversation.limits.budget);
      return messages;
    } catch (error) {
      if (isFailure(error, 'Budget.Unreachable')) return [];
      throw error;
    }
  }
});
