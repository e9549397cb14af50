import type { OwnCase } from './format.js';

const history = [
  'user: Plan the wedding cake. ~600',
  'assistant: Three tiers. ~600',
  'user: With figs. ~600',
  'assistant: Figs it is. ~600',
  'user: Price?',
];
const policy: OwnCase['policy'] = { keep: { messages: 1 }, summary: { fallback: 'none' } };
const failing = (
  name: string,
  model: NonNullable<OwnCase['steps'][number]['model']>,
  fails: NonNullable<OwnCase['steps'][number]['expect']>['fails'],
): OwnCase => ({
  name,
  policy,
  steps: [
    { say: history },
    {
      compact: 'by hand',
      model,
      expect: { fails, commits: false, unchanged: true, hides: ['as scripted', 'a bug'] },
    },
    // And the next try is free to succeed.
    {
      compact: 'by hand',
      model: { says: '- A wedding cake in three tiers, with figs.' },
      expect: { commits: true, snapshot: '- A wedding cake in three tiers, with figs.' },
    },
  ],
});

/** For any behaviour of the summarizer the context stays usable, and only a summary is accepted. */
export const failureCases: OwnCase[] = [
  failing('a summarizer out of reach changes nothing', { throws: 'Llm.Unavailable' }, 'Llm.Unavailable'),
  failing('a bug in the summarizer changes nothing', { throws: 'Error' }, 'Error'),
  failing('an empty answer is no summary', { says: '' }, 'Llm.BadOutput'),
  failing('blanks are no summary', { says: ' \n\t ' }, 'Llm.BadOutput'),
  failing(
    'thoughts without an answer are no summary',
    { says: '<think>They want figs.</think>' },
    'Llm.BadOutput',
  ),
  failing('a refusal is no summary', { says: "I'm sorry, but I can't help with that." }, 'Llm.BadOutput'),
  {
    name: 'a summary larger than what it replaces is not taken; by hand that is no failure',
    policy,
    steps: [
      { say: history },
      { compact: 'by hand', model: { inflates: true }, expect: { commits: false, unchanged: true } },
    ],
  },
  {
    name: 'a saving below the smallest gain is not taken when a trigger asked',
    policy: {
      trigger: { tokens: 2_000 },
      keep: { messages: 4 },
      summary: { minGain: 0.9, fallback: 'none' },
    },
    steps: [
      { say: history, expect: { due: true } },
      { compact: 'due', expect: { commits: false, asked: 0, unchanged: true, due: false } },
    ],
  },
  {
    name: 'where the policy says so, rules write the summary that no model can',
    policy: { ...policy, summary: { fallback: 'extractive' } },
    steps: [
      { say: history },
      {
        compact: 'by hand',
        model: { throws: 'Llm.Unavailable' },
        expect: { commits: true, shows: ['wedding cake'] },
      },
    ],
  },
  {
    name: 'a message that arrives while the summary is written stays, behind the tail',
    policy,
    steps: [
      { say: history },
      {
        compact: 'by hand',
        model: { says: '- A wedding cake in three tiers, with figs.', meanwhile: ['user: Wait: no figs!'] },
        expect: { commits: true, shows: ['Price?', 'Wait: no figs!'], evictedThrough: 4 },
      },
    ],
  },
  {
    name: 'a repair that comes to nothing leaves the first summary',
    policy,
    steps: [
      { say: ['user: Use recipe /recipes/fig-cake-v2.md for order FIG-20931. ~600', ...history] },
      { say: ['assistant: I open /recipes/fig-cake-v2.md for FIG-20931.', 'user: Go.'] },
      {
        compact: 'by hand',
        model: { says: '- A wedding cake in three tiers, with figs.', repairs: '' },
        expect: { commits: true, shows: ['- A wedding cake in three tiers, with figs.'] },
      },
    ],
  },
];
