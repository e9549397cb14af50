/**
 * The invariants over random sessions and random policies, on the same core as the service: for any messages and any policy,
 * the context is valid and fits, nothing is lost, failures change nothing, and no session compacts for ever.
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { saidOf } from '../../support/material.js';
import { Conversation } from '../../../src/compaction/in-memory/conversation.js';
import type { Generation } from '../../../src/compaction/in-memory/generation.js';
import type { Summarizer } from '../../../src/compaction/in-memory/asker.js';
import type { ViewItem } from '../../../src/context/view/view.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { validateView } from '../../../src/context/view/validity.js';
import { isFailure } from '../../../src/errors.js';
import { resolvePolicy } from '../../../src/policy/layers.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { countMessage } from '../../../src/tokens/message.js';
import { policies, sessions, type Turn } from '../../support/random-sessions.js';
import { sized } from '../../support/size.js';

/** A model that does what it is asked for, in few words; different for different requests. */
const writes: Summarizer = (request) => {
  const asked = request.messages.map(({ content }) => content).join('\n');
  return saidOf(
    `## Session intent\n- The user works on src/app/main.ts, ${asked.length} characters so far.\n## Next steps\n- Go on with ${asked.length % 97}.`,
    request,
  );
};

/** More compactions than a session can have due without anything new: what is left would be a loop. */
const mostInARow = 6;

/** A failing session is reported with its seed as it was found: shrinking megabytes of text would take hours. */
const runs = (most: number) => ({ numRuns: sized(Math.ceil(most / 10), most), endOnFailure: true });

interface Played {
  conversation: Conversation;
  /** Compactions that failed with a typed failure. */
  failures: number;
}

async function play(
  turns: readonly Turn[],
  policy: PolicyInput,
  summarizer: Summarizer | null,
  after: (conversation: Conversation, committed: Generation | null) => void | Promise<void> = () => {},
): Promise<Played> {
  const conversation = new Conversation({ policy });
  let failures = 0;
  for (const turn of turns) {
    conversation.append(turn);
    await after(conversation, null);
    for (let compactions = 0; conversation.isDue(); compactions += 1) {
      if (compactions === mostInARow) throw new Error(`still due after ${compactions} compactions in a row`);
      try {
        await after(conversation, await conversation.compact(summarizer));
      } catch (error) {
        if (!isTyped(error)) throw error;
        failures += 1;
        break;
      }
    }
  }
  return { conversation, failures };
}

function isTyped(error: unknown): boolean {
  return isFailure(error) && !['Input.Invalid', 'Store.Corrupt'].includes(error.type);
}

/** Null where the floor itself does not fit, which must be so. */
function contextOf(conversation: Conversation): ReturnType<Conversation['context']> | null {
  try {
    return conversation.context();
  } catch (error) {
    if (!isFailure(error, 'Budget.Unreachable')) throw error;
    const { floor, budget } = error.details ?? {};
    expect(Number(floor)).toBeGreaterThan(Number(budget));
    expect(Number(budget)).toBeLessThanOrEqual(conversation.limits.budget);
    return null;
  }
}

/** User and assistant take turns, system messages and results of calls apart; the first turn is a user's. */
function alternates(messages: readonly ChatMessage[]): boolean {
  const first = messages.find(({ role }) => role !== 'system' && role !== 'developer');
  const calls = ({ tool_calls, function_call }: ChatMessage) => Boolean(tool_calls ?? function_call);
  return (
    (first === undefined || first.role === 'user') &&
    messages.every((message, index) => {
      const before = messages[index - 1];
      const speaks = message.role === 'user' || message.role === 'assistant';
      return !speaks || before?.role !== message.role || calls(before);
    })
  );
}

test('7 and 8. any session, any policy: the context is valid for its provider and within its budget at any moment', async () => {
  await fc.assert(
    fc.asyncProperty(sessions, policies, fc.boolean(), async (turns, policy, byModel) => {
      const counter = counterFor(resolvePolicy(policy).tokenizer);
      await play(turns, policy, byModel ? writes : null, (conversation) => {
        const context = contextOf(conversation);
        if (context === null) return;
        expect(validateView(context.messages)).toEqual([]);
        expect(context.tokens).toBeLessThanOrEqual(conversation.limits.budget);
        const counted = context.messages.reduce((sum, message) => sum + countMessage(message, counter), 0);
        expect(counted).toBeLessThanOrEqual(context.tokens);
        if (policy.roles === 'alternate') expect(alternates(context.messages)).toBe(true);
      });
    }),
    runs(50),
  );
});

test('1 and 4. any session, any policy: replay returns every message, and every evicted message is covered', async () => {
  await fc.assert(
    fc.asyncProperty(sessions, policies, fc.boolean(), async (turns, policy, byModel) => {
      const { conversation } = await play(turns, policy, byModel ? writes : null);
      expect(JSON.stringify(conversation.replay())).toBe(JSON.stringify(turns.flat()));
      let through = 0;
      for (const generation of conversation.generations) {
        expect(generation.fromSeq).toBe(through + 1);
        expect(generation.throughSeq).toBeGreaterThanOrEqual(through);
        const covered = generation.coverage.flatMap(({ fromSeq, throughSeq }) =>
          Array.from({ length: throughSeq - fromSeq + 1 }, (_, index) => fromSeq + index),
        );
        const evicted = Array.from(
          { length: generation.throughSeq - through },
          (_, index) => through + 1 + index,
        );
        expect(covered).toEqual(evicted);
        for (const { how, reason } of generation.coverage)
          if (how === 'withheld') expect(reason).toMatch(/in context|archive|drop|redact|media/);
        through = generation.throughSeq;
      }
    }),
    runs(30),
  );
});

