import type { Pool } from 'pg';
import { read } from '../connection/transaction.js';

/**
 * The tenants that begin sessions without redaction, or have sessions that began without it, as under an earlier version.
 * `sessions`: the number of these sessions. A `redact` that a session's or tenant's policy sets replaces the earlier default.
 */
export function tenantsWithoutRedaction(pool: Pool): Promise<{ tenant: string; sessions: number }[]> {
  // Policies are stored as JSON without spaces; inside a text, the quotes of this name would be escaped.
  return read(
    pool,
    `with old as (
       select tenant_id, count(*)::int as sessions from palimpsest.sessions
       where begun_redact = false and policy not like '%"redact":{%'
       group by tenant_id)
     select tenant_id as tenant, coalesce(old.sessions, 0) as sessions
     from (select tenant_id, policy from palimpsest.tenants where begun_redact = false) t
     full join old using (tenant_id)
     where old.sessions > 0 or t.policy not like '%"redact":%'
     order by tenant_id`,
  );
}
