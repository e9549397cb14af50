import type { Pool } from 'pg';
import { eagerSizes, isTriggered, type Limits, limitsOf } from '../src/limits/limits.js';
import type { CompactionReason, NothingToDo, Plan } from '../src/compaction/plan/plan-types.js';
import { isPassingFailureOfStore } from '../src/errors.js';
import { policyOf } from '../src/policy/layers.js';
import type { Policy } from '../src/policy/defaults.js';
import { callsTools } from '../src/store/compactions/chain.js';
import { factsOf, type SessionRow } from '../src/store/sessions/session-row.js';
import { asksForNothing, takeInHand } from '../src/store/sessions/overdue.js';
import { loadSession, passReduceMark } from '../src/store/sessions/sessions.js';
import type { SessionIds } from '../src/contract/ids.js';
import { planSession, type PlanInput } from './plan.js';
import { type Dependencies, runStep } from './run.js';

export interface Measurement {
  /** True if a compaction should be planned now. */
  due: boolean;
  /** True if the model calls of the next compaction should be made ahead. */
  eager: boolean;
  /** Context tokens and messages, from the session's counters. */
  tokens: number;
  messages: number;
  window: number;
  generation: number;
  /** Incarnation of the measured session. */
  incarnation: string;
  policyVersion: number;
  idleAfterMs: number;
  debounceMs: number;
  /**
   * Milliseconds of silence after which the provider's cache is cold and the context is worth compacting; null if the context
   * is not worth compacting for that.
   */
  coldAfterMs: number | null;
  /** An operator has paused the session: nothing is due until it is resumed. */
  paused: boolean;
  /** Unix milliseconds before which nothing is retried after a failure; null if there is no such delay. */
  notBefore: number | null;
  /** The plan of the compaction that follows. Absent if none follows, if none was requested, and if the planning failed. */
  planned?: Planned;
}

export interface Planned {
  /** `ahead`: the model calls of the next compaction. */
  as: CompactionReason | 'ahead';
  plan: Plan | NothingToDo;
}

export interface MeasureInput extends SessionIds {
  /** Plan the compaction that follows in the same step. Absent in requests of earlier versions. */
  plans?: {
    /** Callers have requested the compaction, whatever the size of the session. */
    asked: 'manual' | 'resummarize' | null;
    /** The debounce is over. */
    debounced: boolean;
    /** What was written ahead last. */
    ahead: { generation: number | null; throughSeq: number | null } | null;
  };
}

/**
 * Compares the session's counters with its policy. Reads one row, however long the log is. If the session needs something, the
 * row records until when the measuring workflow is responsible for it. If a compaction follows at once, the same step plans it.
 */
export function measure(dependencies: Dependencies) {
  const { pool, now } = dependencies;
  return ({ tenant, session, plans }: MeasureInput): Promise<Measurement> =>
    runStep('measure', async ({ signal }) => {
      const row = await loadSession(pool, { tenant, session });
      const { policy, limits, triggered, worthwhile } = await judge(pool, row);
      // After a failure of the model, compactions continue without it if the policy allows a fallback. After any other failure that
      // committed nothing, they wait for the retry or, if the result was refused, for new compactable content.
      const waits = row.retryAt !== null && row.retryAt.getTime() > now();
      const served = row.lastError?.fallback === true;
      const heldBack = waits && !served && (policy.summary.fallback === 'none' || row.exhausted === null);
      const paused = row.pausedAt !== null;
      const measured = {
        paused,
        due: !paused && triggered && worthwhile && !heldBack,
        eager: !paused && !triggered && row.exhausted === null && !waits && isClose(policy, limits, row),
        tokens: row.liveTokens,
        messages: row.liveMessages,
        window: limits.window,
        generation: row.generation,
        incarnation: row.incarnation,
        policyVersion: row.policyVersion,
        idleAfterMs: policy.idleAfter,
        debounceMs: policy.debounceMs,
        coldAfterMs:
          !paused &&
          policy.enabled &&
          limits.idle !== null &&
          row.liveTokens >= limits.idle.contextTokens &&
          worthwhile
            ? limits.idle.afterMs
            : null,
        notBefore: !paused && triggered && heldBack && row.retryAt ? row.retryAt.getTime() : null,
      };
      await noteAnswer(pool, row, measured, policy, now());
      const planned =
        plans && (await planFollowing(dependencies, measured, { tenant, session, plans }, signal));
      return planned ? { ...measured, planned } : measured;
    });
}

