/**
 * Every setting of a deployment: its place in the configuration file, its variable, its meaning and its default. The
 * table of docs/configuration.md is generated from this schema.
 */
import { z } from 'zod';
import { payloadKeysSchema } from './payload-keys.js';
import { defaultTurnLimits } from '../conversation/turn-limits.js';
import { leastTokenBits } from './token-strength.js';
import { tenantLimitsSchema } from '../policy/tenant-limits.js';
import { flagOf, jsonOf, listOf, lowerCase, numberOf, pairsOf, weakToken } from './values.js';

export const workerRoles = ['workflow', 'database', 'model', 'backfill'] as const;
/**
 * The queues of a worker process: orchestration, steps on PostgreSQL, model calls; `backfill` has separate queues of the first
 * two kinds, for backfills.
 */
export type WorkerRole = (typeof workerRoles)[number];

/** Whether a process with these roles runs workflow code. */
export function orchestrates(roles: readonly WorkerRole[]): boolean {
  return roles.includes('workflow') || roles.includes('backfill');
}

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

/** Documentation of a setting in addition to its schema. */
interface About {
  variable: string;
  description: string;
  /** The default in words, if the schema has none or its value needs an explanation. */
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

// A value that may contain a password is checked by a refinement, whose error does not repeat the value, instead of a built-in
// check.
const postgresUrl = z
  .string()
  .refine(hasScheme('postgres:', 'postgresql:'), {
    error: 'is not a PostgreSQL URL',
    params: {
      hint: 'Write e.g. postgres://user:password@host:5432/palimpsest, or unset it for the embedded PostgreSQL.',
    },
  })
  .optional();

const httpUrl = z
  .string()
  .refine(hasScheme('http:', 'https:'), {
    error: 'is not an http(s) URL',
    params: { hint: 'Write e.g. https://api.openai.com/v1 or http://localhost:11434/v1.' },
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

const rolePassword = (role: string) =>
  setting(
    word,
    `PALIMPSEST_${role.toUpperCase()}_PASSWORD`,
    `password that \`palimpsest migrate --roles\` gives to the role \`palimpsest_${role}\``,
    'a new role cannot log in',
  );

/** A tenant and the sha256 (hex) of a bearer token for it; the token itself is not kept. */
const tokenSchema = z.strictObject({
  tenant: z.string().min(1),
  sha256: z.string().refine((hex) => hex === weakToken || /^[0-9a-f]{64}$/.test(hex), {
    error: 'is not the sha256 of a token in hex',
    params: { hint: 'Write `token: …` for the token itself, or 64 hexadecimal digits of its sha256.' },
  }),
});

const tokensSchema = z.array(tokenSchema).superRefine((tokens, context) => {
  for (const [index, { sha256 }] of tokens.entries()) {
    const refuse = (message: string, hint: string) =>
      context.addIssue({ code: 'custom', path: [index], message, params: { hint } });
    if (sha256 === weakToken)
      refuse(
        `is too easy to guess: a token needs ${leastTokenBits} bits, estimated by its length and characters`,
        'Make one with `openssl rand -hex 32`, or keep tokens in the database: `palimpsest token create`.',
      );
    else if (tokens.findIndex((other) => other.sha256 === sha256) < index)
      refuse('has the token of an earlier entry', 'Give each entry a token of its own.');
  }
});

/** A limit as written in a variable or a file. */
const limitSetting = (name: string, field: z.ZodType) => {
  const variable = `PALIMPSEST_LIMIT_${name.replaceAll(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`;
  const convert = name === 'models' ? listOf : name === 'prices' ? jsonOf : numberOf;
  return setting(z.preprocess(convert, field), variable, field.description ?? '', 'none');
};

const limitsSchema = z.strictObject(
  Object.fromEntries(
    Object.entries(tenantLimitsSchema.shape).map(([name, field]) => [name, limitSetting(name, field)]),
  ),
) as unknown as typeof tenantLimitsSchema;

const loopbackHost = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

const jwksUrl = z
  .string()
  .refine(
    (url) =>
      hasScheme('https:')(url) || (hasScheme('http:')(url) && loopbackHost.test(new URL(url).hostname)),
    {
      error: 'is not an https URL',
      params: {
        hint: 'Write e.g. https://login.example/.well-known/jwks.json; http is for this machine only.',
      },
    },
  )
  .optional();

/** An address without `/v1`, which the path of a request has. */
const upstreamUrl = z.string().refine(
  (text) => {
    if (!hasScheme('http:', 'https:')(text)) return false;
    const { username, password, search, hash, pathname } = new URL(text);
    return [username, password, search, hash].every((part) => part === '') && !/\/v1\/?$/.test(pathname);
  },
  {
    error: 'is not the base URL of a provider',
    params: { hint: 'Write e.g. https://api.openai.com: without /v1, which the path of a request has.' },
  },
);

/** Keys by name. Null stands for a value of another form. */
const keysBy = (name: string, key: z.ZodString) =>
  z
    .record(z.string().min(1), key)
    .nullable()
    .transform((keys, context) => {
      if (keys !== null) return keys;
      context.addIssue({
        ...{ code: 'custom', message: `must have the form ${name}:key,…` },
        params: { hint: 'The file may have an object instead.' },
      });
      return z.NEVER;
    });

const upstreamsSchema = z.record(z.string(), upstreamUrl).superRefine((upstreams, context) => {
  for (const name of Object.keys(upstreams))
    if (!/^(?!v\d)[a-z][a-z0-9-]{0,40}$/.test(name))
      context.addIssue({
        ...{ code: 'custom', path: [name], message: 'is not the name of an upstream' },
        params: { hint: 'Use lower-case letters, digits and `-`, and no version such as v1.' },
      });
});

export const configSchema = z.strictObject({
  databaseUrl: setting(
    postgresUrl,
    'DATABASE_URL',
    'URL of PostgreSQL (version 18 is embedded and tested)',
    'the PostgreSQL that `npm start` starts',
  ),
  maintenanceUrl: setting(
    postgresUrl,
    'PALIMPSEST_MAINTENANCE_URL',
    'URL of the same database with the role `palimpsest_maintenance`, which finds the sessions and jobs of all tenants that need work',
    'the role of `databaseUrl`',
  ),
  eraserUrl: setting(
    postgresUrl,
    'PALIMPSEST_ERASER_URL',
    'URL of the same database with the role `palimpsest_eraser`, which alone may delete messages',
    'the role of `databaseUrl`',
  ),
  directUrl: setting(
    postgresUrl,
    'PALIMPSEST_DIRECT_URL',
    'URL of the same database without a pooler in between: calls that wait for a compaction listen on it for the commit. Behind a pooler in transaction mode they poll instead',
    '`databaseUrl`',
  ),
  rolePasswords: z.strictObject({
    migrator: rolePassword('migrator'),
    app: rolePassword('app'),
    maintenance: rolePassword('maintenance'),
    eraser: rolePassword('eraser'),
  }),
  database: z.strictObject({
    statementTimeoutMs: setting(
      wholeOr(1_000, 60_000, 3_600_000),
      'PALIMPSEST_DATABASE_STATEMENT_TIMEOUT_MS',
      'maximum time of one statement. If a connection does not answer within another 5 s, it is replaced. Raise the time if sessions of many gigabytes are forked or erased',
    ),
    lockTimeoutMs: setting(
      wholeOr(10, 5_000, 3_600_000),
      'PALIMPSEST_DATABASE_LOCK_TIMEOUT_MS',
      'maximum wait for a lock; after it the statement fails with `Store.Busy`. Raise it if commits of very large sessions take longer',
    ),
    idleTransactionTimeoutMs: setting(
      wholeOr(100, 10_000, 3_600_000),
      'PALIMPSEST_DATABASE_IDLE_TRANSACTION_TIMEOUT_MS',
      'time after which the database server ends an idle transaction, for example of a stopped or disconnected process, and releases its locks. Raise it if machines stall for longer',
    ),
  }),
  temporal: z.strictObject({
    address: setting(
      hostAndPort('Write e.g. localhost:7233, without a scheme, or unset it for the embedded dev server.'),
      'TEMPORAL_ADDRESS',
      "address of Temporal's frontend as host:port",
      'the embedded dev server',
    ),
    namespace: setting(z.string().min(1).default('default'), 'TEMPORAL_NAMESPACE', 'Temporal namespace'),
    apiKey: setting(word, 'TEMPORAL_API_KEY', 'API key of Temporal Cloud'),
    tls: setting(
      flag,
      'TEMPORAL_TLS',
      'whether connections to Temporal use TLS',
      'on if an API key or one of the next four settings is set',
    ),
    caFile: setting(
      word,
      'TEMPORAL_TLS_SERVER_CA_CERT_PATH',
      "file (PEM) of the certificate authority of Temporal's frontend",
      "the system's authorities",
    ),
    certFile: setting(
      word,
      'TEMPORAL_TLS_CLIENT_CERT_PATH',
      'file (PEM) of the client certificate, if the frontend demands one (mTLS)',
    ),
    keyFile: setting(word, 'TEMPORAL_TLS_CLIENT_KEY_PATH', 'file (PEM) of the key of the client certificate'),
    serverName: setting(
      word,
      'TEMPORAL_TLS_SERVER_NAME',
      "name in the frontend's certificate",
      'the host of the address',
    ),
    payloadKeys: setting(
      payloadKeysSchema.optional(),
      'PALIMPSEST_PAYLOAD_KEYS',
      "keys that encrypt all payloads in Temporal's store (AES-256-GCM): `id:key,…` with 32 bytes in base64, in the file a list. The first key encrypts, all of them decrypt. Set the same value for workers, API and library",
      'payloads are in plain text',
    ),
  }),
  queuePrefix: setting(
    z
      .string()
      .regex(/^[\w.-]{1,100}$/, 'must be letters, digits, `.`, `_` and `-`')
      .default('compaction'),
    'PALIMPSEST_QUEUE_PREFIX',
    'prefix of the task queues. It identifies the deployment and must be the same for workers, API and library',
  ),
  llm: z.strictObject({
    apiKey: setting(
      word,
      'OPENAI_API_KEY',
      "API key of the summarizer's endpoint; without one the extractive summarizer is used",
    ),
    baseUrl: setting(httpUrl, 'OPENAI_BASE_URL', 'URL of an OpenAI-compatible endpoint', 'OpenAI'),
    timeoutMs: setting(
      wholeOr(1_000, 150_000, 86_400_000),
      'PALIMPSEST_MODEL_TIMEOUT_MS',
      'maximum time of one model call; a compaction never waits longer than `summary.deadline`',
    ),
    requestsPerSecond: setting(
      z.preprocess(numberOf, z.number().positive().optional()),
      'PALIMPSEST_REQUESTS_PER_SECOND',
      'maximum number of model calls that all workers together start per second; set the same value for every model worker',
      'unlimited',
    ),
    tokensPerMinute: setting(
      whole(1),
      'PALIMPSEST_TOKENS_PER_MINUTE',
      'maximum number of tokens (prompt and answer) per minute for all workers together; backfills leave 30 % of this number to live sessions',
      'unlimited',
    ),
  }),
  embeddings: z.strictObject({
    model: setting(
      word,
      'PALIMPSEST_EMBEDDING_MODEL',
      'embedding model; with it, searches also match by meaning. Set the same value for workers, API and library',
      'off',
    ),
    baseUrl: setting(
      httpUrl,
      'PALIMPSEST_EMBEDDING_BASE_URL',
      "URL of the embedding model's OpenAI-compatible endpoint",
      '`llm.baseUrl`',
    ),
    apiKey: setting(
      word,
      'PALIMPSEST_EMBEDDING_API_KEY',
      "API key of the embedding model's endpoint",
      '`llm.apiKey`',
    ),
    dimensions: setting(
      whole(1, 16_000),
      'PALIMPSEST_EMBEDDING_DIMENSIONS',
      'number of dimensions of a vector, if the model lets you choose it; each dimension takes one byte',
      "the model's",
    ),
    scan: setting(
      wholeOr(1, 20_000, 10_000_000),
      'PALIMPSEST_EMBEDDING_SCAN',
      "without pgvector: maximum number of a session's vectors that a search compares, newest first",
    ),
  }),
  summary: z.strictObject({
    model: setting(
      word,
      'PALIMPSEST_SUMMARY_MODEL',
      'summarizer model for policies that name none',
      "the agent's model",
    ),
    contextWindow: setting(
      whole(1),
      'PALIMPSEST_SUMMARY_WINDOW',
      'window in tokens of the model that `summary.model` names',
      'by model',
    ),
  }),
  policyFile: setting(
    word,
    'PALIMPSEST_POLICY_FILE',
    'JSON file with a policy; the policies of tenants and sessions override it',
  ),
  policy: setting(
    z.record(z.string(), z.unknown()).optional(),
    'PALIMPSEST_POLICY',
    'policy, in the variable as JSON; the policy of `policyFile` overrides it',
  ),
  limits: limitsSchema,
  inlineTurnTenants: setting(
    z.preprocess(listOf, z.array(z.string().min(1)).default([])),
    'PALIMPSEST_INLINE_TENANTS',
    'tenants whose `turn` signals may carry messages without a signature; `*` for all. A tenant with a key must sign',
  ),
  inlineTurnKeys: setting(
    keysBy('tenant', z.string().min(16)).default({}),
    'PALIMPSEST_INLINE_TURN_KEYS',
    'keys of tenants whose `turn` signals may carry signed messages; in the variable `tenant:key,…`, in the file an object',
  ),
  turns: z.strictObject({
    maxMessages: setting(
      wholeOr(1, defaultTurnLimits.maxMessages, 1_000_000),
      'PALIMPSEST_TURN_MAX_MESSAGES',
      'maximum number of messages in one turn; send longer turns in parts',
    ),
    maxBytes: setting(
      wholeOr(1_024, defaultTurnLimits.maxBytes),
      'PALIMPSEST_TURN_MAX_BYTES',
      'maximum size of one turn, in bytes of the JSON of its messages; over HTTP `api.bodyLimitBytes` applies too',
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
      'roles of a worker process; they decide which task queues the process serves',
    ),
    databaseSteps: setting(
      wholeOr(1, 8, 1_000),
      'PALIMPSEST_WORKER_DATABASE_STEPS',
      'number of concurrent steps on PostgreSQL in a process; the connection pool of the process has 4 more connections',
    ),
    backfillSteps: setting(
      wholeOr(1, 1, 1_000),
      'PALIMPSEST_WORKER_BACKFILL_STEPS',
      'number of concurrent steps of backfills on PostgreSQL in a process, in addition to `worker.databaseSteps`. A low number keeps live sessions from waiting; raise it in a process that serves backfills only',
    ),
    backfillShare: setting(
      z.preprocess(numberOf, z.number().gt(0).max(1).default(0.25)),
      'PALIMPSEST_WORKER_BACKFILL_SHARE',
      'share of the time for which steps of backfills run while the process also serves live sessions; in the remaining time backfills pause. 1: no pauses',
    ),
    modelCalls: setting(
      wholeOr(1, 32, 10_000),
      'PALIMPSEST_WORKER_MODEL_CALLS',
      'number of concurrent model calls in a process',
    ),
    cachedWorkflows: setting(
      wholeOr(0, 250, 1_000_000),
      'PALIMPSEST_WORKER_CACHED_WORKFLOWS',
      'number of session workflows that a process keeps in memory; others are replayed from their history',
    ),
    sweepIntervalMs: setting(
      wholeOr(1_000, 180_000, 86_400_000),
      'PALIMPSEST_WORKER_SWEEP_INTERVAL_MS',
      'interval between sweeps; set the same value for every worker',
    ),
    graceMs: setting(
      wholeOr(0, 60_000, 3_600_000),
      'PALIMPSEST_WORKER_GRACE_MS',
      'time for running steps to finish after SIGTERM',
    ),
  }),
  api: z.strictObject({
    host: setting(
      z.string().min(1).default('127.0.0.1'),
      'PALIMPSEST_API_HOST',
      'address on which the HTTP API listens; on any address but loopback every request needs a token',
    ),
    port: setting(
      wholeOr(0, 7280, 65_535),
      'PALIMPSEST_API_PORT',
      'port of the HTTP API; 0 for a free one',
      '7280',
    ),
    tokens: setting(
      tokensSchema.default([]),
      'PALIMPSEST_API_TOKENS',
      'bearer tokens with all scopes, as `tenant:token`, separated by commas; in the file also as `{tenant, sha256}`. A caller sends the part after the colon. A token with less than 128 bits by the [estimate of the API](http-api.md#tokens-and-scopes) is refused; `openssl rand -hex 32` makes a strong one. Tokens of the [database](http-api.md#tokens-and-scopes) have scopes and can be revoked',
    ),
    requireToken: setting(
      flag,
      'PALIMPSEST_API_REQUIRE_TOKEN',
      'whether every request under `/v1` needs a token. If not, a caller on this machine without a token is the tenant `default` and may do everything',
      'off on a loopback address if neither `api.tokens` nor `identity.issuer` is set; otherwise on',
    ),
    bodyLimitBytes: setting(
      wholeOr(1_024, 32 * 1024 * 1024),
      'PALIMPSEST_API_BODY_LIMIT_BYTES',
      'maximum size of the body of a turn; a body with a policy, pins or a list of messages has at most 1 MiB, any other body 64 KiB, or this size if it is smaller',
    ),
    requestTimeoutMs: setting(
      wholeOr(100, 30_000),
      'PALIMPSEST_API_REQUEST_TIMEOUT_MS',
      'time within which a request must arrive completely',
    ),
    headersTimeoutMs: setting(
      wholeOr(100, 10_000),
      'PALIMPSEST_API_HEADERS_TIMEOUT_MS',
      'time within which the headers of a request must arrive',
    ),
    minBodyBytesPerSecond: setting(
      wholeOr(0, 1_000),
      'PALIMPSEST_API_MIN_BODY_BYTES_PER_SECOND',
      'minimum rate at which a request body must arrive; a request that stays below it for five seconds fails (408). 0 turns the check off',
    ),
    maxInFlight: setting(
      wholeOr(1, 1_000),
      'PALIMPSEST_API_MAX_IN_FLIGHT',
      'maximum number of concurrent requests, including waiting ones; further requests are refused (503). Raise it if the process has more memory',
    ),
    tenantRequests: setting(
      wholeOr(1, 250),
      'PALIMPSEST_API_TENANT_REQUESTS',
      'maximum number of concurrent requests of one tenant; further ones are refused (429, `requests`). Raise it to `api.maxInFlight` if there is only one tenant',
    ),
    maxBodyBytes: setting(
      wholeOr(1_024, 256 * 1024 * 1024),
      'PALIMPSEST_API_MAX_BODY_BYTES',
      'maximum total size of the bodies of concurrent requests; further requests are refused (503). In memory, a body takes several times this size',
    ),
    tenantBodyBytes: setting(
      wholeOr(1_024, 96 * 1024 * 1024),
      'PALIMPSEST_API_TENANT_BODY_BYTES',
      'maximum total size of the bodies of concurrent requests of one tenant; further ones are refused (429, `bodyBytes`). Raise it for concurrent imports of large turns',
    ),
    tenantWaits: setting(
      wholeOr(1, 100),
      'PALIMPSEST_API_TENANT_WAITS',
      'maximum number of requests of one tenant that wait for compactions (`wait`, `settled`, `compact`); further ones are refused (429, `waits`). Raise it if more agents wait at once',
    ),
    tenantConnections: setting(
      wholeOr(1, 500),
      'PALIMPSEST_API_TENANT_CONNECTIONS',
      'maximum number of connections of one tenant, including idle ones; further ones are refused (429, `connections`). Raise it if a proxy in front of the API keeps more connections',
    ),
    unknownConnections: setting(
      wholeOr(4, 1_000),
      'PALIMPSEST_API_UNKNOWN_CONNECTIONS',
      'maximum number of connections that have not yet sent a token; one address may have a quarter of this number. An address that exceeds the quarter loses its oldest such connection; if the maximum is exceeded, the address with the most such connections loses its oldest one. Raise it if many clients connect at once',
    ),
    databaseConnections: setting(
      wholeOr(2, 20, 1_000),
      'PALIMPSEST_API_DATABASE_CONNECTIONS',
      'maximum number of connections of an API process to PostgreSQL, in addition to one for `/readyz`. Raise it if the database has more cores',
    ),
    tenantDatabaseShare: setting(
      z.preprocess(numberOf, z.number().gt(0).max(1).default(0.5)),
      'PALIMPSEST_API_TENANT_DATABASE_SHARE',
      'share of `api.databaseConnections` that one tenant may use at a time; searches, replays and similar requests may use a fifth of this share. A request that gets no connection in time is refused (429, `databaseConnections`). Lower it if there are many tenants',
    ),
    shutdownGraceMs: setting(
      wholeOr(0, 10_000),
      'PALIMPSEST_API_SHUTDOWN_GRACE_MS',
      'time for running requests to finish after SIGTERM',
    ),
  }),
  gateway: z.strictObject({
    host: setting(
      z.string().min(1).default('127.0.0.1'),
      'PALIMPSEST_GATEWAY_HOST',
      'address on which the gateway listens; on any address but loopback every request with a session needs a token',
    ),
    port: setting(
      wholeOr(0, 7281, 65_535),
      'PALIMPSEST_GATEWAY_PORT',
      'port of the gateway; 0 for a free one',
      '7281',
    ),
    upstreams: setting(
      z.preprocess(
        (value, context) =>
          pairsOf(value, (name) =>
            context.addIssue({ code: 'custom', path: [name], message: 'has several addresses' }),
          ),
        upstreamsSchema.default({}),
      ),
      'PALIMPSEST_GATEWAY_UPSTREAMS',
      'the providers that the gateway may reach, by name: `openai=https://api.openai.com,…`, in the file an object. `/openai/v1/…` leads to the one of that name, `/v1/…` to the first one',
      'none; `palimpsest gateway` needs one',
    ),
    keys: setting(
      keysBy('upstream', z.string().min(1)).default({}),
      'PALIMPSEST_GATEWAY_KEYS',
      'keys of providers, by the name of the upstream: `openai:key,…`, in the file an object. The key replaces that of the client. Every request to such an upstream needs access to Palimpsest, as one with a session does',
      "the client's key passes through",
    ),
    sessionField: setting(
      word,
      'PALIMPSEST_GATEWAY_SESSION_FIELD',
      'field of the request body that names the session if there is no header `x-palimpsest-session`, such as `metadata.session`',
    ),
    onFailure: setting(
      z.preprocess(lowerCase, z.enum(['pass', 'refuse']).default('pass')),
      'PALIMPSEST_GATEWAY_ON_FAILURE',
      'what happens to a request whose session cannot be used, for instance because the database is away: `pass` sends it to the provider as it came, `refuse` answers with the failure',
    ),
    bodyLimitBytes: setting(
      wholeOr(1_024, 32 * 1024 * 1024),
      'PALIMPSEST_GATEWAY_BODY_LIMIT_BYTES',
      'maximum size of the body of a request with a session, and of an answer that is stored',
    ),
    maxBodyBytes: setting(
      wholeOr(1_024, 256 * 1024 * 1024),
      'PALIMPSEST_GATEWAY_MAX_BODY_BYTES',
      'maximum total size of the bodies of concurrent requests with a session; further ones are refused (503)',
    ),
    maxInFlight: setting(
      wholeOr(1, 1_000),
      'PALIMPSEST_GATEWAY_MAX_IN_FLIGHT',
      'maximum number of concurrent requests; further ones are refused (503)',
    ),
    upstreamTimeoutMs: setting(
      wholeOr(100, 600_000, 86_400_000),
      'PALIMPSEST_GATEWAY_UPSTREAM_TIMEOUT_MS',
      'time without a byte from the provider after which a request ends (504 before the answer has begun)',
    ),
    storeTimeoutMs: setting(
      wholeOr(10, 10_000, 3_600_000),
      'PALIMPSEST_GATEWAY_STORE_TIMEOUT_MS',
      'maximum time that a request waits for its session; then `gateway.onFailure` applies',
    ),
    answerAfterMs: setting(
      wholeOr(0, 60_000, 86_400_000),
      'PALIMPSEST_GATEWAY_ANSWER_AFTER_MS',
      'time after which an answer is stored that no further request of its session has',
    ),
    shutdownGraceMs: setting(
      wholeOr(0, 10_000),
      'PALIMPSEST_GATEWAY_SHUTDOWN_GRACE_MS',
      'time for running requests to finish after SIGTERM',
    ),
  }),
  identity: z
    .strictObject({
      issuer: setting(
        word,
        'PALIMPSEST_IDENTITY_ISSUER',
        'issuer (`iss`) of the identity provider whose JWTs the HTTP API accepts; set it together with `identity.audience` and `identity.jwksUrl`',
        'no JWTs',
      ),
      audience: setting(
        word,
        'PALIMPSEST_IDENTITY_AUDIENCE',
        'audience (`aud`) that the provider puts into tokens for this API',
      ),
      jwksUrl: setting(jwksUrl, 'PALIMPSEST_IDENTITY_JWKS_URL', "URL of the provider's public keys (JWKS)"),
      tenantClaim: setting(
        z.string().trim().min(1).default('tenant'),
        'PALIMPSEST_IDENTITY_TENANT_CLAIM',
        'claim with the tenant',
      ),
      scopesClaim: setting(
        z.string().trim().min(1).default('scope'),
        'PALIMPSEST_IDENTITY_SCOPES_CLAIM',
        'claim with the scopes: a list, or a text with spaces between them. Scopes that Palimpsest does not know are ignored',
      ),
      clockToleranceMs: setting(
        wholeOr(0, 30_000, 600_000),
        'PALIMPSEST_IDENTITY_CLOCK_TOLERANCE_MS',
        "tolerated difference between the provider's clock and the clock of the API",
      ),
    })
    .superRefine((given, context) => {
      const needed = ['issuer', 'audience', 'jwksUrl'] as const;
      const missing = needed.filter((name) => given[name] === undefined);
      if (missing.length === needed.length) return;
      for (const name of missing)
        context.addIssue({
          code: 'custom',
          path: [name],
          message: 'is missing',
          params: { hint: 'Set issuer, audience and jwksUrl of `identity` together, or none of them.' },
        });
    }),
  mcp: z.strictObject({
    session: setting(
      word,
      'PALIMPSEST_MCP_SESSION',
      'session that the tools of `palimpsest mcp` read',
      'each call names its session',
    ),
  }),
  metrics: z.strictObject({
    address: setting(
      hostAndPort('Write e.g. 127.0.0.1:9464, or 0.0.0.0:9464 inside a container.'),
      'PALIMPSEST_METRICS_ADDRESS',
      'address on which a worker or a gateway serves `/metrics`, `/healthz` and `/readyz`, as host:port',
      'off',
    ),
  }),
  dataDir: setting(
    word,
    'PALIMPSEST_DATA',
    'folder with the data of the embedded servers',
    '`./.palimpsest`',
  ),
  cacheDir: setting(
    word,
    'PALIMPSEST_CACHE',
    'folder of downloaded or built programs and of compiled code, shared by all projects of a user; only the variable moves the compiled code',
    '`~/.cache/palimpsest`',
  ),
  logLevel: setting(
    z.preprocess(lowerCase, z.enum(logLevels).default('info')),
    'LOG_LEVEL',
    'lowest level logged: trace, debug, info, warn, error, fatal or silent',
  ),
  logFormat: setting(
    z.preprocess(lowerCase, z.enum(['json', 'text']).default('json')),
    'LOG_FORMAT',
    'format of the logs of worker, API and gateway: `json` (one object per line) or `text`',
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
