/** What the Temporal server stores of a session, with payload keys and without: its own database file, and the histories. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { Client, Connection } from '@temporalio/client';
import proto from '@temporalio/proto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { payloadCodec, type PayloadKey } from '../../../src/index.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { defaultCacheDir } from '../../../src/runtime/cache-dir.js';
import { startTemporal, stopTemporal } from '../../../src/runtime/temporal.js';
import { connectClient, type TemporalSettings } from '../../../src/temporal/connection.js';
import { failureOf } from '../../../src/temporal/failures.js';
import {
  compactionWorkflowId,
  searchAttributeTypes,
  sessionWorkflowId,
  taskQueues,
} from '../../../src/temporal/names.js';
import { startWorker } from '../../../src/worker/worker.js';
import { loadWorkflowBundle } from '../../../src/worker/workflow-bundle.js';
import { createDatabase } from '../../support/database.js';
import { words } from '../../support/dialogue.js';
import { leashServers } from '../../support/leash.js';
import { ok, status } from '../../support/model-replies.js';
import { startModelServer } from '../../support/model-server.js';

const payloadKeys: PayloadKey[] = [{ id: 'k1', key: Buffer.alloc(32, 7).toString('base64') }];

let dataDir: string;
let address: string;

beforeAll(async () => {
  dataDir = leashServers(mkdtempSync(path.join(os.tmpdir(), 'palimpsest-payloads-')));
  ({ address } = await startTemporal({
    ...{ dataDir, cacheDir: defaultCacheDir(), ui: false, searchAttributes: searchAttributeTypes },
    log: () => {},
  }));
});

afterAll(async () => {
  await stopTemporal(dataDir);
  rmSync(dataDir, { recursive: true, force: true });
});

/** Distinct texts for each place that content comes from. */
const planted = (label: string) => ({
  message: `MESSAGE${label}`,
  prompt: `PROMPT${label}`,
  note: `NOTE${label}`,
  rejected: `REJECTED${label}`,
  failure: `FAILURE${label}`,
});
type Planted = ReturnType<typeof planted>;

/** A session with inline turns, a compaction, a refused turn, and a compaction that fails; returns the histories of its workflows. */
async function play(tenant: string, texts: Planted, temporal: TemporalSettings): Promise<Buffer> {
  const database = await createDatabase();
  const model = await startModelServer();
  const common = { databaseUrl: database.url, temporal, queuePrefix: tenant };
  const worker = await startWorker({
    ...common,
    model: { apiKey: 'test', baseUrl: model.url, summaryModel: 'test-summarizer' },
    workflowBundle: await loadWorkflowBundle(temporal),
    inlineTurnTenants: ['*'],
    policy: {
      file: { contextWindow: 4_000, summary: { prompt: `${texts.prompt}: {sections}`, fallback: 'none' } },
    },
    shutdownGraceMs: 500,
    sweepIntervalMs: 86_400_000,
  });
  worker.finished.catch(() => undefined);
  const palimpsest = await Palimpsest.connect({ ...common, tenant });
  const ids = { tenant, session: 's' };
  const connection = await Connection.connect({ address });
  const outside = new Client({
    connection,
    ...(temporal.payloadKeys && { dataConverter: { payloadCodecs: [payloadCodec(temporal.payloadKeys)] } }),
  });
  const signal = (turnId: string, messages: unknown) =>
    outside.workflow.signalWithStart('session', {
      workflowId: sessionWorkflowId(ids),
      taskQueue: taskQueues(tenant).workflow,
      args: [{ v: 1, ...ids, idleAfterMs: 60_000 }],
      signal: 'turn',
      signalArgs: [{ turnId, messages }],
    });
  try {
    for (let turn = 1; turn <= 18; turn++)
      await signal(`t-${turn}`, [
        { role: 'user', content: `${texts.message} ${words(100, turn)}` },
        { role: 'assistant', content: `${texts.message} ${words(100, turn + 5)}` },
      ]);
    await signal('refused', [{ role: texts.rejected, content: 'x' }]);
    await expect.poll(async () => (await palimpsest.status(ids).catch(() => null))?.messages).toBe(36);
    await palimpsest.settled(ids);
    expect((await palimpsest.status(ids)).generation).toBeGreaterThan(0);
    expect((await palimpsest.status(ids)).rejectedTurns).toMatchObject([{ type: 'Input.Invalid' }]);
    expect(JSON.stringify(await palimpsest.status(ids))).toContain(texts.rejected);

    model.reply(status(400, { error: { message: 'refused', code: texts.failure } }));
    for (let turn = 19; turn <= 22; turn++)
      await signal(`t-${turn}`, [{ role: 'user', content: words(60, turn) }]);
    await expect.poll(async () => (await palimpsest.status(ids)).messages).toBe(40);
    const failed = outside.workflow
      .getHandle(sessionWorkflowId(ids))
      .executeUpdate('compact', { args: [{ note: texts.note }] });
    const failure: unknown = await failed.catch((error: unknown) => error);
    expect(failureOf(failure)?.message).toContain(texts.failure);
    await palimpsest.settled(ids);
    return await histories(temporal, tenant);
  } finally {
    model.reply(ok());
    await palimpsest.close();
    await worker.shutdown();
    await connection.close();
    await model.close();
    await database.drop();
  }
}