/** Null if no compaction follows, or if its own first step must plan it: that step records a failure and the next attempt. */
async function planFollowing(
  dependencies: Dependencies,
  { due, eager, paused, debounceMs, generation, incarnation }: Measurement,
  {
    tenant,
    session,
    plans: { asked, debounced, ahead },
  }: MeasureInput & Required<Pick<MeasureInput, 'plans'>>,
  signal: AbortSignal,
): Promise<Planned | null> {
  if (paused) return null;
  const written = ahead !== null && ahead.generation === generation;
  const atOnce = due && (debounced || debounceMs === 0);
  const as = asked ?? (atOnce ? 'trigger' : eager && !written ? 'ahead' : null);
  if (as === null) return null;
  const request: PlanInput = {
    ...{ tenant, session, incarnation, force: asked !== null },
    ...(as === 'ahead'
      ? { reason: 'trigger', eager: true }
      : { reason: as, writtenThroughSeq: written ? ahead.throughSeq : null }),
  };
  try {
    const plan = await planSession(dependencies, request, signal);
    const other = 'baseGeneration' in plan && plan.baseGeneration !== generation;
    return other ? null : { as, plan };
  } catch (error) {
    if (signal.aborted || isPassingFailureOfStore(error)) throw error;
    return null;
  }
}

function isClose(policy: Policy, limits: Limits, { liveTokens }: SessionRow): boolean {
  const sizes = policy.enabled ? eagerSizes(policy, limits) : null;
  return sizes !== null && liveTokens >= sizes.from && liveTokens < sizes.trigger;
}

/** Time added to the model's deadline for plan, commit, fallback and their retries. */
const besideModelMs = 5 * 60_000;

/** Time for a workflow timer to lead to the next measurement. */
const afterTimerMs = 15_000;

/** Makes at most one small write, and none for a session that needs nothing. */
async function noteAnswer(
  pool: Pool,
  row: SessionRow,
  { due, debounceMs, coldAfterMs, notBefore }: Measurement,
  { summary }: Policy,
  now: number,
): Promise<void> {
  if (row.overdueAt === null) return;
  const heldBackMs = row.retryAt === null ? 0 : row.retryAt.getTime() - now;
  const compactionMs = summary.deadline + besideModelMs;
  if (notBefore !== null) await takeInHand(pool, row, Math.max(0, heldBackMs) + afterTimerMs);
  else if (due && row.overdueAt.getTime() - now < summary.deadline)
    await takeInHand(pool, row, debounceMs + compactionMs);
  else if (!due && coldAfterMs !== null)
    await takeInHand(pool, row, Math.max(heldBackMs, coldAfterMs + compactionMs));
  else if (!due) await asksForNothing(pool, row);
}

export interface Judged {
  policy: Policy;
  limits: Limits;
  /** True if one of the session's own triggers is met, or long arguments should be truncated. */
  triggered: boolean;
  /** True if the session is not exhausted, or compactable content has arrived since it was marked. */
  worthwhile: boolean;
}

/** Judges the session by its sizes alone and ignores recent failures. */
export async function judge(pool: Pool, row: SessionRow): Promise<Judged> {
  const policy = policyOf(row.policy);
  const limits = limitsOf(policy, factsOf(row));
  const size = { contextTokens: row.liveTokens, messages: row.liveMessages };
  const triggered =
    policy.enabled && (isTriggered(limits, size) || (await argumentsDue(pool, row, policy, limits)));
  // While exhausted, `measureAt` lies beyond the point at which compactable content has arrived.
  const worthwhile = row.exhausted === null || asksToBeMeasured(row);
  return { policy, limits, triggered, worthwhile };
}

/**
 * True if the context is below the threshold, has reached the size from which long arguments are truncated, and contains such
 * arguments.
 */
async function argumentsDue(pool: Pool, row: SessionRow, policy: Policy, limits: Limits): Promise<boolean> {
  const truncation = policy.reduce.arguments;
  if (truncation === null || limits.reduceAt === null || row.liveTokens < limits.reduceAt) return false;
  if (!reached(row.liveTokens, row.measureAtTokens)) return false;
  const found = await callsTools(pool, row, {
    fromSeq: Math.max(row.throughSeq, row.systemThroughSeq) + 1,
    throughSeq: row.nextSeq - 1 - truncation.olderThan,
    // With every tokenizer, a message with an argument of this length has at least so many tokens.
    tokens: Math.floor(truncation.longerThan / 16),
    tools: truncation.tools,
  });
  if (!found) await passReduceMark(pool, row, row);
  return found;
}

/** True if the session has reached a size at which it is measured. */
export function asksToBeMeasured(row: SessionRow): boolean {
  return reached(row.liveTokens, row.measureAtTokens) || reached(row.liveMessages, row.measureAtMessages);
}

function reached(size: number, mark: number | null): boolean {
  return mark !== null && size >= mark;
}
