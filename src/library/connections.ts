import type { Client } from '@temporalio/client';
import type { Pool } from 'pg';
import { z } from 'zod';
import { defaultTurnLimits, type TurnLimits } from '../conversation/turn-limits.js';
import { encodeIdPart } from '../contract/ids.js';
import { checkedDeployment } from '../config/policy-sources.js';
import { complain } from '../policy/issues.js';
import type { DeploymentPolicy } from '../policy/layers.js';
import { clientSettings, configOf } from '../process/servers.js';
import { assertMigrated } from '../store/connection/migrate.js';
import { openPool, type DatabaseTimeouts } from '../store/connection/pool.js';
import type { SummarizerFacts } from '../store/backfills/estimate.js';
import { createEmbedder, type Embedder, type EmbeddingSettings } from '../llm/embedder.js';
import { BackfillWorkflows } from '../temporal/backfill-workflows.js';
import { checkTemporalSettings, connectClient, type TemporalSettings } from '../temporal/connection.js';
import { defaultQueuePrefix } from '../temporal/names.js';
import { SessionWorkflows, type Warnings } from '../temporal/session-workflows.js';
import { registerCounters, type Counters } from '../tokens/counter.js';
import { SessionWatch } from './session-watch.js';

/**
 * Where `databaseUrl` or `temporal` is left out, everything left out is what the commands take: the environment and
 * `palimpsest.yaml`; for servers that neither names, those of a `palimpsest dev` that runs in this folder.
 */
export interface PalimpsestOptions {
  /** PostgreSQL connection string; the schema must be migrated (`palimpsest migrate`). @default as above */
  databaseUrl?: string;
  /** @default as above */
  temporal?: TemporalSettings;
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

const positive = z.int().min(1).optional();
const optionsSchema = z
  .strictObject({
    databaseUrl: z.string().describe('e.g. postgresql://user:password@host:5432/database').optional(),
    temporal: z.unknown().optional(),
    tenant: z.unknown().optional(),
    queuePrefix: z.string().min(1).optional(),
    poolSize: positive,
    tenantShare: z.number().gt(0).max(1).optional(),
    database: z
      .strictObject({
        ...{ statementTimeoutMs: positive, lockTimeoutMs: positive },
        ...{ idleTransactionTimeoutMs: positive, silenceTimeoutMs: positive },
      })
      .optional(),
    policy: z.looseObject({}).optional(),
    counters: z.looseObject({}).optional(),
    turnLimits: z.strictObject({ maxMessages: positive, maxBytes: positive }).optional(),
    summarizer: z.looseObject({}).optional(),
    embeddings: z.looseObject({}).optional(),
    log: z.looseObject({}).optional(),
  })
  .describe('Known options: databaseUrl, temporal, tenant and others; none of them has to be given.');

/** The options with the servers that they leave out. Throws `Input.Invalid` naming the option, or what to set. */
async function completed(given: PalimpsestOptions): Promise<PalimpsestOptions & ServersOf> {
  const { error } = optionsSchema.safeParse(given);
  if (error) throw complain(error, optionsSchema, given, isObject(given) ? '' : 'options');
  const { databaseUrl, temporal, tenant } = given;
  if (tenant !== undefined) encodeIdPart(tenant, 'tenant');
  if (temporal !== undefined) checkTemporalSettings(temporal);
  if (databaseUrl !== undefined && temporal !== undefined) return { ...given, databaseUrl, temporal };
  const config = configOf({ databaseUrl, temporalAddress: temporal?.address });
  const found = await clientSettings(config);
  const named = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  return { ...found, ...named };
}

const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null;

type ServersOf = Required<Pick<PalimpsestOptions, 'databaseUrl' | 'temporal'>>;

/**
 * Throws `Store.Unavailable` or `Temporal.Unavailable` within seconds where either does not answer, `Input.Invalid` for
 * options that cannot be meant.
 */
export async function openConnections(options: PalimpsestOptions): Promise<Connections> {
  const {
    databaseUrl,
    temporal,
    queuePrefix = defaultQueuePrefix,
    poolSize = 10,
    ...more
  } = await completed(options);
  const { tenantShare, database, policy, counters, summarizer = {}, log, turnLimits, embeddings } = more;
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
    await Promise.all([pool.end(), probe.end()]);
    throw error;
  }
}

export async function closeConnections({ pool, probe, workflows }: Connections): Promise<void> {
  await workflows.close();
  await probe.end();
  await pool.end();
}
