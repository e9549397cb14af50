/**
 * Every setting of a deployment: its place in the configuration file, its variable, its meaning and its default. README's
 * table is made of this schema.
 */
import { z } from 'zod';
import { defaultTurnLimits } from '../conversation/turn-limits.js';
import { flagOf, listOf, lowerCase, numberOf } from './values.js';

export const workerRoles = ['workflow', 'database', 'model', 'backfill'] as const;
/** What a worker process serves: orchestration, steps on PostgreSQL, model calls; both of the first for backfills. */
export type WorkerRole = (typeof workerRoles)[number];

/** Whether a process of these roles runs workflow code. */
export function orchestrates(roles: readonly WorkerRole[]): boolean {
  return roles.includes('workflow') || roles.includes('backfill');
}

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

/** What is said about a setting beside what its schema says. */
interface About {
  variable: string;
  description: string;
  /** The default in words, where there is none or its value says little. */
  otherwise?: string;
}

function setting<T extends z.ZodType>(
  schema: T,
  variable: string,
  description: string,
  otherwise?: string,
): T {
  return schema.meta({ variable, description, otherwise } satisfies About);
}

const whole = (least: number, most = Number.MAX_SAFE_INTEGER) =>
  z.preprocess(numberOf, z.number().int().min(least).max(most).optional());
const wholeOr = (least: number, otherwise: number, most = Number.MAX_SAFE_INTEGER) =>
  z.preprocess(numberOf, z.number().int().min(least).max(most).default(otherwise));
const flag = z.preprocess(flagOf, z.boolean().optional());
const word = z.string().trim().min(1).optional();

function hasScheme(...schemes: string[]): (url: string) => boolean {
  return (url) => URL.canParse(url) && schemes.includes(new URL(url).protocol);
}

// Refinements, not built-in checks, where a value may hold a password: their complaints do not repeat it.
const postgresUrl = z
  .string()
  .refine(hasScheme('postgres:', 'postgresql:'), {
    error: 'is not a PostgreSQL URL',
    params: {
      hint: 'e.g. postgres://user:password@host:5432/palimpsest; unset it for the embedded PostgreSQL.',
    },
  })
  .optional();

const httpUrl = z
  .string()
  .refine(hasScheme('http:', 'https:'), {
    error: 'is not an http(s) URL',
    params: { hint: 'e.g. https://api.openai.com/v1 or http://localhost:11434/v1' },
  })
  .optional();

const hostAndPort = (hint: string) =>
  z
    .string()
    .refine((address) => /^(?:[\w.-]+|\[[0-9a-f:]+\]):\d{1,5}$/i.test(address), {
      error: 'is not host:port',
      params: { hint },
    })
    .optional();

/** A tenant and the sha256 (hex) of a bearer token that speaks for it; the token itself is not kept. */
const tokenSchema = z.strictObject({
  tenant: z.string().min(1),
  sha256: z.string().refine((hex) => /^[0-9a-f]{64}$/.test(hex), {
    error: 'is not the sha256 of a token in hex',
    params: { hint: 'Write `token: …` for the token itself, or 64 hexadecimal digits of its sha256.' },
  }),
});

