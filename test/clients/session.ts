/** One session through the client that openapi-typescript and openapi-fetch make. Prints what it saw as JSON. */
import createClient from 'openapi-fetch';
import type { components, paths } from './api.js';

const { API_URL: baseUrl = '', API_TOKEN: token = '' } = process.env;
const client = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${token}` } });
const path = { session: 'from-typescript' };

/** The answer, or the failure of a problem. */
function answered<T>({ data, error }: { data?: T; error?: components['schemas']['Problem'] }): T {
  if (data === undefined) throw new Error(`${error?.failure}: ${error?.detail}`);
  return data;
}

let stored = 0;
for (let turn = 1; turn <= 12; turn++) {
  const body = {
    turnId: `t-${turn}`,
    messages: [
      { role: 'user', content: `What does invoice ${4700 + turn} say?` },
      { role: 'assistant', content: `Invoice ${4700 + turn} says ${'ledger '.repeat(100)}.` },
    ],
    ...(turn === 1 ? { policy: { contextWindow: 4_000 } } : {}),
  };
  stored = answered(await client.POST('/v1/sessions/{session}/turns', { params: { path }, body })).throughSeq;
}
const before = answered(await client.GET('/v1/sessions/{session}/context', { params: { path } }));
const outcome = answered(await client.POST('/v1/sessions/{session}/compact', { params: { path } }));
if (outcome === null || !('generation' in outcome)) throw new Error('nothing was compacted');
const after = answered(
  await client.GET('/v1/sessions/{session}/context', { params: { path, query: { format: 'openai-chat' } } }),
);
const { hits } = answered(
  await client.POST('/v1/sessions/{session}/search', { params: { path }, body: { query: '4703', limit: 2 } }),
);
const lines = answered(
  await client.GET('/v1/sessions/{session}/replay', { params: { path }, parseAs: 'text' }),
);
const page = answered(
  await client.GET('/v1/sessions/{session}/messages', { params: { path, query: { fromSeq: 3, limit: 2 } } }),
);
const { error } = await client.GET('/v1/sessions/{session}/status', {
  params: { path: { session: 'nobody' } },
});
console.log(
  JSON.stringify({
    stored,
    shrunk: after.tokens < before.tokens,
    generation: [outcome.generation, after.generation],
    found: hits.map(({ seq }) => seq),
    replayed: lines.trim().split('\n').length,
    page: page.messages.map(({ seq }) => seq),
    failure: error?.failure,
  }),
);
