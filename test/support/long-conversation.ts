/** A conversation that is longer than a small window, and calls with which the model looks for its beginning. */

export const window = 6_000;

export const history = Array.from({ length: 16 }, (_, at) => ({
  role: at % 2 === 0 ? ('user' as const) : ('assistant' as const),
  content:
    at === 3
      ? `The colour of the harbour is vermilion. ${'It is so. '.repeat(200)}`
      : `Part ${at}. ${'It is so. '.repeat(200)}`,
}));
export const list = [...history, { role: 'user' as const, content: 'Which colour has the harbour?' }];

export const search = { id: 'call-search', name: 'search_history', args: { query: 'harbour colour' } };
export const look = { id: 'call-look', name: 'look', args: { n: 1 } };
export const lookTool = {
  name: 'look',
  description: 'Looks.',
  parameters: { type: 'object', properties: { n: { type: 'number' } } },
};
