/**
 * Planted secrets of every kind in user texts, tool output and call arguments, through the whole service: API and worker in
 * separate processes with their logs, a Temporal server of its own with its file, endpoints for summaries and embeddings. The
 * tail, the archive and the replay keep the originals.
 *
 * `UPDATE_DOCS=1 npx vitest run test/service/library/secrets.test.ts` writes the table of docs/redaction.md.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { HttpPalimpsest } from '../../../src/http-client/index.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { defaultCacheDir } from '../../../src/runtime/cache-dir.js';
import { startTemporal, type RunningTemporal } from '../../../src/runtime/temporal.js';
import { openPool } from '../../support/pool.js';
import { searchAttributeTypes } from '../../../src/temporal/names.js';
import { places as sources, planted, shownIn } from '../../cases/secrets.js';
import { CliProcess } from '../../support/cli.js';
import { startCliWorker, type CliWorker } from '../../support/cli-worker.js';
import { columnsHolding } from '../../support/columns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { startEmbeddingServer, type EmbeddingServer } from '../../support/embedding-server.js';
import { leashServers } from '../../support/leash.js';
import { startModelServer, type ModelServer } from '../../support/model-server.js';
import { uniqueQueuePrefix } from '../../support/temporal.js';

let dataDir: string;
let temporal: RunningTemporal;
let database: TestDatabase;
let pool: Pool;
let model: ModelServer;
let embeddings: EmbeddingServer;
let worker: CliWorker;
let api: CliProcess;
let apiUrl: string;
let palimpsest: HttpPalimpsest;

beforeAll(async () => {
  dataDir = leashServers(mkdtempSync(path.join(os.tmpdir(), 'palimpsest-secrets-')));
  const cacheDir = defaultCacheDir();
  const options = { dataDir, cacheDir, log: () => {}, ui: false, searchAttributes: searchAttributeTypes };
  [temporal, database, model, embeddings] = await Promise.all([
    startTemporal(options),
    createDatabase(),
    startModelServer(),
    startEmbeddingServer(),
  ]);
  pool = openPool(database.url);
  const stack = { databaseUrl: database.url, temporal, queuePrefix: uniqueQueuePrefix(), model };
  const env = {
    LOG_LEVEL: 'trace',
    PALIMPSEST_EMBEDDING_MODEL: 'small',
    PALIMPSEST_EMBEDDING_BASE_URL: embeddings.url,
    PALIMPSEST_EMBEDDING_API_KEY: 'any',
  };
  worker = await startCliWorker(stack, env);
  api = new CliProcess(['api', '--port', '0'], {
    ...env,
    DATABASE_URL: database.url,
    PALIMPSEST_MAINTENANCE_URL: database.maintenanceUrl,
    PALIMPSEST_ERASER_URL: database.eraserUrl,
    TEMPORAL_ADDRESS: temporal.address,
    PALIMPSEST_QUEUE_PREFIX: stack.queuePrefix,
  });
  await api.shows(/http:\/\/127\.0\.0\.1:\d+/);
  apiUrl = /http:\/\/127\.0\.0\.1:\d+/.exec(api.stdout + api.stderr)![0];
  palimpsest = await HttpPalimpsest.connect({ url: apiUrl });
});

afterAll(async () => {
  await palimpsest?.close();
  api?.child.kill('SIGKILL');
  worker?.signal('SIGKILL');
  await Promise.all([temporal?.stop(), pool?.end(), model?.close(), embeddings?.close()]);
  await database?.drop();
  rmSync(dataDir, { recursive: true, force: true });
});

const modes: Record<string, NonNullable<PolicyInput['summary']>> = {
  journal: { mode: 'journal' },
  snapshots: { mode: 'incremental' },
  rules: { mode: 'journal', method: 'extractive' },
};

/** A turn for each kind with its secret in one place; the last turn is a long run, whose request the head carries. */
function turnsWith(source: string, put: (text: string) => string): ChatMessage[][] {
  const turns = planted.map(({ kind, text }, index): ChatMessage[] => {
    const said = (place: string, otherwise: string) => (source === place ? put(text) : otherwise);
    const given = said('call arguments', JSON.stringify({ path: `notes-${index}.txt` }));
    return [
      { role: 'user', content: `Step ${index}, ${kind}. ${said('user text', 'Read the notes.')}` },
      { role: 'assistant', content: null, tool_calls: [call(`call_${index}`, given)] },
      { role: 'tool', tool_call_id: `call_${index}`, content: said('tool output', 'The notes are empty.') },
      { role: 'assistant', content: `Step ${index} is done.` },
    ];
  });
  const [first] = planted;
  const long = Array.from({ length: 60 }, (_, index): ChatMessage[] => [
    { role: 'assistant', content: null, tool_calls: [call(`long_${index}`, `{"page":${index}}`)] },
    {
      role: 'tool',
      tool_call_id: `long_${index}`,
      content: `Page ${index} lists the orders of day ${index}. `.repeat(8),
    },
  ]);
  const request = `Read all pages. ${source === 'user text' ? put(first!.text) : ''}`;
  return [...turns, [{ role: 'user', content: request }, ...long.flat()]];
}

