import type { OwnCase } from './format.js';

const round = (number: number, size: number) => [
  `assistant [r${number}=read]: `,
  `tool r${number}: page ${number} ~${size}`,
];

/** Reductions without a summary, and contexts that must fit at once. */
export const reductionCases: OwnCase[] = [
  {
    name: 'huge results of one turn are shortened rather than the turn dropped',
    steps: [
      {
        say: [
          'user: Read all eight pages.',
          ...Array.from({ length: 8 }, (_, number) => round(number, 3_000)).flat(),
        ],
        expect: {
          fits: { budget: 10_000, longestResult: 12_000 },
          calls: ['r0', 'r1', 'r2', 'r3', 'r4', 'r5', 'r6', 'r7'],
        },
      },
    ],
  },
  {
    name: 'older results give way first, the latest batch stays whole',
    steps: [
      {
        say: ['user: Read.', ...round(1, 4_000), ...round(2, 4_000), ...round(3, 1_000)],
        expect: { fits: { budget: 4_000 } },
      },
    ],
  },
  {
    name: 'a result of a tool that is kept in full is not reduced at a commit, one to be dropped goes with its call',
    policy: {
      trigger: { tokens: 8_000 },
      reduce: { toolResults: { byTool: { read: 'drop', recipe: 'keep_full' }, budget: 0 } },
    },
    steps: [
      {
        say: [
          'user: Bake.',
          ...round(1, 5_000),
          'assistant [k=recipe]: ',
          'tool k: the recipe ~1500',
          ...round(2, 1_000),
          ...round(3, 900),
        ],
        expect: { due: true },
      },
      {
        compact: 'due',
        expect: {
          commits: true,
          asked: 0,
          evictedThrough: null,
          calls: ['k', 'r3'],
          shows: ['the recipe', 'page 3'],
          hides: ['page 1'],
        },
      },
    ],
  },
  {
    name: 'an archived result leaves a pointer in its place, and nothing is reduced twice',
    policy: {
      trigger: { tokens: 8_000 },
      reduce: { toolResults: { contextPolicy: 'archive', budget: 1_000 } },
    },
    steps: [
      {
        say: ['user: Read.', ...round(1, 7_000), ...round(2, 1_500), 'assistant: Read.', 'user: So?'],
        expect: { due: true },
      },
      {
        compact: 'due',
        expect: {
          commits: true,
          asked: 0,
          shows: ['get_tool_response', 'page 2'],
          hides: ['page 1'],
          calls: ['r1', 'r2'],
        },
      },
      { compact: 'due', expect: { commits: false, unchanged: true } },
    ],
  },
  {
    name: 'a context that cannot be had is answered with its numbers, never without the system prompt',
    steps: [
      {
        say: ['system: You run a bakery. ~800', 'user: Just bake. ~900'],
        expect: { unreachable: 1_500, fits: { budget: 1_800 }, shows: ['You run a bakery.', 'Just bake.'] },
      },
    ],
  },
];
