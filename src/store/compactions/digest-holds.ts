/**
 * Holds on the digests that a running compaction has read. Until the compaction commits or gives up, the digests do not
 * expire, and an erasure of the session that paid for them does not delete them. A hold expires some time after the
 * compaction must have ended, so that a terminated compaction holds nothing for ever.
 */
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import { prepared } from '../connection/prepared.js';
import { read, type Query } from '../connection/transaction.js';

/** The run id that holds digests written ahead of a later compaction. */
export const aheadRun = 'ahead';

/** One run of a compaction. */
export interface Holder extends SessionIds {
  runId: string;
  /** Milliseconds from now for which the run holds the digests that it reads. */
  forMs: number;
}

/** Parameters: tenant, session, run, seconds. */
export const holdAll = (keys: string): string => `
  insert into palimpsest.digest_holds (tenant_id, key, session_id, run_id, held_until)
  select $1, key, $2, $3, now() + make_interval(secs => $4) from ${keys}
  on conflict (tenant_id, session_id, run_id, key) do update
    set held_until = greatest(digest_holds.held_until, excluded.held_until)`;

export const holdParameters = ({ tenant, session, runId, forMs }: Holder) => [
  tenant,
  session,
  runId,
  forMs / 1_000,
];

export interface HeldDigest extends Record<string, unknown> {
  text: string;
  tokens: number;
}

/** Finds the digest under this key and holds it. Returns null if none is stored, or the session was erased. */
export async function holdDigest(pool: Pool, holder: Holder, key: string): Promise<HeldDigest | null> {
  const [found] = await read<HeldDigest>(pool, holder, holdStatement, [...holdParameters(holder), key]);
  return found ?? null;
}

/** Parameters as those of `holdAll`, and the key. */
export const holdStored = `
  alive as (
    select 1 from palimpsest.sessions where tenant_id = $1 and session_id = $2 for key share
  ), found as (
    select key, text, tokens from palimpsest.digests
    where tenant_id = $1 and key = $5 and exists (select from alive) for key share
  ), held as (${holdAll('found')})`;

const holdStatement = prepared('hold_digest', `with ${holdStored} select text, tokens from found`);

/** Holds a digest that this transaction has stored or seen. */
export async function addHold(query: Query, holder: Holder, key: string): Promise<void> {
  const stored = 'palimpsest.digests where tenant_id = $1 and key = $5';
  await query(holdAll(stored), [...holdParameters(holder), key]);
}

/** Extends the holds of a run. Parameters as those of `holdAll`. */
export const renewHolds = `
  update palimpsest.digest_holds set held_until = greatest(held_until, now() + make_interval(secs => $4))
  where tenant_id = $1 and session_id = $2 and run_id = $3`;

/** Parameters: tenant, session. */
export const releaseRuns = (runs: string): string =>
  `delete from palimpsest.digest_holds where tenant_id = $1 and session_id = $2 and run_id = any(${runs}::text[])`;

/** Releases the holds of runs that have ended. */
export async function releaseHolds(
  query: Query,
  { tenant, session }: SessionIds,
  ...runs: string[]
): Promise<void> {
  await query(releaseRuns('$3'), [tenant, session, runs]);
}

/**
 * Releases the holds of all other runs of this session: they have ended, because a session has one compaction at a
 * time. Digests written ahead stay for the new run.
 */
export async function releaseEarlierHolds(
  pool: Pool,
  { tenant, session }: SessionIds,
  runId: string,
): Promise<void> {
  await read(
    pool,
    { tenant },
    `delete from palimpsest.digest_holds
     where tenant_id = $1 and session_id = $2 and run_id <> $3 and run_id <> $4`,
    [tenant, session, runId, aheadRun],
  );
}

/** The condition that no running compaction holds this digest. */
export const unheld = (digest: string): string =>
  `not exists (select from palimpsest.digest_holds held where held.tenant_id = ${digest}.tenant_id
     and held.key = ${digest}.key and held.held_until > now())`;
