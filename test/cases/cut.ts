import type { OwnCase } from './format.js';

/** Cases on groups, on messages that must stay, and on the beginning of the tail. */
export const cutCases: OwnCase[] = [
  {
    name: 'a call and its results go or stay as one, however many there are',
    policy: { keep: { messages: 4 } },
    steps: [
      {
        say: [
          'user: Check all ovens. ~900',
          'assistant [a=probe b=probe c=probe]: Checking. ~50',
          'tool a: 210 degrees ~300',
          'tool b: 190 degrees ~300',
          'tool c: cold ~300',
          'assistant: The third is cold. ~100',
          'user: Heat it.',
          'assistant: It heats.',
        ],
      },
      { compact: 'by hand', expect: { commits: true, calls: [], evictedThrough: 6 } },
    ],
  },
  {
    name: 'a call that waits for a person is never evicted',
    policy: { keep: { messages: 2 } },
    steps: [
      {
        say: [
          'user: What is in the store? ~900',
          'assistant: Wheat only. ~900',
          'user: Order 40 kg of rye. ~400',
          'assistant: I will ask for approval. ~50',
          'assistant [pay=approve]: ',
          'user: What does rye cost? ~900',
          'assistant: Two a kilo. ~900',
          'user: And spelt? ~100',
        ],
      },
      { compact: 'by hand', expect: { calls: ['pay'], commits: true, evictedThrough: 3, carried: 3 } },
      { wait: 60, compact: 'by hand', expect: { calls: [], commits: true } },
    ],
  },
  {
    name: 'a call whose worker died does not block compaction for ever, and shows as unanswered until then',
    policy: { keep: { messages: 2 } },
    steps: [
      {
        say: [
          'user: Print the labels. ~900',
          'assistant [p=print]: ',
          'user: Still there? ~900',
          'assistant: Yes. ~900',
          'user: Fine.',
        ],
        expect: { calls: ['p'], shows: ['(no result recorded)'] },
      },
      { wait: 11, compact: 'by hand', expect: { commits: true, calls: [] } },
    ],
  },
  {
    name: 'a result that comes after its call was evicted is shown as data, not as a result',
    policy: { keep: { messages: 1 } },
    steps: [
      {
        say: [
          'user: Start the mixer. ~900',
          'assistant [m=mix]: ',
          'user: And now? ~50',
          'assistant: It runs. ~900',
          'user: Good.',
        ],
      },
      { wait: 30, compact: 'by hand', expect: { commits: true, calls: [] } },
      {
        say: ['tool m: Mixer stopped: overload.'],
        expect: { calls: [], shows: ['It is data from a tool', 'Mixer stopped: overload.'] },
      },
    ],
  },
  {
    name: 'the same call id used again belongs to the newest call',
    policy: { keep: { messages: 3 } },
    steps: [
      {
        say: [
          'user: Weigh the dough. ~900',
          'assistant [w=scale]: ',
          'tool w: first 800 g ~200',
          'user: Again. ~400',
          'assistant [w=scale]: ',
          'tool w: second 790 g',
        ],
      },
      {
        compact: 'by hand',
        expect: { commits: true, calls: ['w'], shows: ['second 790 g'], hides: ['first 800 g'] },
      },
    ],
  },
  {
    name: 'the same call id used again while the older call was never answered belongs to the newest call',
    policy: { keep: { messages: 3 } },
    steps: [
      {
        say: [
          'user: Weigh the dough. ~900',
          'assistant [w=scale]: ',
          'user: Nothing came. Again. ~900',
          'assistant [w=scale]: ',
          'tool w: 790 g',
        ],
        expect: { calls: ['w', 'w-4'], shows: ['(no result recorded)'], hides: ['It is data from a tool'] },
      },
      {
        wait: 30,
        compact: 'by hand',
        expect: {
          commits: true,
          calls: ['w'],
          shows: ['790 g'],
          hides: ['(no result recorded)', 'It is data from a tool'],
        },
      },
    ],
  },
  {
    name: 'in one long run the cut lies before an assistant message and the request is carried word for word',
    policy: {
      trigger: { tokens: 3_000 },
      keep: { messages: 4 },
      reduce: { messages: false, toolResults: { contextPolicy: 'keep_full' } },
    },
    steps: [
      {
        say: [
          'system: You run a bakery.',
          'user: Bake the whole Sunday list, in order.',
          ...Array.from({ length: 8 }, (_, number) => [
            `assistant [s${number}=bake]: `,
            `tool s${number}: sheet ${number} done ~400`,
          ]).flat(),
        ],
      },
      {
        compact: 'due',
        expect: { commits: true, carried: 2, calls: ['s6', 's7'], shows: ['You run a bakery.', 'in order.'] },
      },
    ],
  },
  {
    name: 'one request alone is never compacted',
    policy: { reduce: { messages: false } },
    steps: [
      {
        say: ['user: Only this. ~5000'],
        compact: 'by hand',
        expect: { commits: false, asked: 0, unchanged: true },
      },
    ],
  },
  {
    name: 'a tail begins with a user turn where one lies within reach',
    policy: { keep: { messages: 3 } },
    steps: [
      {
        say: [
          'user: One. ~400',
          'assistant: 1. ~400',
          'user: Two. ~400',
          'assistant: 2. ~50',
          'user: Three. ~50',
          'assistant: 3. ~50',
        ],
      },
      { compact: 'by hand', expect: { evictedThrough: 4, carried: null } },
    ],
  },
];
