/** The breakdown of a context adds up and equals the context's own counts, for random sessions and policies. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Conversation } from '../../../src/compaction/in-memory/conversation.js';
import {
  breakdownBySizes,
  breakdownOf,
  commonPrefix,
  type ContextBreakdown,
} from '../../../src/context/view/breakdown.js';
import { headParts, type ViewItem } from '../../../src/context/view/view.js';
import { isFailure } from '../../../src/errors.js';
import { resolvePolicy } from '../../../src/policy/layers.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { notesAsAsked } from '../../../src/rehearsal/notes.js';
import { describeJournal } from '../../../src/summary/journal/rewrites.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { policies, sessions, type Turn } from '../../support/random-sessions.js';
import { sized } from '../../support/size.js';

const total = ({ system, head, carried, tail }: ContextBreakdown): number => system + head + carried + tail;
const ofHead = (parts: ContextBreakdown['parts']): number =>
  Object.values(parts ?? {}).reduce((sum, tokens) => sum + tokens, 0);

async function played(
  turns: readonly Turn[],
  policy: PolicyInput,
  look: (conversation: Conversation, items: readonly ViewItem[]) => void,
): Promise<Conversation> {
  const conversation = new Conversation({ policy });
  const notes = notesAsAsked(counterFor(resolvePolicy(policy).tokenizer));
  for (const turn of turns) {
    conversation.append(turn);
    try {
      look(conversation, conversation.context().items);
      for (let tries = 0; tries < 6 && conversation.isDue(); tries++) await conversation.compact(notes);
    } catch (error) {
      if (!isFailure(error)) throw error;
    }
  }
  return conversation;
}

const runs = { numRuns: sized(2, 40), endOnFailure: true };
const journals = policies.filter(({ summary }) => summary?.mode === 'journal');

describe('the breakdown of a context', () => {
  test('adds up to its tokens, and that of the head to the head, at any moment', async () => {
    let heads = 0;
    await fc.assert(
      fc.asyncProperty(sessions, policies, async (turns, policy) => {
        await played(turns, policy, ({ generations }, items) => {
          const head = generations.at(-1)?.head ?? null;
          const tokens = items.reduce((sum, item) => sum + item.tokens, 0);
          const shown = breakdownOf(items, head?.layout);
          expect(total(shown)).toBe(tokens);
          expect(ofHead(shown.parts)).toBe(shown.head);
          for (const size of [...Object.values(shown.parts ?? {}), shown.system, shown.carried, shown.tail])
            expect(size).toBeGreaterThanOrEqual(0);
          if (head === null) return expect(shown.head).toBe(0);
          heads++;
          const stored = breakdownBySizes(tokens, shown.system, head);
          expect({ head: shown.head, parts: shown.parts }).toEqual({
            head: stored.head,
            parts: stored.parts,
          });
        });
      }),
      runs,
    );
    expect(heads).toBeGreaterThan(0);
  });

  test('counts the text of the head with any counter', async () => {
    await fc.assert(
      fc.asyncProperty(
        sessions,
        policies,
        fc.constantFrom('o200k_base' as const, 'chars/4' as const),
        async (turns, policy, tokenizer) => {
          const { generations } = await played(turns.slice(0, 40), { ...policy, tokenizer }, () => {});
          const counter = counterFor(tokenizer);
          for (const { head, ledger, snapshot, state, layers } of generations) {
            if (head === null) continue;
            const text = String(head.messages[0]?.content);
            const { stretches, tokens } = head.layout!;
            let at = 0;
            const texts = Object.fromEntries(headParts.map((part) => [part, '']));
            for (const { part, characters } of stretches) texts[part] += text.slice(at, (at += characters));
            expect(at).toBe(text.length);
            // A joint takes at most one token for each part.
            const framing = 4 + counter.count(texts['note'] ?? '');
            expect(Math.abs(tokens.note - framing)).toBeLessThanOrEqual(stretches.length);
            for (const part of headParts)
              if (part !== 'note') expect(tokens[part]).toBe(counter.count(texts[part] ?? ''));
            const isJournal = state !== null;
            expect(texts['snapshot']?.length).toBe(isJournal ? 0 : snapshot?.length);
            if (isJournal)
              expect((texts['journal'] ?? '').length + (texts['exact'] ?? '').length).toBe(snapshot?.length);
            expect((texts['state'] ?? '').length).toBeLessThanOrEqual(state?.length ?? 0);
            const lines = isJournal ? (layers ?? []).map(({ added = '' }) => added) : [ledger ?? ''];
            const exact = lines
              .flatMap((line) => line.split('\n'))
              .filter((line) => line.startsWith('exact: '));
            expect((texts['exact'] ?? '').split('\n').filter(Boolean)).toHaveLength(exact.length);
          }
        },
      ),
      runs,
    );
  });
});

describe('the unchanged beginning after a commit', () => {
  test('has the leading system messages and the unmerged part of the journal', async () => {
    let grown = 0;
    await fc.assert(
      fc.asyncProperty(sessions, journals, async (turns, policy) => {
        const { generations, log } = await played(turns, policy, () => {});
        const counter = counterFor(resolvePolicy(policy).tokenizer);
        const system = log.findIndex(({ message: { role } }) => role !== 'system' && role !== 'developer');
        const tokens = log.slice(0, Math.max(0, system)).reduce((sum, one) => sum + one.tokens, 0);
        generations.forEach(
          ({ cachedTokens, tokensBefore, tokensAfter, snapshot, head, throughSeq }, index) => {
            const cached = cachedTokens ?? -1;
            expect(cached).toBeGreaterThanOrEqual(0);
            expect(cached).toBeLessThanOrEqual(Math.min(tokensBefore, tokensAfter) + 1);
            const before = generations[index - 1];
            if (!before?.head || !head) return;
            if (before.throughSeq === throughSeq && before.head === head)
              expect(cached).toBeGreaterThanOrEqual(
                tokens + head.tokens.reduce((sum, size) => sum + size, 0) - 1,
              );
            else if (snapshot?.startsWith(before.snapshot!)) {
              grown++;
              expect(cached).toBeGreaterThanOrEqual(tokens + counter.count(before.snapshot!));
            }
          },
        );
      }),
      runs,
    );
    expect(grown).toBeGreaterThan(0);
  });

  test('is exact to the character within the first message that differs', () => {
    const counter = counterFor('chars/4');
    const item = (content: string): ViewItem => ({
      ...{ fromSeq: 0, throughSeq: 0, source: 'log', group: 1, role: 'user', tool: null },
      message: { role: 'user', content },
      tokens: 4 + counter.count(content),
    });
    const [same, before, after] = [
      item('a'.repeat(40)),
      item('b'.repeat(40) + 'c'),
      item('b'.repeat(40) + 'd'),
    ];
    expect(commonPrefix([same, before, same], [same, after, same], counter)).toBe(14 + 14);
    expect(commonPrefix([same], [same, after], counter)).toBe(14);
    expect(commonPrefix([], [same], counter)).toBe(0);
    const named = { ...after, message: { ...after.message, name: 'Ann' } };
    expect(commonPrefix([same, before], [same, named], counter)).toBe(14);
  });
});

describe('the description of the journal', () => {
  const layer = { key: 'k', tokens: 1 };
  test('counts lines that a summarizer wrote, and their merges', () => {
    const { entries, rewritesPerLine: mean } = describeJournal(
      [
        { ...layer, rank: 3, fromSeq: 1, throughSeq: 9, left: true },
        { ...layer, rank: 2, fromSeq: 10, throughSeq: 29, added: 'exact: id A1B2 [m12]' },
        { ...layer, rank: 0, fromSeq: 30, throughSeq: 30, extractive: true },
      ],
      '### Messages 1–9\n- in the archive\n\n### Messages 10–29\n- one\n- two\n- three\nexact: id A1B2 [m12]\n\n### Messages 30\n- four',
      counterFor('chars/4'),
    );
    expect(entries.map(({ lines, rank, byRule }) => [lines, rank, byRule])).toEqual([
      [0, 3, false],
      [3, 2, false],
      [1, 0, true],
    ]);
    expect(mean).toBe(6 / 4);
    expect(describeJournal([], '', counterFor('chars/4')).rewritesPerLine).toBe(0);
  });
});
