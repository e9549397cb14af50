import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import { isFailure, isFailureType, isPassingFailureOfStore, PalimpsestError } from '../src/errors.js';
import {
  claimFlight,
  endFlight,
  renewEveryMs,
  renewFlight,
  seeFlight,
  type PassingFailure,
} from '../src/store/compactions/digest-flights.js';
import type { Attempt } from './run.js';

/** How long a step keeps its slot while it waits for another's answer; then it comes back after `returnMs`. */
const patienceMs = 15_000;
const returnMs = 1_000;
const firstLookMs = 100;
const longestLookMs = 1_000;

/** Asked by another step: its answer, or the right to ask. */
export interface OneFlight<Found> {
  tenant: string;
  key: string;
  /** The stored answer; null where there is none. */
  find(): Promise<Found | null>;
}

/**
 * The stored answer, found now or once the step that is asking for it has stored it. Null: this step is the one that
 * asks, and must do so `inFlight`. Throws what the other's call has passingly failed with, so that one failure of the
 * endpoint is one failure for all that need the same; `Llm.InFlight` where it takes long.
 */
export async function findOrClaim<Found>(
  pool: Pool,
  flight: OneFlight<Found>,
  attempt: Attempt,
): Promise<Found | null> {
  const until = Date.now() + patienceMs;
  for (let pauseMs = firstLookMs; ; pauseMs = Math.min(longestLookMs, pauseMs * 1.5)) {
    const found = await flight.find();
    if (found !== null) return found;
    if (await claimFlight(pool, flight, attempt.asker)) return unlessStored(pool, flight, attempt);
    const seen = await seeFlight(pool, flight);
    if (seen?.failure) throw sharedFailure(seen.failure, seen.remainingMs);
    if (Date.now() > until) throw stillInFlight();
    await sleep(pauseMs, undefined, { signal: attempt.signal });
  }
}

/** Another may have stored its answer between the look and the claim. */
async function unlessStored<Found>(
  pool: Pool,
  flight: OneFlight<Found>,
  { asker }: Attempt,
): Promise<Found | null> {
  const found = await flight.find().catch(async (error: unknown) => {
    await end(pool, flight, asker, null);
    throw error;
  });
  if (found !== null) await end(pool, flight, asker, null);
  return found;
}

/** Asks, and keeps the right to do so for as long as that takes. `asked` says whether the endpoint was. */
export async function inFlight<T>(
  pool: Pool,
  flight: { tenant: string; key: string },
  { asker }: Attempt,
  ask: (call: { asked: boolean }) => Promise<T>,
): Promise<T> {
  const renewing = setInterval(() => {
    // A renewal that fails is made up by the next; where none succeeds the lease runs out, as it must.
    renewFlight(pool, flight, asker).catch(() => undefined);
  }, renewEveryMs);
  const call = { asked: false };
  let failure: PassingFailure | null = null;
  try {
    return await ask(call);
  } catch (error) {
    // Tokens that this minute does not have are no failure of the endpoint.
    if (call.asked) failure = passingFailure(error);
    throw error;
  } finally {
    clearInterval(renewing);
    await end(pool, flight, asker, failure);
  }
}

/** Where the database is away or busy the lease runs out by itself; what the step has come to is worth more. */
async function end(
  pool: Pool,
  flight: { tenant: string; key: string },
  asker: Attempt['asker'],
  failure: PassingFailure | null,
): Promise<void> {
  await endFlight(pool, flight, asker, failure).catch((error: unknown) => {
    if (!isPassingFailureOfStore(error)) throw error;
  });
}

function passingFailure(error: unknown): PassingFailure | null {
  if (!isFailure(error, 'Llm.RateLimited') && !isFailure(error, 'Llm.Unavailable')) return null;
  const after = error.details?.['retryAfterMs'];
  return { type: error.type, retryAfterMs: typeof after === 'number' ? after : null };
}

/** Comes back by its own policy; where the endpoint asked for a delay, after what is left of it. */
function sharedFailure({ type, retryAfterMs }: PassingFailure, remainingMs: number): PalimpsestError {
  return new PalimpsestError(
    isFailureType(type) ? type : 'Llm.Unavailable',
    'The endpoint failed to answer the same request of another compaction.',
    {
      hint: 'Retried later.',
      details: retryAfterMs === null ? {} : { retryAfterMs: Math.ceil(remainingMs) },
    },
  );
}

function stillInFlight(): PalimpsestError {
  return new PalimpsestError('Llm.InFlight', 'Another compaction is asking the model the same.', {
    hint: 'Its answer is taken once it is there.',
    details: { retryAfterMs: returnMs },
  });
}
