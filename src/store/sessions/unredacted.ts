import type { Pool } from 'pg';
import { maintenanceOf } from '../connection/pool.js';
import { read } from '../connection/transaction.js';

/**
 * The tenants that begin sessions without redaction, or have sessions that began without it, as under an earlier version.
 * `sessions`: the number of these sessions. A `redact` that a session's or tenant's policy sets replaces the earlier default.
 */
export function tenantsWithoutRedaction(pool: Pool): Promise<{ tenant: string; sessions: number }[]> {
  return read(
    maintenanceOf(pool),
    'shared',
    'select tenant, sessions from palimpsest.tenants_without_redaction()',
  );
}
