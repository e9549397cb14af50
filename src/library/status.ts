import type { SessionStatus } from '../../workflows/messages.js';
import { describePolicy, type PolicyRow } from '../policy/describe.js';
import { effectivePolicy } from '../policy/layers.js';
import type { Policy } from '../policy/schema.js';
import type { SessionRecords } from '../store/reading/records.js';
import { skippedPins, type SkippedPin } from '../summary/answer/pins.js';
import { limitsOfSession, type SessionRow } from '../store/sessions/sessions.js';
import { knownOf } from '../tokens/calibration.js';

export interface Status extends SessionRecords {
  session: string;
  /** Messages in the log / in the context. */
  messages: number;
  liveMessages: number;
  tokens: number;
  window: { tokens: number; source: string };
  budget: number;
  /** Context tokens at which the next measurement is due; null when nothing will trigger. */
  measureAt: number | null;
  generation: number;
  /** `asleep`: ended for idleness; `unknown`: no worker answers. */
  phase: SessionStatus['phase'] | 'asleep' | 'unknown';
  compaction: SessionStatus['compaction'];
  /**
   * Since when it asks for a compaction that no workflow is known to be at work on; null: it does not, or one is. The sweep
   * signals such a session.
   */
  overdue: string | null;
  /** An operator holds it: no compaction begins until it is resumed. */
  paused: boolean;
  exhausted: SessionRow['exhausted'];
  failures: number;
  retryAt: string | null;
  lastError: { type: string; message: string } | null;
  /** Patterns of stored pins that are not matched, and why. */
  skippedPins: SkippedPin[];
  rejectedTurns: SessionStatus['rejectedTurns'];
  policy: Policy;
  /** Every knob of the policy with its effective value and who set it. */
  knobs: PolicyRow[];
  /** Rises with every change of the policy or of the calibration in use. */
  policyVersion: number;
  /**
   * Provider's tokens for one of ours, and of a request beside its context: as learnt from reported usage of the policy's
   * model, from how many requests, and as the sizes above take them. `model` is '' where neither policy nor reports name
   * one. `warning`: a report of late that cannot be of its request, and changed nothing.
   */
  calibration: {
    model: string;
    factor: number;
    overhead: number;
    samples: number;
    applied: number;
    appliedOverhead: number;
    warning: string | null;
  };
}

/** `live`: what the session's workflow says of itself, or why it says nothing. */
export function statusOf(
  row: SessionRow,
  live: SessionStatus | 'asleep' | 'unknown',
  records: SessionRecords,
  now = Date.now(),
): Status {
  const effective = effectivePolicy(row.policy);
  const { policy } = effective;
  const { limits } = limitsOfSession(row);
  const running = typeof live === 'string' ? null : live;
  return {
    session: row.session,
    messages: row.nextSeq - 1,
    liveMessages: row.liveMessages,
    tokens: row.liveTokens,
    window: { tokens: limits.window, source: limits.windowSource },
    budget: limits.budget,
    measureAt: row.measureAtTokens,
    generation: row.generation,
    phase: typeof live === 'string' ? live : live.phase,
    compaction: running?.compaction ?? null,
    overdue: row.overdueAt !== null && row.overdueAt.getTime() <= now ? row.overdueAt.toISOString() : null,
    paused: row.pausedAt !== null,
    exhausted: row.exhausted,
    failures: row.failures,
    retryAt: row.retryAt?.toISOString() ?? null,
    lastError: row.lastError,
    skippedPins: skippedPins(policy.pins),
    rejectedTurns: running?.rejectedTurns ?? [],
    policy,
    knobs: describePolicy(effective),
    policyVersion: row.policyVersion,
    calibration: calibrationOf(row, policy),
    ...records,
  };
}

function calibrationOf(row: SessionRow, policy: Policy): Status['calibration'] {
  const { model, factor, overhead, samples, implausible } = knownOf(
    row.calibration,
    policy.model,
    row.tokenizer,
  );
  const { appliedFactor: applied, appliedOverhead } = row;
  const warning = implausible ? warningOf(implausible) : null;
  return { model, factor, overhead, samples, applied, appliedOverhead, warning };
}

function warningOf({ counted, reported }: { counted: number; reported: number }): string {
  const [tokens, size] = [reported, counted].map((count) => count.toLocaleString('en-US'));
  const advice =
    reported < counted
      ? 'Include tokens read from and written to a cache, or hand over the usage object of the provider as it is.'
      : 'Report one request, the one that made the first assistant message of the turn.';
  return `The provider reported ${tokens} input tokens for a context of ${size}: ignored. ${advice}`;
}