export const configSchema = z.strictObject({
  databaseUrl: setting(
    postgresUrl,
    'DATABASE_URL',
    'PostgreSQL (embedded and tested: 18)',
    'the embedded one of `npm start`',
  ),
  database: z.strictObject({
    statementTimeoutMs: setting(
      wholeOr(1_000, 60_000, 3_600_000),
      'PALIMPSEST_DATABASE_STATEMENT_TIMEOUT_MS',
      'longest time of one statement; 5 s later a connection that still says nothing is replaced. Raise it where sessions of many gigabytes are forked or erased',
    ),
    lockTimeoutMs: setting(
      wholeOr(10, 5_000, 3_600_000),
      'PALIMPSEST_DATABASE_LOCK_TIMEOUT_MS',
      'longest wait for a lock, then `Store.Busy`. Raise it where commits of very large sessions take longer',
    ),
    idleTransactionTimeoutMs: setting(
      wholeOr(100, 10_000, 3_600_000),
      'PALIMPSEST_DATABASE_IDLE_TRANSACTION_TIMEOUT_MS',
      'time after which the server ends a transaction whose process is silent (stopped, cut off), with its locks. Raise it where machines stall for longer',
    ),
  }),
  temporal: z.strictObject({
    address: setting(
      hostAndPort('e.g. localhost:7233, without a scheme; unset it for the embedded dev server.'),
      'TEMPORAL_ADDRESS',
      "Temporal's frontend as host:port",
      'the embedded dev server',
    ),
    namespace: setting(z.string().min(1).default('default'), 'TEMPORAL_NAMESPACE', 'its namespace'),
    apiKey: setting(word, 'TEMPORAL_API_KEY', 'key of Temporal Cloud'),
    tls: setting(flag, 'TEMPORAL_TLS', 'TLS on or off', 'on with a key'),
  }),
  queuePrefix: setting(
    z
      .string()
      .regex(/^[\w.-]{1,100}$/, 'must be letters, digits, `.`, `_` and `-`')
      .default('compaction'),
    'PALIMPSEST_QUEUE_PREFIX',
    'names the task queues; one prefix is one deployment, the same for workers, API and library',
  ),
  llm: z.strictObject({
    apiKey: setting(
      word,
      'OPENAI_API_KEY',
      "key of the summarizer's endpoint; without one the extractive summarizer serves",
    ),
    baseUrl: setting(httpUrl, 'OPENAI_BASE_URL', 'any OpenAI-compatible endpoint', 'OpenAI'),
    timeoutMs: setting(
      wholeOr(1_000, 150_000, 86_400_000),
      'PALIMPSEST_MODEL_TIMEOUT_MS',
      'longest time of one model call; a compaction waits no longer than `summary.deadline` all the same',
    ),
    requestsPerSecond: setting(
      z.preprocess(numberOf, z.number().positive().optional()),
      'PALIMPSEST_REQUESTS_PER_SECOND',
      'model calls begun per second, all workers together; the same value for every model worker',
      'unlimited',
    ),
    tokensPerMinute: setting(
      whole(1),
      'PALIMPSEST_TOKENS_PER_MINUTE',
      'tokens (prompt and answer) per minute, all workers together; backfill leaves 30 % of them to live sessions',
      'unlimited',
    ),
  }),
  embeddings: z.strictObject({
    model: setting(
      word,
      'PALIMPSEST_EMBEDDING_MODEL',
      'makes vectors of texts, so that searches find by meaning, too; the same for workers, API and library',
      'off',
    ),
    baseUrl: setting(
      httpUrl,
      'PALIMPSEST_EMBEDDING_BASE_URL',
      'OpenAI-compatible endpoint of it',
      '`llm.baseUrl`',
    ),
    apiKey: setting(word, 'PALIMPSEST_EMBEDDING_API_KEY', 'its key', '`llm.apiKey`'),
    dimensions: setting(
      whole(1, 16_000),
      'PALIMPSEST_EMBEDDING_DIMENSIONS',
      'of a vector, where the model lets them be chosen; a byte each',
      "the model's",
    ),
    scan: setting(
      wholeOr(1, 20_000, 10_000_000),
      'PALIMPSEST_EMBEDDING_SCAN',
      'vectors of a session that a search compares, newest first, where PostgreSQL has no pgvector',
    ),
  }),
  summary: z.strictObject({
    model: setting(
      word,
      'PALIMPSEST_SUMMARY_MODEL',
      'summarizer of policies that name none',
      "the agent's model",
    ),
    contextWindow: setting(whole(1), 'PALIMPSEST_SUMMARY_WINDOW', 'tokens of its window', 'by model'),
  }),
  policyFile: setting(
    word,
    'PALIMPSEST_POLICY_FILE',
    'JSON file with a policy, below what tenants and sessions say',
  ),
  policy: setting(
    z.record(z.string(), z.unknown()).optional(),
    'PALIMPSEST_POLICY',
    'a policy (in the variable: as JSON), below that file',
  ),
  inlineTurnTenants: setting(
    z.preprocess(listOf, z.array(z.string().min(1)).default([])),
    'PALIMPSEST_INLINE_TENANTS',
    'tenants whose `turn` signals may carry messages; `*` all',
  ),
  turns: z.strictObject({
    maxMessages: setting(
      wholeOr(1, defaultTurnLimits.maxMessages, 1_000_000),
      'PALIMPSEST_TURN_MAX_MESSAGES',
      'messages of one turn at most; a longer one is sent in parts',
    ),
    maxBytes: setting(
      wholeOr(1_024, defaultTurnLimits.maxBytes),
      'PALIMPSEST_TURN_MAX_BYTES',
      "the same in bytes of its messages' JSON; over HTTP `api.bodyLimitBytes` counts too",
    ),
  }),
  worker: z.strictObject({
    roles: setting(
      z.preprocess(
        listOf,
        z
          .array(z.enum(workerRoles))
          .min(1)
          .default([...workerRoles]),
      ),
      'PALIMPSEST_WORKER_ROLES',
      'queues a worker process serves',
    ),
    databaseSteps: setting(
      wholeOr(1, 8, 1_000),
      'PALIMPSEST_WORKER_DATABASE_STEPS',
      'steps on PostgreSQL at once in a process; its pool has as many connections and 4 more',
    ),
    backfillSteps: setting(
      wholeOr(1, 1, 1_000),
      'PALIMPSEST_WORKER_BACKFILL_STEPS',
      'the same for backfills, beside those: few, so that live sessions need not wait; more in a process for backfills alone',
    ),
    backfillShare: setting(
      z.preprocess(numberOf, z.number().gt(0).max(1).default(0.25)),
      'PALIMPSEST_WORKER_BACKFILL_SHARE',
      'of the time of those steps, what backfills take while live sessions are at work in the process; 1: all of it',
    ),
    modelCalls: setting(
      wholeOr(1, 32, 10_000),
      'PALIMPSEST_WORKER_MODEL_CALLS',
      'model calls in flight in a process',
    ),
    cachedWorkflows: setting(
      wholeOr(0, 1_000, 1_000_000),
      'PALIMPSEST_WORKER_CACHED_WORKFLOWS',
      'sessions a process keeps in memory; one that is not there is replayed from its history',
    ),
    sweepIntervalMs: setting(
      wholeOr(1_000, 180_000, 86_400_000),
      'PALIMPSEST_WORKER_SWEEP_INTERVAL_MS',
      'how often sessions are looked for that wait and that no workflow knows of; the same value for every worker',
    ),
    graceMs: setting(
      wholeOr(0, 60_000, 3_600_000),
      'PALIMPSEST_WORKER_GRACE_MS',
      'time in which running steps may finish after SIGTERM',
    ),
  }),
  api: z.strictObject({
    host: setting(
      z.string().min(1).default('127.0.0.1'),
      'PALIMPSEST_API_HOST',
      'address the HTTP API listens on; anything but loopback needs tokens',
    ),
    port: setting(wholeOr(0, 7280, 65_535), 'PALIMPSEST_API_PORT', 'its port; 0: a free one', '7280'),
    tokens: setting(
      z.array(tokenSchema).default([]),
      'PALIMPSEST_API_TOKENS',
      'bearer tokens, `tenant:token` separated by commas; in the file also `{tenant, sha256}`',
    ),
    bodyLimitBytes: setting(
      wholeOr(1_024, 32 * 1024 * 1024),
      'PALIMPSEST_API_BODY_LIMIT_BYTES',
      'largest request body',
    ),
    requestTimeoutMs: setting(
      wholeOr(100, 30_000),
      'PALIMPSEST_API_REQUEST_TIMEOUT_MS',
      'time in which a request must have arrived whole',
    ),
    headersTimeoutMs: setting(
      wholeOr(100, 10_000),
      'PALIMPSEST_API_HEADERS_TIMEOUT_MS',
      'time in which its headers must have arrived',
    ),
    minBodyBytesPerSecond: setting(
      wholeOr(0, 1_000),
      'PALIMPSEST_API_MIN_BODY_BYTES_PER_SECOND',
      'a body that is slower for five seconds is given up (408); 0: none is',
    ),
    maxInFlight: setting(
      wholeOr(1, 1_000),
      'PALIMPSEST_API_MAX_IN_FLIGHT',
      'requests in work at once, waiting ones included; more are refused (503). Raise it with memory',
    ),
    tenantRequests: setting(
      wholeOr(1, 250),
      'PALIMPSEST_API_TENANT_REQUESTS',
      'the same of one tenant; more are refused (429, `requests`). Raise it to `maxInFlight` where there is one tenant',
    ),
    maxBodyBytes: setting(
      wholeOr(1_024, 256 * 1024 * 1024),
      'PALIMPSEST_API_MAX_BODY_BYTES',
      'bytes of all bodies in work; more are refused (503). A body takes several times its size in memory',
    ),
    tenantBodyBytes: setting(
      wholeOr(1_024, 96 * 1024 * 1024),
      'PALIMPSEST_API_TENANT_BODY_BYTES',
      'the same of one tenant (429, `bodyBytes`). Raise it for imports of large turns, many at once',
    ),
    tenantWaits: setting(
      wholeOr(1, 100),
      'PALIMPSEST_API_TENANT_WAITS',
      'requests of one tenant that wait for compactions (`wait`, `settled`, `compact`); more are refused (429, `waits`). Raise it where more agents wait at once',
    ),
    tenantConnections: setting(
      wholeOr(1, 500),
      'PALIMPSEST_API_TENANT_CONNECTIONS',
      'connections of one tenant, idle ones included; more are refused (429, `connections`). Raise it behind a proxy that keeps more',
    ),
    unknownConnections: setting(
      wholeOr(4, 1_000),
      'PALIMPSEST_API_UNKNOWN_CONNECTIONS',
      'connections that have shown no token yet, a quarter of them from one address; beyond it the oldest is closed. Raise it where many connect at the same moment',
    ),
    databaseConnections: setting(
      wholeOr(2, 20, 1_000),
      'PALIMPSEST_API_DATABASE_CONNECTIONS',
      'connections of an API process to PostgreSQL, besides one for `/readyz`. Raise it with cores of the database',
    ),
    tenantDatabaseShare: setting(
      z.preprocess(numberOf, z.number().gt(0).max(1).default(0.5)),
      'PALIMPSEST_API_TENANT_DATABASE_SHARE',
      'of these, the share that one tenant may hold, a fifth of it for searches, replays and the like (429, `databaseConnections`). Lower it where tenants are many',
    ),
    shutdownGraceMs: setting(
      wholeOr(0, 10_000),
      'PALIMPSEST_API_SHUTDOWN_GRACE_MS',
      'time in which requests in work may finish after SIGTERM',
    ),
  }),
  metrics: z.strictObject({
    address: setting(
      hostAndPort('e.g. 127.0.0.1:9464, or 0.0.0.0:9464 inside a container.'),
      'PALIMPSEST_METRICS_ADDRESS',
      'where a worker serves `/metrics`, `/healthz` and `/readyz`, as host:port',
      'off',
    ),
  }),
  dataDir: setting(word, 'PALIMPSEST_DATA', 'data of the embedded servers', '`./.palimpsest`'),
  cacheDir: setting(
    word,
    'PALIMPSEST_CACHE',
    'downloaded or built programs, shared by all projects of a user',
    '`~/.cache/palimpsest`',
  ),
  logLevel: setting(
    z.preprocess(lowerCase, z.enum(logLevels).default('info')),
    'LOG_LEVEL',
    'trace, debug, info, warn, error, fatal, silent',
  ),
  logFormat: setting(
    z.preprocess(lowerCase, z.enum(['json', 'text']).default('json')),
    'LOG_FORMAT',
    'logs of worker and API: `json`, one object a line, or `text`',
  ),
});

export interface Setting extends About {
  /** Place in the file: `['worker', 'modelCalls']`. */
  path: string[];
  schema: z.ZodType;
}

/** All settings in the order of the table. */
export function settings(schema: z.ZodObject = configSchema, path: string[] = []): Setting[] {
  return Object.entries(schema.shape).flatMap(([name, field]): Setting[] => {
    const here = [...path, name];
    if (field instanceof z.ZodObject) return settings(field, here);
    return [{ path: here, schema: field as z.ZodType, ...((field as z.ZodType).meta() as unknown as About) }];
  });
}
