import type { OwnCase } from './format.js';

const orders = (count: number) =>
  Array.from({ length: count }, (_, number) => [
    `user: Order ${number + 1}: two loaves. ~100`,
    `assistant: Noted as order ${number + 1}. ~100`,
  ]).flat();

/** When a compaction is due: sizes are met at the size itself, AND inside a clause, OR across. */
export const triggerCases: OwnCase[] = [
  {
    name: 'a message trigger is met at its count and not one below',
    policy: { trigger: { messages: 12 } },
    steps: [
      { say: orders(5), expect: { due: false } },
      { say: ['user: One more.'], expect: { due: false } },
      { say: ['assistant: Yes.'], expect: { due: true } },
    ],
  },
  {
    name: 'a token trigger is not met one token below its size',
    policy: { trigger: { tokens: 3_000 } },
    steps: [
      // Four tokens of framing and a quarter of the characters each.
      { say: [`user: ${'a'.repeat(3_984)}`, `assistant: ${'b'.repeat(3_984)}`], expect: { due: false } },
      { say: [`user: ${'c'.repeat(3_980)}`], expect: { due: false } },
    ],
  },
  {
    name: 'a token trigger is met at its very size',
    policy: { trigger: { tokens: 3_000 } },
    steps: [
      { say: [`user: ${'a'.repeat(3_984)}`, `assistant: ${'b'.repeat(3_984)}`], expect: { due: false } },
      { say: [`user: ${'c'.repeat(3_984)}`], expect: { due: true } },
    ],
  },
  {
    name: 'a token trigger counts the overhead',
    policy: { trigger: { tokens: 3_000 }, overhead: 1_000 },
    steps: [
      { say: orders(9), expect: { due: false } },
      { say: orders(1), expect: { due: true } },
    ],
  },
  {
    name: 'sizes of one clause must all be reached',
    policy: { trigger: { tokens: 2_000, messages: 30 } },
    steps: [
      { say: ['user: A long wish. ~2500', 'assistant: Fine.'], expect: { due: false } },
      { say: orders(14), expect: { due: true } },
    ],
  },
  {
    name: 'any one of several clauses is enough',
    policy: { trigger: [{ tokens: 9_000 }, { messages: 8 }] },
    steps: [
      { say: orders(3), expect: { due: false } },
      { say: orders(1), expect: { due: true } },
    ],
  },
  {
    name: 'a fraction leaves room for one more turn below the reserved output',
    policy: { trigger: { fraction: 0.95 }, reservedOutputTokens: 8_000 },
    // 0.95 of 16,000 exceeds the window without the answer; 0.9 of 8,000 does not.
    steps: [
      { say: orders(34), expect: { due: false } },
      { say: orders(2), expect: { due: true } },
    ],
  },
  {
    name: 'switched off, nothing is ever due, but by hand it compacts',
    policy: { enabled: false, trigger: { messages: 8 } },
    steps: [
      { say: orders(20), expect: { due: false } },
      { compact: 'due', expect: { commits: false, asked: 0 } },
      { compact: 'by hand', expect: { commits: true, asked: 1 } },
    ],
  },
  {
    name: 'where nothing may be evicted no model is asked, and nothing is due until something comes',
    policy: { trigger: { tokens: 2_000 }, reduce: { messages: false } },
    steps: [
      { say: ['user: Keep this word for word. ~2500'], expect: { due: true } },
      { compact: 'due', expect: { commits: false, asked: 0, due: false } },
      { say: orders(10), expect: { due: true } },
    ],
  },
  {
    name: 'a head counts toward the next trigger',
    policy: { trigger: { tokens: 2_000 }, keep: { messages: 2 } },
    steps: [
      {
        say: orders(10),
        compact: 'due',
        model: { says: `- ${'Orders one to nine. '.repeat(20)}` },
        expect: { due: false },
      },
      // Alone, these and the two messages that stay are below the trigger.
      { say: orders(8).slice(0, 15), expect: { due: true } },
    ],
  },
];
