/** Without a model, the rules write the journal. However long the session is, the journal keeps to its room and has content. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { mergedByRule } from '../../../src/compaction/replace/by-rule.js';
import { journalWithin } from '../../../src/compaction/replace/journal.js';
import { Conversation } from '../../../src/compaction/in-memory/conversation.js';
import { notesAsAsked } from '../../../src/rehearsal/notes.js';
import { layersOf } from '../../../src/summary/answer/sections.js';
import { leftOutLine } from '../../support/texts.js';
import { mergedSnapshots } from '../../../src/summary/extractive/extractive.js';
import { counterFor } from '../../../src/tokens/counter.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';

const counter = counterFor('chars/4');
const asAsked = notesAsAsked(counter);
const policy = { ...smallPolicy, tokenizer: 'chars/4', summary: { method: 'model' } } as const;

const newestOf = ({ generations }: Conversation) => generations.at(-1)!;
const layersIn = (conversation: Conversation) => newestOf(conversation).layers ?? [];
const textsIn = (conversation: Conversation) => layersOf(newestOf(conversation).snapshot ?? '');
const roomIn = ({ limits }: Conversation) => limits.headMax - limits.noteTokens;

/** Appends turns and compacts when due. Without `model`, the rules write. Yields after each compaction. */
async function* played(conversation: Conversation, turns: number, model = false) {
  for (const turn of dialogue(turns)) {
    conversation.append(turn);
    if (!conversation.isDue()) continue;
    const made = await conversation.compact(model ? asAsked : null);
    expect(made).not.toBeNull();
    yield newestOf(conversation);
  }
}

test('after any number of compactions the journal is within its room, and every entry has content', async () => {
  const conversation = new Conversation({ policy, counter });
  const earlier: string[] = [];
  for await (const { snapshot, tokensAfter } of played(conversation, 330)) {
    expect(counter.count(snapshot ?? '')).toBeLessThanOrEqual(roomIn(conversation));
    expect(tokensAfter).toBeLessThanOrEqual(conversation.limits.contextTarget);
    expect(snapshot).not.toContain(leftOutLine);
    expect(textsIn(conversation)).toHaveLength(layersIn(conversation).length);
    for (const text of textsIn(conversation)) expect(text).toMatch(/^- Request \d+.*\[m\d+\]$/m);
    earlier.push(snapshot ?? '');
  }
  expect(earlier.length).toBeGreaterThan(70);
  expect(layersIn(conversation).length).toBeGreaterThan(2);
  expect(textsIn(conversation)[0]).toContain(/^- Request \d+/m.exec(earlier[0]!)![0]);
  const merged = earlier.filter((text, at) => at > 0 && !text.startsWith(earlier[at - 1]!));
  expect(merged.length).toBeGreaterThan(5);
  expect(merged.length).toBeLessThan(earlier.length / 4);
});

test('entries of a model keep half of the room while the rules write', async () => {
  const conversation = new Conversation({ policy, counter });
  const sizeOfKept = () =>
    layersIn(conversation)
      .filter(({ extractive }) => extractive !== true)
      .reduce((sum, { tokens, addedTokens = 0 }) => sum + tokens + addedTokens, 0);
  for await (const _ of played(conversation, 120, true)) continue;
  const before = sizeOfKept();
  expect(before).toBeGreaterThan(roomIn(conversation) / 2);
  for await (const { snapshot } of played(conversation, 120)) {
    expect(counter.count(snapshot ?? '')).toBeLessThanOrEqual(roomIn(conversation));
    expect(sizeOfKept()).toBeGreaterThan(0.4 * roomIn(conversation));
  }
  const first = layersIn(conversation).findIndex(({ extractive }) => extractive === true);
  expect(first).toBeGreaterThan(0);
  expect(layersIn(conversation).length - first).toBeGreaterThan(1);
});

test('entries that an earlier version dropped return with the next compaction', async () => {
  const conversation = new Conversation({ policy, counter });
  for await (const _ of played(conversation, 60)) continue;
  const [first] = textsIn(conversation);
  for (const layer of layersIn(conversation).slice(0, -1)) layer.left = true;
  conversation.append([{ role: 'user', content: 'And now?' }]);
  await conversation.compact(null, { force: true });
  expect(layersIn(conversation).some(({ left }) => left === true)).toBe(false);
  expect(textsIn(conversation)[0]).toBe(first);
});

describe('merging by rule', () => {
  test('of any entries covers the same messages, and stops at the room or at entries that are short', () => {
    const sizes = fc.record({
      tokens: fc.integer({ min: 1, max: 900 }),
      rank: fc.integer({ min: 0, max: 4 }),
      extractive: fc.boolean(),
      sections: fc.boolean(),
    });
    const property = fc.property(
      fc.array(sizes, { minLength: 1, maxLength: 40 }),
      fc.integer({ min: 300, max: 4_000 }),
      (given, room) => {
        const entries = given.map(({ tokens, rank, extractive, sections }, at) => {
          const lines = Array.from({ length: Math.ceil(tokens / 15) }, (_, line) =>
            `- #${at + 1}: line ${line} of this entry `.padEnd(58, '.'),
          );
          const text = [...(sections ? ['## Session intent'] : []), ...lines].join('\n');
          const layer = { rank, key: `k${at}`, tokens, fromSeq: at + 1, throughSeq: at + 1 };
          return { layer: extractive ? { ...layer, extractive } : layer, text };
        });
        const merge = (texts: readonly string[], maxTokens: number) =>
          mergedByRule({ counter, redact: (text) => text }, texts, maxTokens);
        const { text, layers, newLayers } = journalWithin(entries, room, merge, counter);
        expect(layers[0]!.fromSeq).toBe(1);
        expect(layers.at(-1)).toEqual(entries.at(-1)!.layer);
        for (const [at, { fromSeq }] of layers.slice(1).entries())
          expect(fromSeq).toBe(layers[at]!.throughSeq + 1);
        const stored = new Set([
          ...entries.map(({ layer }) => layer.key),
          ...newLayers.map(({ layer }) => layer.key),
        ]);
        for (const { key } of layers) expect(stored).toContain(key);
        const newest = counter.count(entries.at(-1)!.text);
        expect(counter.count(text)).toBeLessThanOrEqual(Math.max(room, newest + 2 * 150));
      },
    );
    fc.assert(property, { numRuns: 100 });
  });

  test('keeps items of each snapshot in every section, and the first request', () => {
    const snapshot = (from: number) =>
      [
        '## Session intent',
        ...Array.from({ length: 5 }, (_, at) => `- #${from + at}: request ${from + at} about the parcel`),
        '## Facts from tools',
        ...Array.from({ length: 5 }, (_, at) => `- #${from + at}: tool returned: value ${from + at}`),
        '## Current state',
        `- Covered by rule, without a model: messages ${from}–${from + 4} (5 user).`,
      ].join('\n');
    const merged = mergedSnapshots([snapshot(1), snapshot(101), snapshot(201)], 150, counter);
    expect(counter.count(merged)).toBeLessThanOrEqual(150);
    for (const kept of ['request 1 ', 'request 5 ', 'request 105 ', 'request 205 ', 'value 205'])
      expect(merged).toContain(kept);
    expect(merged).not.toContain('Covered by rule');
  });
});
