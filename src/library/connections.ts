import type { Client } from '@temporalio/client';
import type { Pool } from 'pg';
import { z } from 'zod';
import { defaultTurnLimits, type TurnLimits } from '../conversation/turn-limits.js';
import { encodeIdPart } from '../contract/ids.js';
import { checkedDeployment } from '../config/policy-sources.js';
import { complain } from '../policy/issues.js';
import type { DeploymentPolicy } from '../policy/layers.js';
import { type TenantLimits, tenantLimitsSchema } from '../policy/tenant-limits.js';
import { clientSettings, configOf } from '../process/servers.js';
import { assertMigrated } from '../store/connection/migrate.js';
import { Notices } from '../store/connection/notices.js';
import { checkDatabaseUrl, openPool, type DatabaseTimeouts } from '../store/connection/pool.js';
import type { SummarizerFacts } from '../store/backfills/estimate.js';
import { createEmbedder, type Embedder, type EmbeddingSettings } from '../llm/embedder.js';
import { BackfillWorkflows } from '../temporal/backfill-workflows.js';
import { checkTemporalSettings, connectClient, type TemporalSettings } from '../temporal/connection.js';
import { defaultQueuePrefix } from '../temporal/names.js';
import { SessionWorkflows, type Warnings } from '../temporal/session-workflows.js';
import { registerCounters, type Counters } from '../tokens/counter.js';
import { SessionWatch } from './session-watch.js';

/**
 * If `databaseUrl` or `temporal` is left out, all missing options get the values that the commands use. They come from the
 * environment and `palimpsest.yaml`. A server that neither of them names is taken from a `palimpsest dev` running in this folder.
 */
export interface PalimpsestOptions {
  /** PostgreSQL connection string; the schema must be migrated (`palimpsest migrate`). @default as above */
  databaseUrl?: string;
  /** The same database with the role that erases sessions. @default `databaseUrl` */
  eraserUrl?: string;
  /**
   * The same database without a pooler in between. Calls that wait listen on it for commits; a pooler in transaction mode passes no
   * notices on, and the calls then poll. @default `databaseUrl`
   */
  directUrl?: string;
  /** @default as above */
  temporal?: TemporalSettings;
  /** Tenant that owns the sessions. @default 'default' */
  tenant?: string;
  /** Prefix of the task queues the workers serve. @default 'compaction' */
  queuePrefix?: string;
  /** Maximum number of database connections of this client. @default 10 */
  poolSize?: number;
  /**
   * Share of the connections that one tenant may use over HTTP, so that other tenants always find the rest. More than 0, at most 1.
   * @default 0.5
   */
  tenantShare?: number;
  /** Time limits of connections, statements, locks and silent transactions. */
  database?: DatabaseTimeouts;
  /**
   * Policy layer below the layers of tenant and session: `readDeploymentPolicy()` for file and environment. It is written into sessions
   * that this client creates or configures. @default none for new sessions; an existing session keeps its policy
   */
  policy?: DeploymentPolicy;
  /** The operator's limits for tenants without limits of their own; the workers need the same. @default none */
  limits?: TenantLimits;
  /** Counters of policies with `tokenizer: 'custom:<name>'`, by name; the workers need the same counters. */
  counters?: Counters;
  /** Largest turn that `appendTurn` accepts. @default 10,000 messages, 32 MiB of JSON */
  turnLimits?: Partial<TurnLimits>;
  /** The workers' model for policies that name no summarizer; the cost estimates of backfills use it. */
  summarizer?: SummarizerFacts;
  /**
   * Endpoint that turns queries and texts into vectors, so that search also finds by meaning. @default search by words alone
   */
  embeddings?: EmbeddingSettings;
  /** Receives a warning for each turn that is stored but could not be signalled. A pino logger fits. @default no warnings */
  log?: Warnings;
}

/** The connections that all tenants of a client share: one pool, one client of Temporal. */
export interface Connections {
  pool: Pool;
  client: Client;
  /** One connection for health checks, which must not wait for calls of tenants. */
  probe: Pool;
  /** Hears the commits of all processes, while calls wait. */
  notices: Notices;
  /** Wakes the calls that wait for a session. */
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
    eraserUrl: z.string().optional(),
    directUrl: z.string().optional(),
    temporal: z.unknown().optional(),
    tenant: z.unknown().optional(),
    queuePrefix: z.string().min(1).optional(),
    poolSize: positive,
    tenantShare: z.number().gt(0).max(1).optional(),
    database: z
      .strictObject({
        ...{ connectionTimeoutMs: positive, statementTimeoutMs: positive, lockTimeoutMs: positive },
        ...{ idleTransactionTimeoutMs: positive, silenceTimeoutMs: positive },
      })
      .optional(),
    policy: z.looseObject({}).optional(),
    limits: tenantLimitsSchema.optional(),
    counters: z.looseObject({}).optional(),
    turnLimits: z.strictObject({ maxMessages: positive, maxBytes: positive }).optional(),
    summarizer: z.looseObject({}).optional(),
    embeddings: z.looseObject({}).optional(),
    log: z.looseObject({}).optional(),
  })
  .describe('Known options: databaseUrl, temporal, tenant and others; all are optional.');

const secretOptions = ['databaseUrl', 'eraserUrl', 'directUrl', 'embeddings'];

/** Adds the servers that the options leave out. Throws an `Input.Invalid` that names the option, or the variable to set. */
async function completed(given: PalimpsestOptions): Promise<PalimpsestOptions & ServersOf> {
  const { error } = optionsSchema.safeParse(given);
  if (error) throw complain(error, optionsSchema, given, isObject(given) ? '' : 'options', secretOptions);
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
 * Throws `Store.Unavailable` or `Temporal.Unavailable` within seconds if the server does not answer, and `Input.Invalid` for
 * invalid options.
 */
export async function openConnections(options: PalimpsestOptions): Promise<Connections> {
  const {
    databaseUrl,
    temporal,
    queuePrefix = defaultQueuePrefix,
    poolSize = 10,
    ...more
  } = await completed(options);
  const {
    eraserUrl,
    directUrl = databaseUrl,
    tenantShare,
    database,
    policy,
    counters,
    summarizer = {},
    log,
    turnLimits,
    embeddings,
    limits: tenantLimits,
  } = more;
  registerCounters(counters);
  const deployment = checkedDeployment(policy);
  const embedder = embeddings === undefined ? null : createEmbedder(embeddings);
  const pool = openPool(databaseUrl, {
    ...database,
    ...{ eraserUrl, tenantShare, max: poolSize, limits: tenantLimits },
  });
  checkDatabaseUrl(directUrl, 'PALIMPSEST_DIRECT_URL');
  const notices = new Notices({ url: directUrl, pool });
  const applicationName = 'palimpsest probe';
  const probe = openPool(databaseUrl, { max: 1, applicationName, statementTimeoutMs: probeTimeoutMs });
  try {
    await assertMigrated(pool);
    const client = await connectClient(temporal);
    const workflows = new SessionWorkflows(client, queuePrefix, log);
    const backfills = new BackfillWorkflows(client, queuePrefix);
    const limits = { ...defaultTurnLimits, ...turnLimits };
    const watch = new SessionWatch(pool, workflows, notices);
    const settings = { deployment, summarizer, turnLimits: limits, embedder };
    return { pool, probe, notices, watch, client, workflows, backfills, ...settings };
  } catch (error) {
    await Promise.all([pool.end(), probe.end()]);
    throw error;
  }
}

export async function closeConnections({ pool, probe, notices, workflows }: Connections): Promise<void> {
  await workflows.close();
  await notices.close();
  await probe.end();
  await pool.end();
}