/** Shows where two long texts part. */
function expectSame(text: string, other: string): void {
  let at = 0;
  while (at < text.length && text[at] === other[at]) at += 1;
  expect(
    text === other ? 'same' : `${at}: ${text.slice(at - 50, at + 250)} / ${other.slice(at - 50, at + 250)}`,
  ).toBe('same');
}

const junk: fc.Arbitrary<Summarizer> = fc.constantFrom<Summarizer>(
  () => {
    throw new Error('connection reset by the JUNK peer');
  },
  () => '',
  () => ' \n\t',
  () => "I'm sorry, but I can't help with that. JUNK",
  () => '<html><body>502 Bad Gateway JUNK</body></html>',
  () => 'JUNK '.repeat(20_000),
  () => '{"error": {"message": "JUNK rate limit"}}',
);

test('3. any session, any policy: a model that fails or answers nonsense changes nothing, and none of it reaches a context', async () => {
  await fc.assert(
    fc.asyncProperty(sessions, policies, junk, async (turns, policy, summarizer) => {
      const conversation = new Conversation({ policy });
      for (const turn of turns) {
        conversation.append(turn);
        for (let tries = 0; tries < mostInARow && conversation.isDue(); tries += 1) {
          const before = JSON.stringify([contextOf(conversation), conversation.generations]);
          try {
            const committed = await conversation.compact(summarizer);
            if (committed?.method === 'model') expect(committed.reason).toBe('reduce');
            if (committed?.method === 'extractive')
              expect(
                conversation.policy.summary.fallback === 'extractive' ||
                  conversation.policy.summary.method === 'extractive',
              ).toBe(true);
          } catch (error) {
            if (!(error instanceof Error && /JUNK peer/.test(error.message)))
              expect(isTyped(error)).toBe(true);
            expectSame(JSON.stringify([contextOf(conversation), conversation.generations]), before);
            break;
          }
        }
        expect(JSON.stringify(contextOf(conversation))).not.toContain('JUNK');
      }
      expect(JSON.stringify(conversation.replay())).toBe(JSON.stringify(turns.flat()));
    }),
    runs(25),
  );
});

test('9. any session, any policy: compactions end, and begin again only after new messages', async () => {
  await fc.assert(
    fc.asyncProperty(sessions, policies, fc.boolean(), async (turns, policy, byModel) => {
      const { conversation, failures } = await play(turns, policy, byModel ? writes : null);
      if (failures > 0) return;
      expect(conversation.isDue()).toBe(false);
      const generations = conversation.generations.length;
      contextOf(conversation);
      expect(conversation.isDue()).toBe(false);
      expect(conversation.generations).toHaveLength(generations);
    }),
    runs(25),
  );
});

test('10. any session, any policy: between two commits the context only grows at its end', async () => {
  await fc.assert(
    fc.asyncProperty(sessions, policies, async (turns, policy) => {
      let earlier: ViewItem[] | null = null;
      let generation = 0;
      await play(turns, { ...policy, roles: 'free' }, writes, (conversation) => {
        const items = contextOf(conversation)?.items ?? null;
        const sameHead = conversation.generations.length === generation;
        if (earlier && items && sameHead && !reducedSince(earlier, items)) expectGrowth(earlier, items);
        earlier = items;
        generation = conversation.generations.length;
      });
    }),
    runs(40),
  );
});

/** Emergency reductions change the prefix: that is what they are for, and why they reduce to the target. */
function reducedSince(earlier: readonly ViewItem[], items: readonly ViewItem[]): boolean {
  const key = ({ fromSeq, throughSeq, source }: ViewItem) => `${source} ${fromSeq}-${throughSeq}`;
  const known = new Set(earlier.map(key));
  return items.some(
    (item) => (item.source === 'reduced' || item.source === 'omitted') && !known.has(key(item)),
  );
}

function expectGrowth(earlier: readonly ViewItem[], items: readonly ViewItem[]): void {
  earlier.forEach((item, index) => {
    if (item.source === 'synthetic' && items[index]?.source !== 'synthetic') {
      expect(items[index]?.group).toBe(item.group);
    } else expect(items[index]).toEqual(item);
  });
}

test('12. any session, any policy: a restored generation gives exactly its earlier context', async () => {
  await fc.assert(
    fc.asyncProperty(sessions, policies, async (turns, policy) => {
      const { conversation } = await play(turns, policy, writes);
      const everything = () => JSON.stringify(conversation.context(Infinity).messages);
      const contexts = new Map([[conversation.generations.length, everything()]]);
      for (let forced = 0; forced < 3; forced += 1) {
        try {
          await conversation.compact(writes, { force: true });
        } catch (error) {
          if (!isTyped(error)) throw error;
        }
        contexts.set(conversation.generations.length, everything());
      }
      for (const [generation, context] of contexts) {
        const restored = conversation.restore(generation);
        expect(restored).toMatchObject({ parent: generation, reason: 'restore' });
        expect(everything()).toBe(context);
        expect(JSON.stringify(conversation.replay())).toBe(JSON.stringify(turns.flat()));
      }
    }),
    runs(25),
  );
});