/** The stored form of the histories, not decoded. */
async function histories(temporal: TemporalSettings, tenant: string): Promise<Buffer> {
  const client = await connectClient(temporal);
  const { History } = proto.temporal.api.history.v1;
  const ids = { tenant, session: 's' };
  const compactions = [1, 2].map((generation) => compactionWorkflowId(ids, generation));
  const parts = [sessionWorkflowId(ids), ...compactions].map(async (workflowId) =>
    History.encode(await client.workflow.getHandle(workflowId).fetchHistory()).finish(),
  );
  const all = Buffer.concat(await Promise.all(parts));
  await client.connection.close();
  return all;
}

const stored = () =>
  readdirSync(dataDir)
    .filter((name) => name.startsWith('temporal.db'))
    .map((name) => readFileSync(path.join(dataDir, name)));

const foundIn = (texts: Planted, files: Buffer[]): string[] =>
  Object.entries(texts).flatMap(([name, text]) => (files.some((file) => file.includes(text)) ? [name] : []));

test('with payload keys, neither store nor histories contain what a session says, asks for or fails with', async () => {
  const plain = planted('PLAIN');
  const plainHistories = await play('plain', plain, { address });
  const everywhere = Object.keys(plain).filter((name) => name !== 'prompt');
  expect(foundIn(plain, [plainHistories])).toEqual(everywhere);
  expect(foundIn(plain, stored())).toEqual(everywhere);
  // A field of a result.
  expect(plainHistories.includes('"modelOutputTokens"')).toBe(true);

  const secret = planted('SECRET');
  const secretHistories = await play('secret', secret, { address, payloadKeys });
  expect(secretHistories.includes('binary/encrypted')).toBe(true);
  expect(secretHistories.includes('Encoded failure')).toBe(true);
  expect(foundIn(secret, [secretHistories, ...stored()])).toEqual([]);
  for (const text of ['"modelOutputTokens"', '"turnId"', 'ledger'])
    expect(secretHistories.includes(text)).toBe(false);
});

test('a session that began in plain text continues with keys; without them its turns wait', async () => {
  const database = await createDatabase();
  const tenant = 'mixed';
  const ids = { tenant, session: 's' };
  const under = async (temporal: TemporalSettings, work: (palimpsest: Palimpsest) => Promise<void>) => {
    const common = { databaseUrl: database.url, temporal, queuePrefix: tenant };
    const worker = await startWorker({
      ...common,
      model: {},
      workflowBundle: await loadWorkflowBundle(temporal),
      inlineTurnTenants: ['*'],
      shutdownGraceMs: 500,
      sweepIntervalMs: 86_400_000,
    });
    worker.finished.catch(() => undefined);
    const palimpsest = await Palimpsest.connect({ ...common, tenant });
    try {
      await work(palimpsest);
    } finally {
      await palimpsest.close();
      await worker.shutdown();
    }
  };
  const signal = async (turnId: string, temporal: TemporalSettings) => {
    const client = await connectClient(temporal);
    await client.workflow.signalWithStart('session', {
      workflowId: sessionWorkflowId(ids),
      taskQueue: taskQueues(tenant).workflow,
      args: [{ v: 1, ...ids, idleAfterMs: 600_000 }],
      signal: 'turn',
      signalArgs: [{ turnId, messages: [{ role: 'user', content: turnId }] }],
    });
    await client.connection.close();
  };
  const plain = { address };
  const keyed = { address, payloadKeys };
  const rotated = {
    address,
    payloadKeys: [{ id: 'k2', key: Buffer.alloc(32, 8).toString('base64') }, ...payloadKeys],
  };
  const stores = (count: number) => async (palimpsest: Palimpsest) => {
    await expect.poll(async () => (await palimpsest.status(ids).catch(() => null))?.messages).toBe(count);
    await palimpsest.settled(ids);
    expect((await palimpsest.status(ids)).rejectedTurns).toEqual([]);
  };
  try {
    await signal('one', plain);
    await under(plain, stores(1));
    await signal('two', keyed);
    await under(plain, async () => {
      const client = await connectClient(plain);
      const { workflow } = client;
      const handle = workflow.getHandle(sessionWorkflowId(ids));
      const failures = async () => {
        const { events } = await handle.fetchHistory();
        return (events ?? []).map(
          ({ workflowTaskFailedEventAttributes: failed }) => failed?.failure?.message ?? '',
        );
      };
      await expect.poll(failures).toContainEqual(expect.stringMatching(/"k1".*PALIMPSEST_PAYLOAD_KEYS/));
      await client.connection.close();
    });
    await under(keyed, stores(2));
    await signal('three', rotated);
    await under(rotated, stores(3));
  } finally {
    await database.drop();
  }
});