const call = (id: string, given: string) => ({
  ...{ id, type: 'function' as const },
  function: { name: 'write_file', arguments: given },
});

/** What each place holds now, as text. */
async function held(sessions: readonly string[]): Promise<Record<string, string>> {
  const rows = async (query: string) =>
    (await pool.query<{ row: string }>(query, [sessions])).rows.map(({ row }) => row).join('\n');
  const memory = await Promise.all([
    rows('select row_to_json(t)::text as row from palimpsest.compactions t where session_id = any ($1)'),
    rows('select row_to_json(t)::text as row from palimpsest.archive_parts t where session_id = any ($1)'),
    rows('select row_to_json(t)::text as row from palimpsest.digests t where payer_session = any ($1)'),
  ]);
  const metrics = [(await worker.page('/metrics')).text, await (await fetch(`${apiUrl}/metrics`)).text()];
  const files = readdirSync(dataDir).filter((name) => name.startsWith('temporal.db'));
  return {
    'requests to the model': model.requests.map(({ body }) => JSON.stringify(body)).join('\n'),
    'heads, entries, state': memory.join('\n'),
    'texts for embeddings': embeddings.requests.flat().join('\n'),
    'logs of worker and API': [worker.output(), api.stdout, api.stderr].join('\n'),
    "Temporal's database": files.map((name) => readFileSync(path.join(dataDir, name), 'utf8')).join('\n'),
    '`/metrics`': metrics.join('\n'),
  };
}

/** By place, the kinds that are shown; by source in which they were planted. */
const shown: Record<string, Record<string, string[]>> = {};

test.each(Object.entries(sources))(
  'no secret planted in the %s leaves tail and archive',
  async (source, put) => {
    const turns = turnsWith(source, put);
    // Otherwise the test could not fail.
    expect(shownIn(JSON.stringify(turns))).toEqual(planted);
    const sessions: string[] = [];
    for (const [name, summary] of Object.entries(modes)) {
      const session = `${source}, ${name}`;
      sessions.push(session);
      // No field names redaction: it is on by default.
      const policy: PolicyInput = { contextWindow: 6_000, summary };
      for (const [index, messages] of turns.entries()) {
        await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
        if (index % 15 === 14 || index === turns.length - 1) await palimpsest.settled({ session });
      }
      const context = await palimpsest.context({ session });
      expect(context.tokens).toBeLessThan(6_000);
      const [first] = planted;
      await palimpsest.search({ session, query: `orders ${put(first!.text)}` });
      const originals: ChatMessage[] = [];
      for await (const { message } of palimpsest.replay({ session })) originals.push(message);
      expect(originals).toEqual(turns.flat());
    }
    const { rows: generations } = await pool.query<{ carried_seq: number | null; head: string }>(
      'select carried_seq, head from palimpsest.compactions where session_id = any ($1) and head is not null',
      [sessions],
    );
    expect(generations.length).toBeGreaterThanOrEqual(2 * sessions.length);
    const carried = generations.filter(({ carried_seq: seq }) => seq !== null);
    expect(carried.length).toBeGreaterThanOrEqual(sessions.length);
    if (source === 'user text')
      expect(carried.some(({ head }) => head.includes('Read all pages. Here is what I have'))).toBe(true);

    const texts = await held(sessions);
    for (const [place, text] of Object.entries(texts)) {
      expect(text, place).not.toBe('');
      (shown[place] ??= {})[source] = shownIn(text).map(({ kind }) => kind);
    }
    expect(texts['requests to the model']).toContain('[REDACTED:');
    expect(texts['heads, entries, state']).toContain('[REDACTED:');
    expect(texts['texts for embeddings']).toContain('[REDACTED:');
  },
);

