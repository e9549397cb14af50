/**
 * Counts what an append costs: round trips, statements and bytes between the process and PostgreSQL, WAL bytes and fsyncs in
 * PostgreSQL; and how long it holds the event loop.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import pg from 'pg';
import type { ChatMessage } from '../src/conversation/message.js';
import { appendTurn } from '../src/store/append/turns.js';
import { openPool } from '../src/store/connection/pool.js';
import { agentTurn } from './conversation.js';
import { type CountingProxy, startCountingProxy } from './counting-proxy.js';
import { createDatabase } from './deployment.js';
import { figure, type BenchResult, type Figure } from './figures.js';
import type { Servers } from './servers.js';

const tenant = 'bench';
const policy = { contextWindow: 100_000_000, tokenizer: 'chars/4' } as const;
const small = (seed: number) => agentTurn(60, seed).filter((_, at) => at % 5 === 0);
const large = (megabytes: number) => (seed: number) => [
  { role: 'user' as const, content: `${seed} ${'all work and no play '.repeat(50_000 * megabytes)}` },
];

interface Case {
  name: string;
  messages: (seed: number) => ChatMessage[];
  /** Appends that are counted; the first ones of the session are not. */
  appends: number;
  usage?: boolean;
  repeated?: boolean;
  /** Another process appends in between. */
  shared?: boolean;
}

const cases: readonly Case[] = [
  { name: '2 small messages', messages: small, appends: 50 },
  { name: '2 small messages with usage', messages: small, appends: 50, usage: true },
  { name: 'a repeated turn', messages: small, appends: 50, repeated: true },
  { name: '2 small messages, alternately by two processes', messages: small, appends: 50, shared: true },
  { name: 'a message of 1 MB', messages: large(1), appends: 5 },
];

export async function append(servers: Servers): Promise<BenchResult> {
  const { ownerUrl, databaseUrl } = await createDatabase(servers.adminUrl, 'bench_append');
  const proxy = await startCountingProxy(databaseUrl);
  const owner = new pg.Client({ connectionString: ownerUrl });
  await owner.connect();
  try {
    const figures: Figure[] = [];
    for (const one of cases) figures.push(...(await count(one, proxy, owner, databaseUrl)));
    for (const megabytes of [1, 10]) figures.push(await delay(megabytes, databaseUrl));
    return {
      figures,
      notes: [
        'Means of the appends of a session that the process has seen. The setting of the tenant counts as a statement.',
      ],
    };
  } finally {
    await owner.end();
    await proxy.close();
  }
}

async function count(
  { name, messages, appends, usage = false, repeated = false, shared = false }: Case,
  proxy: CountingProxy,
  owner: pg.Client,
  databaseUrl: string,
): Promise<Figure[]> {
  const pool = openPool(proxy.url, { max: 1, tenantShare: 1 });
  const other = openPool(databaseUrl, { max: 1, tenantShare: 1 });
  const store = (from: pg.Pool, seed: number) =>
    appendTurn(from, {
      ...{ tenant, session: name, turnId: `t-${seed}`, messages: messages(seed), policy },
      ...(usage ? { usage: { prompt_tokens: 500 * seed, completion_tokens: 10 } } : {}),
    });
  // Statements are prepared by then.
  for (const seed of [1, 2, 3]) await store(pool, seed);
  proxy.take();
  const before = await written(owner);
  for (let at = 0; at < appends; at++) {
    if (shared) await store(other, 1_000 + at);
    await store(pool, repeated ? 3 : 4 + at);
  }
  const { trips, statements, sent, received } = proxy.take();
  // A connection that ends reports its statistics.
  await Promise.all([pool.end(), other.end()]);
  const after = await written(owner);
  const each = (what: string, unit: Figure['unit'], total: number) =>
    figure('append', `${name}: ${what}`, unit, [total / appends]);
  return [
    each('round trips', 'trips', trips),
    each('statements', 'statements', statements),
    each('sent', 'bytes', sent),
    each('received', 'bytes', received),
    each('WAL', 'bytes', after.wal - before.wal),
    each('fsyncs of the WAL', 'fsyncs', after.fsyncs - before.fsyncs),
  ];
}

async function written(owner: pg.Client): Promise<{ wal: number; fsyncs: number }> {
  const { rows } = await owner.query<{ wal: number; fsyncs: number }>(
    `select (pg_current_wal_insert_lsn() - '0/0')::float8 as wal,
       (select coalesce(sum(fsyncs), 0)::float8 from pg_stat_io where object = 'wal' and backend_type = 'client backend') as fsyncs`,
  );
  return rows[0] ?? { wal: 0, fsyncs: 0 };
}

/** The longest time that an append holds the event loop. */
async function delay(megabytes: number, databaseUrl: string): Promise<Figure> {
  const pool = openPool(databaseUrl, { max: 1, tenantShare: 1 });
  const longest: number[] = [];
  for (let run = 0; run <= 3; run++) {
    const turn = {
      tenant,
      session: `${megabytes} MB`,
      turnId: `t-${run}`,
      messages: large(megabytes)(run),
      policy,
    };
    const histogram = monitorEventLoopDelay({ resolution: 1 });
    histogram.enable();
    await appendTurn(pool, turn);
    histogram.disable();
    // The first one starts threads.
    if (run > 0) longest.push(histogram.max / 1e6);
  }
  await pool.end();
  return figure('append', `a message of ${megabytes} MB: longest hold of the event loop`, 'ms', longest);
}
