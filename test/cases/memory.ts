import type { OwnCase } from './format.js';

const talk = (day: number) => [
  `user: Day ${day}: what sold? ~400`,
  `assistant: Mostly rye on day ${day}. ~400`,
  `user: Bake less on day ${day + 1}. ~50`,
  'assistant: I will.',
];
const policy: OwnCase['policy'] = { keep: { messages: 2 } };

/** What later compactions and restored generations make of earlier ones; pins; what exact values bring back. */
export const memoryCases: OwnCase[] = [
  {
    name: 'an earlier snapshot is folded into the next one, apart from what is new',
    policy,
    steps: [
      {
        say: talk(1),
        compact: 'by hand',
        model: { says: '- Mostly rye, butter and yeast sold.' },
        expect: { snapshot: '- Mostly rye, butter and yeast sold.' },
      },
      {
        say: talk(2),
        compact: 'by hand',
        model: { says: '- Mostly rye, butter and yeast sold, on both days.' },
        expect: {
          reads: ['<previous_snapshot', 'Mostly rye, butter and yeast sold.', 'day 2'],
          readsNot: ['on day 1. flour'],
          snapshot: '- Mostly rye, butter and yeast sold, on both days.',
        },
      },
    ],
  },
  {
    name: 'undo brings back the earlier head and tail, and 0 the whole log',
    policy,
    steps: [
      { say: talk(1) },
      {
        compact: 'by hand',
        model: { says: '- First: mostly rye, butter and yeast from the oven.' },
        expect: { commits: true },
      },
      { say: talk(2) },
      {
        compact: 'by hand',
        model: { says: '- Second: mostly rye, butter and yeast from the oven.' },
        expect: { shows: ['- Second: mostly rye, butter and yeast from the oven.'], hides: ['what sold?'] },
      },
      {
        restore: 1,
        expect: {
          shows: ['- First: mostly rye, butter and yeast from the oven.', 'Day 2: what sold?'],
          hides: ['- Second: mostly rye, butter and yeast from the oven.', 'Day 1: what sold?'],
        },
      },
      {
        restore: 0,
        expect: {
          shows: ['Day 1: what sold?', 'Day 2: what sold?'],
          hides: [
            '- First: mostly rye, butter and yeast from the oven.',
            '- Second: mostly rye, butter and yeast from the oven.',
          ],
        },
      },
      {
        compact: 'by hand',
        model: { says: '- Third: mostly rye, butter and yeast from the oven.' },
        expect: {
          commits: true,
          shows: ['- Third: mostly rye, butter and yeast from the oven.'],
          readsNot: ['- Second: mostly rye, butter and yeast from the oven.'],
        },
      },
    ],
  },
  {
    name: 'there is no generation to restore that never was',
    policy,
    steps: [{ say: talk(1) }, { restore: 7, expect: { fails: 'Input.Invalid', unchanged: true } }],
  },
  {
    name: 'pinned words survive every compaction, word for word',
    policy: { ...policy, pins: ['No nuts, ever: allergy of the owner.', { pattern: '<rule>[^<]*</rule>' }] },
    steps: [
      {
        say: ['user: <rule>Close at six.</rule> ~400', ...talk(1)],
        compact: 'by hand',
        model: { says: '- Sales, mostly rye, butter and yeast from the oven.' },
        expect: { commits: true },
      },
      {
        say: talk(2),
        compact: 'by hand',
        model: { says: '- More sales, mostly rye, butter and yeast from the oven.' },
      },
      {
        say: talk(3),
        compact: 'by hand',
        model: { says: '- Ever more sales, mostly rye, butter and yeast from the oven.' },
        expect: {
          shows: ['No nuts, ever: allergy of the owner.', '<rule>Close at six.</rule>'],
          hides: ['- More sales,'],
        },
      },
    ],
  },
  {
    name: 'what a tool named and the user took up is in the head though the summary forgot it',
    policy,
    steps: [
      {
        say: [
          'user: Look up the customer and remember him. ~100',
          'assistant [c=crm]: ',
          'tool c: CUSTOMER|id=K-2291|name=Jonas Fährmann|tier=gold|since=2019',
          'assistant: Found him. ~600',
          'user: And the orders of K-2291? ~50',
          'assistant: Two open ones.',
        ],
      },
      {
        compact: 'by hand',
        model: { says: '- The customer was looked up and found, after flour, butter and sheet.' },
        expect: { commits: true, shows: ['K-2291'] },
      },
    ],
  },
  {
    name: 'nothing to evict leaves the standing summary alone',
    policy,
    steps: [
      {
        say: talk(1),
        compact: 'by hand',
        model: { says: '- First: mostly rye, butter and yeast from the oven.' },
      },
      {
        compact: 'due',
        model: { says: '- Overwritten: mostly rye, butter and yeast from the oven.' },
        expect: {
          commits: false,
          asked: 0,
          unchanged: true,
          snapshot: '- First: mostly rye, butter and yeast from the oven.',
        },
      },
    ],
  },
];