test('an erased message is in no log, no metric and not in the file of Temporal', async () => {
  const session = 'erased';
  const text = 'planted-5d81c0aa';
  const turns = Array.from({ length: 60 }, (_, turn): ChatMessage[] => [
    {
      role: 'user',
      content: `Request ${turn}. ${turn === 1 ? `Always call me ${text}.` : 'Go on.'} ${'word '.repeat(80)}`,
    },
    { role: 'assistant', content: `Answer ${turn}.` },
  ]);
  for (const [index, messages] of turns.entries())
    await palimpsest.appendTurn({
      ...{ session, turnId: `t-${index}`, messages },
      policy: { contextWindow: 4_000, summary: { mode: 'journal', method: 'extractive' } },
    });
  await palimpsest.settled({ session });
  expect((await palimpsest.search({ session, query: text })).hits).not.toEqual([]);
  expect(await columnsHolding(pool, [text])).toEqual(
    expect.arrayContaining(['compactions.head', 'messages.body']),
  );
  const { hits } = await palimpsest.findMessages({ session, text });
  expect(hits.map(({ seq }) => seq)).toEqual([3]);
  await palimpsest.eraseMessages({ session, seqs: [3], reason: 'asked for' });
  await palimpsest.settled({ session });
  expect(await columnsHolding(pool, [text])).toEqual([]);
  const places = await held([session]);
  for (const place of [
    'heads, entries, state',
    'logs of worker and API',
    "Temporal's database",
    '`/metrics`',
  ])
    expect(places[place], place).not.toContain(text);
});

test('the table of docs/redaction.md is the result', () => {
  const names = Object.keys(shown);
  const withheldIn = (kind: string, place: string) =>
    Object.values(shown[place]!).filter((kinds) => !kinds.includes(kind)).length;
  const count = Object.keys(sources).length;
  const table = [
    `| kind | ${names.join(' | ')} |`,
    `|---|${names.map(() => '---|').join('')}`,
    ...planted.map(
      ({ kind }) =>
        `| ${kind} | ${names.map((name) => `${withheldIn(kind, name)} of ${count}`).join(' | ')} |`,
    ),
    `| all ${count} of ${count} | ${names.map((name) => planted.filter(({ kind }) => withheldIn(kind, name) === count).length).join(' | ')} |`,
  ].join('\n');
  const file = new URL('../../../docs/redaction.md', import.meta.url);
  const place = /(?<=<!-- measured: secrets -->\n\n)[^]*?(?=\n\n<!-- end of measured -->)/;
  if (process.env['UPDATE_DOCS'] === '1')
    writeFileSync(
      file,
      readFileSync(file, 'utf8').replace(place, () => table),
    );
  expect(readFileSync(file, 'utf8').match(place)?.[0]).toBe(table);
  for (const name of names)
    expect(
      planted.filter(({ kind }) => withheldIn(kind, name) === count).length,
      name,
    ).toBeGreaterThanOrEqual(57);
});

test('with `redact: false` model, memory and embeddings get them; logs, Temporal and metrics still do not', async () => {
  const [requests, texts] = [model.requests.length, embeddings.requests.length];
  const session = 'control';
  const turns = turnsWith('user text', sources['user text']!);
  const policy: PolicyInput = { contextWindow: 6_000, summary: modes.journal, redact: false };
  for (const [index, messages] of turns.entries())
    await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
  await palimpsest.settled({ session });
  await palimpsest.search({ session, query: 'orders' });
  const { rows } = await pool.query<{ row: string }>(
    'select row_to_json(t)::text as row from palimpsest.compactions t where session_id = $1',
    [session],
  );
  expect(shownIn(JSON.stringify(model.requests.slice(requests))).length).toBeGreaterThanOrEqual(40);
  expect(shownIn(JSON.stringify(rows)).length).toBeGreaterThan(0);
  expect(shownIn(JSON.stringify(embeddings.requests.slice(texts))).length).toBeGreaterThanOrEqual(40);
  const now = await held([session]);
  for (const place of ['logs of worker and API', "Temporal's database", '`/metrics`'])
    expect(shownIn(now[place] ?? ''), place).toEqual([]);
});
