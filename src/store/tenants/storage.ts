/** Limits on what a tenant stores. Both checks run in the transaction that stores, so that a refusal leaves nothing behind. */
import type { PalimpsestError } from '../../errors.js';
import { beyondLimit, type TenantLimits } from '../../policy/tenant-limits.js';
import type { Transaction } from '../connection/transaction.js';

/**
 * A process counts the bytes of a tenant at most this often, and adds what it stores itself. Several processes, or appends at the
 * same time, may together exceed the limit by what they store meanwhile.
 */
const countedEveryMs = 5_000;
/** At least this many times as long as the count took, so that counting takes a small share of the time. */
const restShare = 20;

const bytesSql =
  'select coalesce(sum(stored_bytes), 0)::float8 as bytes from palimpsest.sessions where tenant_id = $1';

/** Why this many bytes may not be stored; null if they may. */
export async function refusalOfBytes(
  { query, known }: Transaction,
  tenant: string,
  limits: TenantLimits | undefined,
  bytes: number,
): Promise<PalimpsestError | null> {
  const most = limits?.storedBytes;
  if (most === undefined) return null;
  let stored = known.stored.get(tenant);
  if (stored === undefined || stored.until <= Date.now()) {
    const since = Date.now();
    const [row] = await query<{ bytes: number }>(bytesSql, [tenant]);
    const now = Date.now();
    stored = { bytes: row?.bytes ?? 0, until: now + Math.max(countedEveryMs, restShare * (now - since)) };
    known.stored.set(tenant, stored);
  }
  if (stored.bytes + bytes > most)
    return beyondLimit(
      'storedBytes',
      `The tenant stores ${stored.bytes} bytes and may store ${most}; this turn has ${bytes}.`,
      {
        ...{ most, asked: stored.bytes + bytes },
        hint: 'Erase sessions, or ask the operator for `palimpsest limits set --stored-bytes`. Reads and compactions go on.',
      },
    );
  return null;
}

/** Adds to the bytes that this process has counted. */
export function noteStored({ known }: Transaction, tenant: string, bytes: number): void {
  const stored = known.stored.get(tenant);
  if (stored) stored.bytes += bytes;
}

/** Makes new sessions of a tenant with this limit wait for each other until the transaction ends. */
export async function lockSessions(
  { query }: Transaction,
  tenant: string,
  limits: TenantLimits | undefined,
): Promise<void> {
  if (limits?.sessions === undefined) return;
  const lock = "select pg_advisory_xact_lock(hashtextextended('palimpsest sessions of ' || $1::text, 0))";
  await query(lock, [tenant]);
}

/** Why the tenant may not have this session as well; null if it may. The session is not counted. Call `lockSessions` first. */
export async function refusalOfSession(
  { query }: Transaction,
  { tenant, session }: { tenant: string; session: string },
  limits: TenantLimits | undefined,
): Promise<PalimpsestError | null> {
  const most = limits?.sessions;
  if (most === undefined) return null;
  const [row] = await query<{ others: number }>(
    `select count(*)::int as others from (
       select from palimpsest.sessions where tenant_id = $1 and session_id <> $2 and closed_at is null limit $3) open`,
    [tenant, session, most],
  );
  if ((row?.others ?? 0) < most) return null;
  return beyondLimit(
    'sessions',
    `The tenant has ${most} sessions that are not closed, and may have ${most}.`,
    {
      ...{ most, asked: most + 1 },
      hint: 'Close or erase sessions, or ask the operator for `palimpsest limits set --sessions`.',
    },
  );
}
