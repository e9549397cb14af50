import type { Client } from '@temporalio/client';
import type { Pool } from 'pg';
import { defaultTurnLimits, type TurnLimits } from '../conversation/turn-limits.js';
import { checkedDeployment } from '../config/policy-sources.js';
import type { DeploymentPolicy } from '../policy/layers.js';
import { assertMigrated } from '../store/connection/migrate.js';
import { openPool, type DatabaseTimeouts } from '../store/connection/pool.js';
import type { SummarizerFacts } from '../store/backfills/estimate.js';
import { createEmbedder, type Embedder, type EmbeddingSettings } from '../llm/embedder.js';
import { BackfillWorkflows } from '../temporal/backfill-workflows.js';
import { connectClient, type TemporalSettings } from '../temporal/connection.js';
import { defaultQueuePrefix } from '../temporal/names.js';
import { SessionWorkflows, type Warnings } from '../temporal/session-workflows.js';
import { registerCounters, type Counters } from '../tokens/counter.js';
import { SessionWatch } from './session-watch.js';

export interface PalimpsestOptions {
  /** PostgreSQL connection string; the schema must be migrated (`palimpsest migrate`). */
  databaseUrl: string;
  temporal: TemporalSettings;
  /** Owner of the sessions that calls name. @default 'default' */
  tenant?: string;
  /** Prefix of the task queues the workers serve. @default 'compaction' */
  queuePrefix?: string;
  /** Database connections of this client at most. @default 10 */
  poolSize?: number;
  /**
   * Share of them that one tenant may hold while it is served over HTTP: other tenants find the rest, however much it asks.
   * More than 0, at most 1. @default 0.5
   */
  tenantShare?: number;
  /** How long statements, locks and silent transactions may take. */
  database?: DatabaseTimeouts;
  /**
   * Policy below those of tenant and session: `readDeploymentPolicy()` for file and environment. Written into sessions
   * that this client creates or configures. @default none for new sessions; a session that exists keeps what it has
   */
  policy?: DeploymentPolicy;
  /** Counters of policies with `tokenizer: 'custom:<name>'`, by name; the workers need the same. */
  counters?: Counters;
  /** Largest turn that `appendTurn` takes. @default 10,000 messages, 32 MiB of JSON */
  turnLimits?: Partial<TurnLimits>;
  /** What the workers ask where a policy names no summarizer: estimates of backfills follow it. */
  summarizer?: SummarizerFacts;
  /** Where searches and texts become vectors, so that search finds by meaning, too. @default by words alone */
  embeddings?: EmbeddingSettings;
  /** Told of turns that are stored but could not be signalled. A logger of pino will do. @default nobody is told */
  log?: Warnings;
}

/** What the views of all tenants share: one pool, one client of Temporal. */
export interface Connections {
  pool: Pool;
  client: Client;
  /** One connection for questions about the server, which must not wait behind calls of tenants. */
  probe: Pool;
  /** Those who wait for sessions. */
  watch: SessionWatch;
  workflows: SessionWorkflows;
  backfills: BackfillWorkflows;
  deployment: DeploymentPolicy | undefined;
  summarizer: SummarizerFacts;
  turnLimits: TurnLimits;
  embedder: Embedder | null;
}

const probeTimeoutMs = 5_000;

/** Throws `Store.Unavailable` or `Temporal.Unavailable` within seconds where either does not answer. */
export async function openConnections({
  databaseUrl,
  temporal,
  queuePrefix = defaultQueuePrefix,
  poolSize = 10,
  tenantShare,
  database,
  policy,
  counters,
  summarizer = {},
  log,
  turnLimits,
  embeddings,
}: PalimpsestOptions): Promise<Connections> {
  registerCounters(counters);
  const deployment = checkedDeployment(policy);
  const embedder = embeddings === undefined ? null : createEmbedder(embeddings);
  const pool = openPool(databaseUrl, { ...database, max: poolSize, tenantShare });
  const applicationName = 'palimpsest probe';
  const probe = openPool(databaseUrl, { max: 1, applicationName, statementTimeoutMs: probeTimeoutMs });
  try {
    await assertMigrated(pool);
    const client = await connectClient(temporal);
    const workflows = new SessionWorkflows(client, queuePrefix, log);
    const backfills = new BackfillWorkflows(client, queuePrefix);
    const limits = { ...defaultTurnLimits, ...turnLimits };
    const watch = new SessionWatch(pool, workflows);
    const settings = { deployment, summarizer, turnLimits: limits, embedder };
    return { pool, probe, watch, client, workflows, backfills, ...settings };
  } catch (error) {
    await pool.end();
    throw error;
  }
}

export async function closeConnections({ pool, probe, workflows }: Connections): Promise<void> {
  await workflows.close();
  await probe.end();
  await pool.end();
}
