import type { WorkflowBundleOption } from '@temporalio/worker';
import type { WorkerRole } from '../config/schema.js';
import type { EmbeddingSettings } from '../llm/embedder.js';
import type { DeploymentPolicy } from '../policy/layers.js';
import type { TenantLimits } from '../policy/tenant-limits.js';
import type { Metrics } from '../process/metrics.js';
import type { Readiness } from '../process/readiness.js';
import type { DatabaseTimeouts } from '../store/connection/pool.js';
import type { TemporalSettings } from '../temporal/connection.js';
import type { Counters } from '../tokens/counter.js';

export interface WorkerSettings {
  /** Required by every role except `workflow`. */
  databaseUrl?: string;
  /** The same database with the role that finds work across tenants. @default `databaseUrl` */
  maintenanceUrl?: string;
  /** The same database with the role that erases sessions. @default `databaseUrl` */
  eraserUrl?: string;
  /** Time limits of statements, locks and idle transactions. */
  database?: DatabaseTimeouts;
  temporal: TemporalSettings;
  /** Roles that this process serves. It opens only the connections that they need. @default all */
  roles?: readonly WorkerRole[];
  /** OpenAI-compatible endpoint; without a key the deterministic extractive summarizer is used. */
  model: {
    apiKey?: string;
    baseUrl?: string;
    summaryModel?: string;
    contextWindow?: number;
    timeoutMs?: number;
    /**
     * Model steps started per second by all workers together. The server enforces the value of the worker that polled last, so
     * all workers need the same one. @default unlimited
     */
    requestsPerSecond?: number;
    /** Prompt and answer tokens per minute of all workers together; all workers need the same value. @default unlimited */
    tokensPerMinute?: number;
  };
  /** Endpoint of the embeddings for search by meaning. @default no vectors are made */
  embeddings?: EmbeddingSettings;
  /** @default 'compaction' */
  queuePrefix?: string;
  /**
   * Prebuilt workflow code. With `temporal.payloadKeys` it must come from `loadWorkflowBundle` with these settings, because it decides
   * whether failures of workflows are encrypted. @default the bundle of the build, or one made from the sources now (about 2 s)
   */
  workflowBundle?: WorkflowBundleOption;
  /** Concurrent database steps; the pool has four connections more. @default 8 */
  databaseSteps?: number;
  /**
   * Concurrent database steps of backfills, with as many additional connections. A running step is not preempted, so this
   * limits what backfills take from live sessions in this process. Higher values are useful in a process that has only the role
   * `backfill`. @default 1
   */
  backfillSteps?: number;
  /**
   * Share of the time of the `backfillSteps` in which they work while live sessions are active in this process: above 0, at
   * most 1. They rest for the remaining time. @default 0.25
   */
  backfillShare?: number;
  /** Concurrent model calls of this process. @default 32 */
  modelCalls?: number;
  /**
   * Session workflows cached in memory. A cached workflow costs memory (docs/numbers.md); a workflow that is not cached costs a
   * replay with its next task, which only a due turn needs.
   * @default 250
   */
  cachedWorkflows?: number;
  /**
   * Milliseconds between two sweeps for waiting sessions that no workflow handles; all workers need the same value. The last
   * worker started with the role `workflow` decides. @default 180,000
   */
  sweepIntervalMs?: number;
  /** Milliseconds for steps to finish after a shutdown request. @default 60,000 */
  shutdownGraceMs?: number;
  /** Tenants whose `turn` signals may carry messages without a signature; `*` for all. @default none */
  inlineTurnTenants?: readonly string[];
  /** Keys, by tenant, of the signatures of messages inside `turn` signals. @default none */
  inlineTurnKeys?: Readonly<Record<string, string>>;
  /**
   * Policy layers for the sessions that this worker creates. A worker creates a session if the session's first turn arrives
   * inside a signal. See `readDeploymentPolicy`.
   */
  policy?: DeploymentPolicy;
  /** The operator's limits for tenants without limits of their own. @default none */
  limits?: TenantLimits;
  /** Counters of policies with `tokenizer: 'custom:<name>'`, by name. */
  counters?: Counters;
  /** Records what this worker does. @default nothing is recorded */
  metrics?: Metrics;
}

export interface RunningWorker {
  /** Resolves when the worker has stopped; rejects if it failed. */
  finished: Promise<void>;
  /** Whether the worker polls and its dependencies answer. */
  readiness(): Promise<Readiness & { polling: boolean }>;
  /** Accepts no new work, lets steps finish within the grace time, and closes the connections. */
  shutdown(): Promise<void>;
}
