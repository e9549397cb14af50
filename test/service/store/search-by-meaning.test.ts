/**
 * With embeddings, search also finds messages with other words; without them, or if their endpoint fails, it searches by words.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { callRecoveryTool, type RecoverySource } from '../../../src/contract/recovery-tools.js';
import type { SearchRequest, SearchResult } from '../../../src/contract/archive.js';
import type { SessionIds } from '../../../src/contract/ids.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { createEmbedder, type Embedder, type EmbeddingSettings } from '../../../src/llm/embedder.js';
import { openPool } from '../../support/pool.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { fork } from '../../../src/store/compactions/fork.js';
import { restore } from '../../../src/store/compactions/restore.js';
import { embedTexts, quantized } from '../../../src/store/search/embed-texts.js';
import { indexTexts } from '../../../src/store/search/index-texts.js';
import { search } from '../../../src/store/search/search.js';
import { eraseSession } from '../../../src/store/sessions/erase.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import {
  dimensions,
  startEmbeddingServer,
  vectorOf,
  type EmbeddingServer,
} from '../../support/embedding-server.js';
import { compactThrough, countRows, newSession, sessionWith, talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;
let server: EmbeddingServer;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url);
  server = await startEmbeddingServer();
});

beforeEach(() => {
  server.refuse(null);
  server.longest = Infinity;
  server.requests.length = 0;
});

afterAll(async () => {
  await server.close();
  await pool.end();
  await database.drop();
});

const embedder = (settings: Partial<EmbeddingSettings> = {}): Embedder =>
  createEmbedder({ model: 'small', apiKey: 'any', baseUrl: server.url, ...settings });

const lost: ChatMessage[] = [
  { role: 'user', content: 'How was your week?', name: 'Joanna' },
  { role: 'assistant', content: 'We had to say goodbye to my dog.', name: 'Nate' },
  ...talk(20),
  { role: 'user', content: 'The battery of my phone is empty.', name: 'Joanna' },
];

const ask = (
  ids: SessionIds,
  request: SearchRequest | string,
  by: Embedder | null = embedder(),
): Promise<SearchResult> => search(pool, ids, typeof request === 'string' ? { query: request } : request, by);

async function indexed(messages: ChatMessage[]): Promise<SessionIds> {
  const ids = await sessionWith(pool, messages);
  await indexTexts(pool, ids);
  return ids;
}

describe('search by meaning', () => {
  it('finds a message without any word of the query, with its reply', async () => {
    const ids = await indexed(lost);
    expect((await ask(ids, 'Max died', null)).hits).toEqual([]);
    const { hits, meaning } = await ask(ids, { query: 'Max died', after: 1 });
    expect(hits[0]).toMatchObject({
      seq: 2,
      speaker: 'Nate',
      offset: 0,
      snippet: 'We had to say goodbye to my dog.',
      following: [{ seq: 3 }],
    });
    expect(meaning).toEqual({ failure: null, vectors: 23, fromSeq: 1, throughSeq: 23 });
  });

  it('obeys the filters', async () => {
    const ids = await indexed([...lost, { role: 'user', content: 'A puppy passed by.', name: 'Joanna' }]);
    const first = async (request: Omit<SearchRequest, 'query'>) =>
      (await ask(ids, { query: 'Max died', ...request })).hits[0]?.seq;
    expect(await first({ speaker: 'nate' })).toBe(2);
    expect(await first({ speaker: 'Joanna' })).toBe(24);
    expect(await first({ throughSeq: 20 })).toBe(2);
    expect(await first({ role: 'user' })).toBe(24);
    expect(await first({ through: '2001' })).toBeUndefined();
  });

  it('leaves out what quotes the originals, if the agent searches', async () => {
    const quote = '{"hits":[{"message":2,"snippet":"We had to say goodbye to my dog."}]}';
    const named = { name: 'search_history', arguments: '{"query":"goodbye dog"}' };
    const ids = await indexed([
      ...lost,
      { role: 'assistant', content: null, tool_calls: [{ id: 'a', type: 'function', function: named }] },
      { role: 'tool', tool_call_id: 'a', content: quote },
    ]);
    const found = async (request: Omit<SearchRequest, 'query'>) =>
      (await ask(ids, { query: 'Max died', ...request })).hits.map(({ seq }) => seq);
    expect(await found({ limit: 3 })).toEqual([24, 2, 25]);
    const agent = await found({ limit: 50, forAgent: true });
    expect(agent[0]).toBe(2);
    expect(agent).not.toContain(24);
    expect(agent).not.toContain(25);
    const asked = await found({ forAgent: true, tool: 'search_history' });
    expect(asked.sort()).toEqual([24, 25]);
  });

  it('ranks hits of both words and meaning first, and hits of an identifier before all', async () => {
    const ids = await indexed([
      { role: 'user', content: 'The order ORD-77 is here.' },
      ...talk(5),
      { role: 'user', content: 'My old dog passed away, poor thing.' },
      { role: 'user', content: 'An old battery, like mine.' },
      { role: 'user', content: 'Goodbye, puppy!' },
    ]);
    expect((await ask(ids, 'the old dog died')).hits[0]?.seq).toBe(7);
    expect((await ask(ids, 'dog died ORD-77')).hits.map(({ seq }) => seq).slice(0, 2)).toEqual([1, 7]);
  });

  it('uses words alone if the request says so', async () => {
    const ids = await indexed(lost);
    for (const request of [
      { query: 'Max died', mode: 'words' },
      { query: '"Max" died' },
      { query: 'Max died', mode: 'substring' },
    ] as const)
      expect(await ask(ids, request)).toMatchObject({ hits: [], meaning: null });
    expect(server.requests).toEqual([]);
  });

  it('falls back to words if the endpoint fails, and reports it; later calls fetch the missing vectors', async () => {
    const ids = await indexed(lost);
    for (const [status, type] of [
      [500, 'Llm.Unavailable'],
      [401, 'Llm.Rejected'],
      [429, 'Llm.RateLimited'],
    ] as const) {
      server.refuse({ status, message: 'not now' });
      const { hits, meaning } = await ask(ids, 'goodbye');
      expect(hits.map(({ seq }) => seq)).toEqual([2]);
      expect(meaning).toMatchObject({ failure: expect.stringContaining(type), vectors: 0, fromSeq: null });
    }
    const source: RecoverySource = {
      search: (of) => ask(ids, of),
      toolResponse: () => Promise.reject(new Error('not asked')),
      expand: () => Promise.reject(new Error('not asked')),
    };
    const answer = await callRecoveryTool(source, ids.session, 'search_history', '{"query":"goodbye"}');
    expect(JSON.parse(answer)).toMatchObject({ note: expect.stringContaining('Found by words alone: Llm.') });
    server.refuse(null);
    expect((await ask(ids, 'Max died')).meaning).toMatchObject({ failure: null, vectors: 23 });
  });

  it('requests each text once, in order, and afterwards only the query', async () => {
    const ids = await indexed(lost);
    await embedTexts(pool, ids, embedder());
    expect(server.requests.flat()).toHaveLength(23);
    expect(server.requests.flat()[1]).toBe('Nate: We had to say goodbye to my dog.');
    await embedTexts(pool, ids, embedder());
    expect(server.requests.flat()).toHaveLength(23);
    await ask(ids, 'Max died');
    expect(server.requests.at(-1)).toEqual(['Max died']);
    await appendTurn(pool, {
      ...ids,
      turnId: 'next',
      messages: [{ role: 'user', content: 'My car is dead.' }],
    });
    expect((await ask(ids, 'vehicle death')).hits[0]?.seq).toBe(24);
    expect(server.requests.flat().filter((text) => text === 'My car is dead.')).toHaveLength(1);
    // Vectors of another model are others.
    expect((await ask(ids, 'Max died', embedder({ model: 'large' }))).hits[0]?.seq).toBe(2);
    expect(await countRows(pool, 'message_vectors', ids)).toBe(48);
  });

  it('finds a place deep in a long text, and a text too long for the model by its beginning', async () => {
    const filler = 'lorem ipsum '.repeat(2_000);
    const ids = await indexed([
      { role: 'user', content: `${filler}we had to say goodbye to my dog ${filler}` },
      { role: 'user', content: `goodbye dog ${'and so on '.repeat(150)}` },
      ...talk(4),
      { role: 'user', content: '  ' },
    ]);
    server.longest = 2_000;
    const { hits } = await ask(ids, { query: 'Max died' });
    const deep = hits.find(({ seq }) => seq === 1);
    expect(deep?.offset).toBeGreaterThan(filler.length - 2_000);
    expect(deep?.offset).toBeLessThan(filler.length + 100);
    server.longest = 400;
    const other = await ask(ids, 'Max died', embedder({ model: 'tiny' }));
    expect(other.meaning?.failure).toBeNull();
    expect(other.hits[0]?.seq).toBe(2);
  });

  it('compares the newest vectors if there are too many', async () => {
    const ids = await indexed(lost);
    const { meaning, hits } = await ask(ids, 'Max died', embedder({ scan: 10 }));
    expect(meaning).toMatchObject({ vectors: 10, fromSeq: 14, throughSeq: 23 });
    expect(hits.map(({ seq }) => seq)).not.toContain(2);
  });

  it('hides what the policy redacts from the endpoint', async () => {
    const ids = newSession();
    const key = 'sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH';
    await appendTurn(pool, {
      ...ids,
      turnId: '1',
      messages: [{ role: 'user', content: `${'x '.repeat(980)} my key is ${key}, the dog is dead` }],
      policy: { redact: { secrets: true } },
    });
    await indexTexts(pool, ids);
    expect((await ask(ids, `Max died ${key}`)).hits.map(({ seq }) => seq)).toContain(1);
    const sent = server.requests.flat().join('\n');
    expect(sent).toContain('[REDACTED:');
    for (let at = 0; at + 12 <= key.length; at += 1) expect(sent).not.toContain(key.slice(at, at + 12));
  });

  it('has vectors that follow their session: copied into a fork, kept by a restore, erased', async () => {
    const ids = await indexed(lost);
    await compactThrough(pool, ids, 10);
    await embedTexts(pool, ids, embedder());
    const to = newSession(ids.tenant);
    await fork(pool, ids, { to: to.session, throughSeq: 12 });
    await restore(pool, ids, 0);
    server.requests.length = 0;
    expect((await ask(ids, 'Max died')).hits[0]?.seq).toBe(2);
    const forked = await ask(to, 'Max died');
    expect(forked.hits[0]?.seq).toBe(2);
    expect(forked.meaning).toMatchObject({ vectors: 12, throughSeq: 12 });
    expect(server.requests.flat()).toEqual(['Max died', 'Max died']);
    await eraseSession(pool, ids);
    expect(await countRows(pool, 'message_vectors', ids)).toBe(0);
    expect(await countRows(pool, 'message_vectors', to)).toBe(12);
  });

  it("finds texts by words if this minute's tokens are used up", async () => {
    const ids = await indexed(lost);
    await pool.query('delete from palimpsest.rate_buckets');
    const { meaning } = await ask(ids, 'Max died', embedder({ tokensPerMinute: 50 }));
    expect(meaning?.failure).toContain('Llm.RateLimited');
    await pool.query('delete from palimpsest.rate_buckets');
  });

  it.each(['{"data":[]}', 'no JSON', '{"data":[{"embedding":["x"]}]}', '{"data":[{"embedding":[0,0]}]}'])(
    'refuses an answer without valid vectors: %s',
    async (body) => {
      const fetched = globalThis.fetch;
      globalThis.fetch = () => Promise.resolve(new Response(body, { status: 200 }));
      try {
        await expect(embedder().embed(['text'])).rejects.toMatchObject({ type: 'Llm.BadOutput' });
      } finally {
        globalThis.fetch = fetched;
      }
    },
  );
});

describe('with vectors in the form of pgvector', () => {
  /** The part of the extension that the queries use: the type `vector`, its text form and its operator. */
  const standIn = `
    create domain public.vector as real[];
    create function public.cosine_distance(a real[], b real[]) returns float8 language sql immutable as $$
      select 1 - sum(x * y) / sqrt(sum(x * x) * sum(y * y)) from unnest(a, b) as pair (x, y) $$;
    create operator public.<=> (leftarg = real[], rightarg = real[], function = public.cosine_distance);
    insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
      values (99999, 'vector', 10, 'public'::regnamespace, true, '0.8.0')`;

  it('the server compares them, all of them, with the same answer', async () => {
    const ids = await indexed(lost);
    const scanned = await ask(ids, 'Max died');
    expect((await pool.query('select palimpsest.use_pgvector() as used')).rows).toEqual([{ used: false }]);
    await pool.query(standIn);
    try {
      for (const again of [1, 2])
        expect((await pool.query('select palimpsest.use_pgvector() as used')).rows, `${again}`).toEqual([
          { used: true },
        ]);
      const { rows } = await pool.query<{ embedding: number[] }>(
        `select embedding::real[] as embedding from palimpsest.message_vectors
         where session_id = $1 and seq = 2`,
        [ids.session],
      );
      expect(rows[0]?.embedding).toEqual([...quantized(vectorOf('Nate: We had to say goodbye to my dog.'))]);
      expect(rows[0]?.embedding).toHaveLength(dimensions);
      const compared = await ask(ids, 'Max died', embedder({ scan: 1 }));
      expect(compared.hits).toEqual(scanned.hits);
      expect(compared.meaning).toEqual(scanned.meaning);
      expect(
        (await ask(ids, { query: 'Max died', speaker: 'Joanna' })).hits.map(({ seq }) => seq),
      ).not.toContain(2);
    } finally {
      await pool.query(`alter table palimpsest.message_vectors drop column embedding;
        delete from pg_extension where extname = 'vector'`);
    }
  });
});
