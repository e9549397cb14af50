import type { Pool } from 'pg';
import type { ModelClient } from '../src/llm/client.js';
import type { Metrics } from '../src/process/metrics.js';
import type { DeploymentPolicy } from '../src/policy/layers.js';
import type { BackfillWorkflows } from '../src/temporal/backfill-workflows.js';
import type { SessionWorkflows } from '../src/temporal/session-workflows.js';

/** The dependencies of all activities: one set per worker process. */
export interface Dependencies {
  pool: Pool;
  model: ModelClient;
  /** Summarizer settings of the environment, used where a session's policy names none. */
  summarizer: { model?: string; contextWindow?: number };
  /** Prompt and answer tokens that all workers together may use per minute. @default unlimited */
  tokensPerMinute?: number;
  metrics?: Metrics;
  /** Unix milliseconds. */
  now: () => number;
  /** Tenants whose `turn` signals may carry messages inline; `*` allows all. Empty: none. */
  inlineTurnTenants: readonly string[];
  /** Signals sessions that no workflow knows of. Absent: this process does not sweep. */
  workflows?: Pick<SessionWorkflows, 'signalMeasure'>;
  /** Starts the workflows of jobs that have none. */
  backfills?: Pick<BackfillWorkflows, 'revive'>;
  /** Layers of the policy below tenant and session, for sessions that an inline turn creates. */
  deployment?: DeploymentPolicy;
}
