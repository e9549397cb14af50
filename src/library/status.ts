import type { SessionStatus } from '../contract/workflows.js';
import { describePolicy } from '../policy/describe.js';
import { effectivePolicy } from '../policy/layers.js';
import type { Policy } from '../policy/defaults.js';
import type { SessionMemory, SessionRecords, Status } from '../contract/sessions.js';
import { skippedPins } from '../summary/answer/pins.js';
import { limitsOfSession } from '../store/sessions/settings.js';
import type { SessionRow } from '../store/sessions/session-row.js';
import type { Limits } from '../limits/limits.js';
import { knownOf } from '../tokens/calibration.js';
import { resolveWindow } from '../tokens/windows.js';

/** @param live the report of the session's workflow, or the reason why there is none */
export function statusOf(
  row: SessionRow,
  live: SessionStatus | 'asleep' | 'unknown',
  records: SessionRecords & SessionMemory,
  now = Date.now(),
): Status {
  const effective = effectivePolicy(row.policy);
  const { policy } = effective;
  const { limits } = limitsOfSession(row);
  const running = typeof live === 'string' ? null : live;
  return {
    session: row.session,
    continuedIn: row.continuedIn,
    messages: row.nextSeq - 1,
    liveMessages: row.liveMessages,
    tokens: row.liveTokens,
    window: windowOf(policy, limits),
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

function windowOf(policy: Policy, { window }: Limits): Status['window'] {
  const { tokens: given, source } = resolveWindow(policy);
  return { tokens: window, given, source };
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
      ? "Include tokens read from and written to a cache, or pass the provider's usage object unchanged."
      : 'Report one request, the one that made the first assistant message of the turn.';
  return `The provider reported ${tokens} input tokens for a context of ${size}: ignored. ${advice}`;
}
