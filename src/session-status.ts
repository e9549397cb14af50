import type { SessionStatus } from '../workflows/messages.js';
import { describePolicy, type PolicyRow } from './policy/describe.js';
import { effectivePolicy } from './policy/layers.js';
import type { Policy } from './policy/schema.js';
import type { SessionRecords } from './store/records.js';
import { skippedPins, type SkippedPin } from './summary/pins.js';
import { limitsOfSession, type SessionRow } from './store/sessions.js';
import { knownOf } from './tokens/calibration.js';

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
   * Provider's tokens for one of ours: as learnt from reported usage of the policy's model, from how many requests, and
   * as the sizes above take it. `model` is '' where neither policy nor reports name one.
   */
  calibration: { model: string; factor: number; samples: number; applied: number };
}

/** `live`: what the session's workflow says of itself, or why it says nothing. */
export function statusOf(
  row: SessionRow,
  live: SessionStatus | 'asleep' | 'unknown',
  records: SessionRecords,
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
    calibration: { ...knownOf(row.calibration, policy.model, row.tokenizer), applied: row.appliedFactor },
    ...records,
  };
}
