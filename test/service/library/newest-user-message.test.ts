/**
 * `reduce.newestUserMessage`: agents whose tools answer in user messages get observations larger than the window. The context
 * then shows beginning and end of the newest one with a pointer; log, replay and summarizer have the original.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Conversation } from '../../../src/compaction/in-memory/index.js';
import { parseExact } from '../../../src/conversation/json.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { checkMessages, textOf } from '../../../src/conversation/validate.js';
import { validateView } from '../../../src/context/view/validity.js';
import { isFailure, type PalimpsestError } from '../../../src/errors.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import type { SessionContext } from '../../../src/contract/context.js';
import { dialogue, words } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';
import { sized } from '../../support/size.js';
import { readTranscripts, skipWithoutTranscripts } from '../../support/transcripts.js';

const whole: PolicyInput = { contextWindow: 6_000, tokenizer: 'o200k_base' };
const policy: PolicyInput = { ...whole, reduce: { newestUserMessage: true } };

const observation = (size: number, from = 0): ChatMessage => ({
  role: 'user',
  content: `Observation: ${words(size, from)} End of output.`,
});

const says = (content: string): ChatMessage => ({ role: 'assistant', content });
const pointer = (seq: number) => `message ${seq} is kept in full: get_tool_response(message ${seq})`;

function failureOf(run: () => unknown): PalimpsestError {
  try {
    run();
  } catch (error) {
    if (isFailure(error)) return error;
    throw error;
  }
  throw new Error('nothing failed');
}

describe('a user message larger than the window, in memory', () => {
  const conversationOf = (given: PolicyInput, ...turns: ChatMessage[][]) => {
    const conversation = new Conversation({ policy: given });
    for (const turn of turns) conversation.append(turn);
    return conversation;
  };
  const turns = [...dialogue(3), [says('$ cat log'), observation(9_000)]];

  test('is shown by its beginning and end with a pointer, and no other message is dropped for it', () => {
    const conversation = conversationOf(policy, ...turns);
    const { messages, items, tokens } = conversation.context();
    expect(tokens).toBeLessThanOrEqual(conversation.limits.budget);
    expect(validateView(messages)).toEqual([]);
    const shown = textOf(messages.at(-1)!);
    expect(shown).toMatch(/^Observation: .*End of output\.$/s);
    expect(shown).toContain(pointer(8));
    expect(items.at(-1)!.tokens).toBeGreaterThan(0.3 * conversation.limits.contextTarget);
    expect(items.filter(({ source }) => source === 'omitted')).toEqual([]);
    expect(conversation.replay()).toEqual(turns.flat());
  });

  test('is never shortened by default, and the failure names the option if it would help', () => {
    const failure = failureOf(() => conversationOf(whole, ...turns).context());
    expect(failure.type).toBe('Budget.Unreachable');
    expect(failure.hint).toContain('reduce.newestUserMessage');
    const system: ChatMessage = { role: 'system', content: words(9_000) };
    const hopeless = failureOf(() => conversationOf(whole, [system], ...turns).context());
    expect(hopeless.hint).not.toContain('reduce.newestUserMessage');
    const still = failureOf(() => conversationOf(policy, [system], ...turns).context());
    expect(still.details?.newestUser).toBeLessThan(60);
  });

  test('stays whole if the context fits anyway, or if it leaves room for the rest', () => {
    const small = [...dialogue(30), [says('$ ls'), observation(1_500)]];
    const { messages } = conversationOf(policy, ...small).context();
    expect(messages.at(-1)).toEqual(small.at(-1)!.at(-1));
    expect(messages).toEqual(conversationOf(whole, ...small).context().messages);
  });

  test('is evicted like any other after a newer one: the summarizer reads all of it', async () => {
    const conversation = conversationOf(policy, ...turns);
    conversation.context();
    conversation.append([says('$ tail log'), observation(300, 50)]);
    let read = '';
    const generation = await conversation.compact(
      ({ messages }) => {
        read += messages.map(textOf).join('\n');
        return '## Session intent\n- The log is read.';
      },
      { force: true },
    );
    expect(generation).toMatchObject({ throughSeq: 9 });
    expect(read.length).toBeGreaterThan(textOf(observation(9_000)).length);
    const [coverage] = generation!.coverage.filter(
      ({ fromSeq, throughSeq }) => fromSeq <= 8 && throughSeq >= 8,
    );
    expect(coverage?.how).toMatch(/^(full|split)$/);
    expect(conversation.replay().slice(0, 8)).toEqual(turns.flat());
  });

  test('is also shortened by a commit, which reaches its target without a model call', async () => {
    const conversation = conversationOf(policy, ...turns);
    expect(conversation.isDue()).toBe(true);
    const generation = await conversation.compact(null);
    expect(generation?.tokensAfter).toBeLessThanOrEqual(conversation.limits.contextTarget);
    expect(textOf(conversation.context().messages.at(-1)!)).toContain(pointer(8));
    expect(conversation.isDue()).toBe(false);
  });

  test('becomes a shorter excerpt for a smaller budget than that of the commit that shortened it', async () => {
    const conversation = conversationOf({ ...policy, contextWindow: 40_000 }, ...dialogue(3), [
      says('$ cat log'),
      observation(60_000),
    ]);
    await conversation.compact(null);
    const committed = conversation.context();
    expect(committed.items.at(-1)!.tokens).toBeGreaterThan(6_000);
    const { messages, tokens } = conversation.context(6_000);
    expect(tokens).toBeLessThanOrEqual(6_000);
    expect(textOf(messages.at(-1)!)).toMatch(/^Observation: .*End of output\.$/s);
    expect(textOf(messages.at(-1)!)).toContain(pointer(8));
    expect(conversation.context(6_000).messages).toEqual(messages);
    expect(conversation.context().messages).toEqual(committed.messages);
  });

  test('is carried as an excerpt if the agent works on without another one', async () => {
    const steps = Array.from({ length: 14 }, (_, step): ChatMessage[] => [
      {
        ...says(`step ${step}`),
        tool_calls: [{ id: `c${step}`, type: 'function', function: { name: 'sh', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: `c${step}`, content: words(160, step) },
    ]);
    const conversation = conversationOf(policy, ...turns, ...steps);
    const generation = await conversation.compact(null, { force: true });
    expect(generation).toMatchObject({ carriedSeq: 8 });
    const { messages, items } = conversation.context();
    expect(validateView(messages)).toEqual([]);
    const carried = items.find(({ source }) => source === 'carried');
    expect(textOf(carried!.message)).toContain(pointer(8));
    expect(carried!.tokens).toBeLessThanOrEqual(conversation.limits.tailTarget);
  });

  test('of any size, at any place: every context is valid, fits, and only grows at its end between commits', () => {
    const played = fc.array(
      fc.record({ asked: fc.integer({ min: 1, max: 12_000 }), answered: fc.integer({ min: 1, max: 600 }) }),
      { minLength: 2, maxLength: 10 },
    );
    const budgets = fc.constantFrom(2_500, 4_000, 12_000);
    fc.assert(
      fc.property(played, budgets, (sizes, contextWindow) => {
        const conversation = new Conversation({ policy: { ...policy, contextWindow } });
        let earlier: string[] = [];
        let grown = 0;
        for (const [index, { asked, answered }] of sizes.entries()) {
          conversation.append([observation(asked, index)]);
          grown += conversation.log.at(-1)!.tokens;
          const { messages, tokens } = conversation.context();
          expect(tokens).toBeLessThanOrEqual(conversation.limits.budget);
          expect(validateView(messages)).toEqual([]);
          expect(textOf(messages.at(-1)!)).toMatch(/End of output\.$|is kept in full/);
          expect(conversation.context().messages).toEqual(messages);
          const shown = messages.map((message) => JSON.stringify(message));
          // The prefix goes only where the former context with what came since would not fit.
          if (earlier.some((text, at) => text !== shown[at]))
            expect(grown).toBeGreaterThan(conversation.limits.budget);
          [earlier, grown] = [shown, tokens];
          conversation.append([says(words(answered))]);
          grown += conversation.log.at(-1)!.tokens;
        }
      }),
      { numRuns: 40 },
    );
  });
});

describe('a user message larger than the window, in the service', () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await startStack();
  });
  beforeEach(() => stack.model.release());
  afterAll(() => stack.stop());

  const texts = ({ messages }: SessionContext) => messages.map((message) => JSON.stringify(message));

  test('gives the agent a context that is stable until the next commit, and every original', async () => {
    const { palimpsest, model } = stack;
    const session = 'observed';
    const append = (turnId: string, messages: ChatMessage[]) =>
      palimpsest.appendTurn({ session, turnId, messages, policy });
    model.hold();
    const log = dialogue(2).flat();
    await append('first', log);
    const large = [says('$ cat log'), observation(9_000)];
    await append('large', large);
    const shown = await palimpsest.context({ session });
    expect(shown.tokens).toBeLessThanOrEqual(shown.budget);
    expect(textOf(shown.messages.at(-1)!)).toContain(pointer(6));
    const small = [says('$ tail log'), observation(60, 9)];
    await append('small', small);
    const later = await palimpsest.context({ session });
    if (later.generation === shown.generation)
      expect(texts(later).slice(0, texts(shown).length)).toEqual(texts(shown));
    const original = await palimpsest.toolResponse({ session, seq: 6, limit: 200_000 });
    expect(original.content).toBe(textOf(large[1]!));
    model.release();
    await append('rest', [says('done'), ...dialogue(12).flat(), { role: 'user', content: 'and now?' }]);
    await palimpsest.settled({ session });
    const status = await palimpsest.status({ session });
    expect(status.lastError).toBeNull();
    expect(status.generation).toBeGreaterThan(0);
    const asked = model.requests.reduce((sum, request) => sum + JSON.stringify(request).length, 0);
    expect(asked).toBeGreaterThan(textOf(large[1]!).length);
    const context = await palimpsest.context({ session });
    expect(context.tokens).toBeLessThanOrEqual(context.budget);
    const replayed: ChatMessage[] = [];
    for await (const { message } of palimpsest.replay({ session })) replayed.push(message);
    expect(replayed.slice(0, 8)).toEqual([...log, ...large, ...small]);
  });

  test('fails with the name of the option if the policy keeps it whole', async () => {
    const { palimpsest } = stack;
    const session = 'whole';
    await palimpsest.appendTurn({ session, turnId: '1', messages: [observation(9_000)], policy: whole });
    await expect(palimpsest.context({ session })).rejects.toMatchObject({
      ...{ type: 'Budget.Unreachable', hint: expect.stringContaining('reduce.newestUserMessage') },
    });
    await palimpsest.settled({ session });
    await palimpsest.configure({ session, policy });
    const { messages } = await palimpsest.context({ session });
    expect(textOf(messages[0]!)).toContain(pointer(1));
    await palimpsest.settled({ session });
    const small = await palimpsest.context({ session, budget: 1_000 });
    expect(small.tokens).toBeLessThanOrEqual(1_000);
    expect(await palimpsest.context({ session, budget: 1_000 })).toEqual(small);
  });
});

describe.skipIf(skipWithoutTranscripts())('recorded sessions as text agents play them', () => {
  /** Results of a turn as one user message, calls as text. */
  function asTextAgent(messages: readonly ChatMessage[]): ChatMessage[] {
    const played: ChatMessage[] = [];
    for (const message of messages) {
      const { role, tool_calls: calls = [] } = message;
      if (role === 'tool') {
        const last = played.at(-1);
        const text = `Observation:\n${textOf(message)}`;
        if (last?.role === 'user')
          played[played.length - 1] = { ...last, content: `${textOf(last)}\n${text}` };
        else played.push({ role: 'user', content: text });
      } else if (role === 'assistant')
        played.push(
          says([textOf(message), ...calls.map((call) => JSON.stringify(call.function))].join('\n')),
        );
      else played.push(message);
    }
    return played;
  }

  test.each([8_000, 16_384, 32_768])('fit a window of %i at every turn', async (window) => {
    const found = { contexts: 0, shortened: 0, saved: 0 };
    for await (const { line } of readTranscripts(sized(4, 1))) {
      const { messages } = parseExact(line) as { messages: unknown };
      const session = asTextAgent(checkMessages(messages));
      const largest = session.reduce(
        (most, one) => Math.max(most, one.role === 'user' ? textOf(one).length : 0),
        0,
      );
      if (largest < 2 * window) continue;
      const play = (reduce: NonNullable<PolicyInput['reduce']>) => {
        const conversation = new Conversation({ policy: { contextWindow: window, reduce } });
        let failures = 0;
        for (const message of session) {
          conversation.append([message]);
          try {
            const { messages: shown, items, tokens } = conversation.context();
            expect(tokens).toBeLessThanOrEqual(conversation.limits.budget);
            expect(validateView(shown)).toEqual([]);
            const newest = items.findLast(({ role }) => role === 'user');
            if (reduce.newestUserMessage) found.contexts++;
            if (newest?.source === 'reduced') found.shortened++;
          } catch (error) {
            if (!isFailure(error, 'Budget.Unreachable')) throw error;
            failures++;
          }
        }
        return failures;
      };
      expect(play({ newestUserMessage: true })).toBe(0);
      found.saved += play({});
    }
    process.stderr.write(`window ${window}: ${JSON.stringify(found)}\n`);
    if (window < 32_768) expect(found.saved).toBeGreaterThan(0);
  });
});
