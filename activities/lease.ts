import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { isFailure, isFailureType, isPassingFailureOfStore, PalimpsestError } from '../src/errors.js';
import { type HeldDigest, holdDigest, type Holder } from '../src/store/compactions/digest-holds.js';
import {
  endLease,
  findOrClaim,
  type LeasedDigest,
  renewEveryMs,
  renewLease,
  seeLease,
  type PassingFailure,
} from '../src/store/compactions/digest-leases.js';
import type { Attempt } from './run.js';
import { notNow } from './tokens.js';

/** A step waits this long in its slot for another step's answer; then it gives up the slot and retries after `returnMs`. */
const patienceMs = 15_000;
const returnMs = 1_000;
const firstLookMs = 100;
const longestLookMs = 1_000;

/** An answer that at most one step at a time requests from a model. */
export interface LeasedAnswer extends LeasedDigest {
  /** Holds the answer once it is stored. */
  holder: Holder;
  /** Maximum number of calls of the tenant in flight. @default unlimited */
  most?: number;
}

/**
 * Returns the stored answer; if another step is requesting it, waits for that step. Returns null if this step now holds the lease
 * and must make the request under `whileLeased`. Calls `onMiss` when the first look finds no answer. Throws the passing failure of
 * the other step's call, so that all steps that need the same answer share one failed call. Throws `Llm.InFlight` if the other
 * step takes long, and `Llm.RateLimited` if the tenant has as many calls in flight as it may have.
 */
export async function findOrLease(
  pool: Pool,
  leased: LeasedAnswer,
  attempt: Attempt,
  onMiss: () => void,
): Promise<HeldDigest | null> {
  const until = Date.now() + patienceMs;
  for (let pauseMs = 0; ; pauseMs = Math.min(longestLookMs, Math.max(firstLookMs, pauseMs * 1.5))) {
    if (pauseMs > 0) await sleep(pauseMs, undefined, { signal: attempt.signal });
    const looked = await findOrClaim(pool, leased.holder, leased, attempt.asker);
    if (looked.found !== null) return looked.found;
    if (pauseMs === 0) onMiss();
    if (looked.claimed) return unlessStored(pool, leased, attempt);
    const seen = await seeLease(pool, leased);
    if (seen === null && leased.most !== undefined) throw allInFlight(leased.most, attempt);
    if (seen?.failure) throw sharedFailure(seen.failure, seen.remainingMs);
    if (Date.now() > until) throw stillInFlight();
  }
}

/** Another step may have stored its answer between the lookup and the claim. */
async function unlessStored(
  pool: Pool,
  leased: LeasedAnswer,
  { asker }: Attempt,
): Promise<HeldDigest | null> {
  const found = await holdDigest(pool, leased.holder, leased.key).catch(async (error: unknown) => {
    await end(pool, leased, asker, null);
    throw error;
  });
  if (found !== null) await end(pool, leased, asker, null);
  return found;
}

/**
 * Runs `ask` and renews the lease until the answer arrives. `ask` sets `asked` once it calls the endpoint, and `ended` if the
 * lease ended with the stored answer.
 */
export async function whileLeased<T>(
  pool: Pool,
  leased: LeasedDigest,
  { asker }: Attempt,
  ask: (call: { asked: boolean; ended: boolean }) => Promise<T>,
): Promise<T> {
  const renewing = setInterval(() => {
    // The next renewal makes up for a failed one; if none succeeds, the lease expires.
    renewLease(pool, leased, asker).catch(() => undefined);
  }, renewEveryMs);
  const call = { asked: false, ended: false };
  let failure: PassingFailure | null = null;
  try {
    return await ask(call);
  } catch (error) {
    // If the limit of tokens per minute prevented the call, the endpoint was not asked and has not failed.
    if (call.asked) failure = passingFailure(error);
    throw error;
  } finally {
    clearInterval(renewing);
    if (!call.ended) await end(pool, leased, asker, failure);
  }
}

/** A database failure is ignored here: the lease expires anyway, and the step's answer must not be lost. */
async function end(
  pool: Pool,
  leased: LeasedDigest,
  asker: Attempt['asker'],
  failure: PassingFailure | null,
): Promise<void> {
  await endLease(pool, leased, asker, failure).catch((error: unknown) => {
    if (!isPassingFailureOfStore(error)) throw error;
  });
}

function passingFailure(error: unknown): PassingFailure | null {
  if (!isFailure(error, 'Llm.RateLimited') && !isFailure(error, 'Llm.Unavailable')) return null;
  const after = error.details?.['retryAfterMs'];
  return { type: error.type, retryAfterMs: typeof after === 'number' ? after : null };
}

/** The step is retried by its own retry policy or, if the endpoint requested a delay, after the rest of that delay. */
function sharedFailure({ type, retryAfterMs }: PassingFailure, remainingMs: number): PalimpsestError {
  return new PalimpsestError(
    isFailureType(type) ? type : 'Llm.Unavailable',
    'The endpoint failed to answer the same request of another compaction.',
    {
      hint: 'The step is retried later.',
      details: retryAfterMs === null ? {} : { retryAfterMs: Math.ceil(remainingMs) },
    },
  );
}

/**
 * Milliseconds after which a call first looks again for a place among the tenant's calls. The pause grows with each attempt up to
 * the longest one, so that thousands of steps of a backfill do not ask every second.
 */
const firstPlaceMs = 500;
const longestPlaceMs = { live: 3_000, backfill: 20_000 };

/** A call that gets its place later than this before the deadline would hardly be answered in time. */
const lastCallMs = 5_000;

function allInFlight(most: number, attempt: Attempt): Error {
  const message = `The tenant has ${most} model calls in flight, the most that it may have;`;
  const hint = "Raise the tenant's limit with `palimpsest limits set --concurrency`.";
  const longest = longestPlaceMs[attempt.backfill ? 'backfill' : 'live'];
  const pauseMs = Math.min(longest, firstPlaceMs * 1.3 ** (attempt.number - 1));
  const waitMs = Math.ceil(pauseMs * (1 + Math.random()));
  return notNow(message, hint, waitMs, { ...attempt, deadline: attempt.deadline - lastCallMs });
}

function stillInFlight(): PalimpsestError {
  return new PalimpsestError('Llm.InFlight', 'Another compaction is sending the same request to the model.', {
    hint: 'This step uses the same answer as soon as it is stored.',
    details: { retryAfterMs: returnMs },
  });
}
