import type { Pool } from 'pg';
import { eagerSizes, isTriggered, type Limits, limitsOf } from '../src/limits/limits.js';
import { policyOf } from '../src/policy/layers.js';
import type { Policy } from '../src/policy/resolve.js';
import { callsTools } from '../src/store/compactions/chain.js';
import { factsOf, type SessionRow } from '../src/store/sessions/session-row.js';
import { asksForNothing, takeInHand } from '../src/store/sessions/overdue.js';
import { loadSession, passReduceMark } from '../src/store/sessions/sessions.js';
import type { SessionIds } from '../src/contract/ids.js';
import { type Dependencies, runStep } from './run.js';

export interface Measurement {
  /** True when a compaction should be planned now. */
  due: boolean;
  /** True when what the compaction to come will need of a model is to be asked ahead. */
  eager: boolean;
  /** Context tokens and messages by the session's counters. */
  tokens: number;
  messages: number;
  window: number;
  generation: number;
  /** Of the session measured. */
  incarnation: string;
  policyVersion: number;
  idleAfterMs: number;
  debounceMs: number;
  /** Quiet milliseconds after which the context is worth compacting because the provider's cache is cold; null: it is not. */
  coldAfterMs: number | null;
  /** An operator holds the session: nothing is due until it is resumed. */
  paused: boolean;
  /** Unix milliseconds before which nothing is tried again after a failure; null when nothing holds it back. */
  notBefore: number | null;
}

/**
 * Compares the session's counters with its policy. Reads one row, whatever the length of the log; where the session asks for
 * something, the row says afterwards until when the workflow that measures has it in hand.
 */
export function measure({ pool, now }: Dependencies) {
  return ({ tenant, session }: SessionIds): Promise<Measurement> =>
    runStep('measure', async () => {
      const row = await loadSession(pool, { tenant, session });
      const { policy, limits, triggered, worthwhile } = await judge(pool, row);
      // Where a fallback may serve, compactions go on without the model; after another failure that committed nothing
      // they wait, for the retry or, where its result was refused, for something compactable.
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
      return measured;
    });
}

function isClose(policy: Policy, limits: Limits, { liveTokens }: SessionRow): boolean {
  const sizes = policy.enabled ? eagerSizes(policy, limits) : null;
  return sizes !== null && liveTokens >= sizes.from && liveTokens < sizes.trigger;
}

/** Beyond the deadline of the model: plan, commit, fallback, and their retries. */
const besideModelMs = 5 * 60_000;

/** Before a timer of the workflow has led to the next measurement. */
const afterTimerMs = 15_000;

/** One small write at most, and none for a session that asks for nothing. */
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
  /** A trigger of its own fires, or long arguments are to be truncated. */
  triggered: boolean;
  /** Not exhausted, or something compactable has arrived since. */
  worthwhile: boolean;
}

/** Judges the session by its sizes alone, whatever failed lately. */
export async function judge(pool: Pool, row: SessionRow): Promise<Judged> {
  const policy = policyOf(row.policy);
  const limits = limitsOf(policy, factsOf(row));
  const size = { contextTokens: row.liveTokens, messages: row.liveMessages };
  const triggered =
    policy.enabled && (isTriggered(limits, size) || (await argumentsDue(pool, row, policy, limits)));
  // While exhausted, `measureAt` lies past the point where something compactable has arrived.
  const worthwhile =
    row.exhausted === null ||
    reached(row.liveTokens, row.measureAtTokens) ||
    reached(row.liveMessages, row.measureAtMessages);
  return { policy, limits, triggered, worthwhile };
}

/** Below the trigger: the size from which long arguments are truncated is reached, and there are some. */
async function argumentsDue(pool: Pool, row: SessionRow, policy: Policy, limits: Limits): Promise<boolean> {
  const truncation = policy.reduce.arguments;
  if (truncation === null || limits.reduceAt === null || row.liveTokens < limits.reduceAt) return false;
  if (!reached(row.liveTokens, row.measureAtTokens)) return false;
  const found = await callsTools(pool, row, {
    fromSeq: Math.max(row.throughSeq, row.systemThroughSeq) + 1,
    throughSeq: row.nextSeq - 1 - truncation.olderThan,
    // No tokenizer makes fewer tokens of that many characters of JSON.
    tokens: Math.floor(truncation.longerThan / 16),
    tools: truncation.tools,
  });
  if (!found) await passReduceMark(pool, row, row);
  return found;
}

function reached(size: number, mark: number | null): boolean {
  return mark !== null && size >= mark;
}
