import { z } from 'zod';
import { complain } from './policy/issues.js';
import { readDeploymentPolicy, type DeploymentPolicy } from './policy-sources.js';
import { defaultCacheDir, defaultDataDir } from './runtime/home.js';

/** Everything the environment decides, in one place. */
export interface Config {
  /** PostgreSQL to use; undefined: the embedded one. */
  databaseUrl?: string;
  temporal: {
    /** host:port of the frontend; undefined: the embedded dev server. */
    address?: string;
    namespace: string;
    /** API key of Temporal Cloud; turns TLS on. */
    apiKey?: string;
    tls?: boolean;
  };
  /** OpenAI-compatible endpoint of the summarizer; without a key the extractive summarizer serves. */
  llm: { apiKey?: string; baseUrl?: string };
  /** Summarizer of policies that name none. `contextWindow` in tokens. */
  summary: { model?: string; contextWindow?: number };
  /** Layers of the policy below tenants and sessions: `PALIMPSEST_POLICY_FILE` and single variables. */
  policy: DeploymentPolicy;
  /** Tenants whose `turn` signals may carry messages; `*`: all. */
  inlineTurnTenants: string[];
  /** Absolute folder of the embedded servers' data. */
  dataDir: string;
  /** Absolute folder of downloaded or built programs, shared by all projects of this user. */
  cacheDir: string;
  logLevel: (typeof logLevels)[number];
}

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

function hasScheme(...schemes: string[]): (url: string) => boolean {
  return (url) => URL.canParse(url) && schemes.includes(new URL(url).protocol);
}

const flag = z.enum(['0', '1', 'true', 'false']);

// Refinements, not built-in checks, where a value may hold a password: their complaints do not repeat it.
const environment = z.object({
  DATABASE_URL: z
    .string()
    .refine(hasScheme('postgres:', 'postgresql:'), {
      error: 'is not a PostgreSQL URL',
      params: {
        hint: 'e.g. postgres://user:password@host:5432/palimpsest; unset it for the embedded PostgreSQL.',
      },
    })
    .optional(),
  TEMPORAL_ADDRESS: z
    .string()
    .refine((address) => /^(?:[\w.-]+|\[[0-9a-f:]+\]):\d{1,5}$/i.test(address), {
      error: 'is not host:port',
      params: { hint: 'e.g. localhost:7233, without a scheme; unset it for the embedded dev server.' },
    })
    .optional(),
  TEMPORAL_NAMESPACE: z.string().default('default'),
  TEMPORAL_API_KEY: z.string().optional(),
  TEMPORAL_TLS: flag.optional(),
  OPENAI_API_KEY: z.string().optional(),
  OPENAI_BASE_URL: z
    .string()
    .refine(hasScheme('http:', 'https:'), {
      error: 'is not an http(s) URL',
      params: { hint: 'e.g. https://api.openai.com/v1 or http://localhost:11434/v1' },
    })
    .optional(),
  PALIMPSEST_SUMMARY_MODEL: z.string().optional(),
  PALIMPSEST_SUMMARY_WINDOW: z.coerce
    .number()
    .int()
    .min(1)
    .optional()
    .describe("Tokens of the summarizer's window."),
  PALIMPSEST_INLINE_TENANTS: z.string().optional(),
  LOG_LEVEL: z.preprocess(
    (level) => (typeof level === 'string' ? level.toLowerCase() : level),
    z.enum(logLevels).default('info'),
  ),
});

/**
 * Reads the environment, and the policy file that it names; an empty variable counts as unset. Throws `Input.Invalid`
 * with the variable's name, or the field of the policy, as path.
 */
export function readConfig(env: NodeJS.ProcessEnv = process.env): Config {
  const given = Object.fromEntries(
    Object.keys(environment.shape).flatMap((name) => {
      const value = env[name]?.trim();
      return value ? [[name, value]] : [];
    }),
  );
  const parsed = environment.safeParse(given);
  if (!parsed.success) throw complain(parsed.error, environment, given, '');
  const read = parsed.data;
  const tls = read.TEMPORAL_TLS;
  return {
    databaseUrl: read.DATABASE_URL,
    temporal: {
      address: read.TEMPORAL_ADDRESS,
      namespace: read.TEMPORAL_NAMESPACE,
      apiKey: read.TEMPORAL_API_KEY,
      tls: tls === undefined ? undefined : tls === '1' || tls === 'true',
    },
    llm: { apiKey: read.OPENAI_API_KEY, baseUrl: read.OPENAI_BASE_URL },
    summary: { model: read.PALIMPSEST_SUMMARY_MODEL, contextWindow: read.PALIMPSEST_SUMMARY_WINDOW },
    policy: readDeploymentPolicy(env),
    inlineTurnTenants: (read.PALIMPSEST_INLINE_TENANTS ?? '').split(',').flatMap((name) => name.trim() || []),
    dataDir: defaultDataDir(env),
    cacheDir: defaultCacheDir(env),
    logLevel: read.LOG_LEVEL,
  };
}
