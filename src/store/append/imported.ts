import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import { policyOf, type PolicyLayers } from '../../policy/layers.js';
import type { SessionIds } from '../../contract/ids.js';
import { read } from '../connection/transaction.js';

const prefix = 'import-';

/** The id of an imported turn. The same messages at the same place get the same id in every import. */
export function importedTurnId(fromSeq: number, hashes: readonly string[]): string {
  return `${prefix}${fromSeq}-${createHash('sha256').update(hashes.join()).digest('hex').slice(0, 24)}`;
}

/** Closes a session whose last turn came from an import. A session that has continued since stays open. */
export async function closeImported(pool: Pool, { tenant, session }: SessionIds): Promise<void> {
  await read(
    pool,
    { tenant },
    `update palimpsest.sessions s set closed_at = now(), updated_at = now()
     where tenant_id = $1 and session_id = $2 and closed_at is null
       and exists (select from palimpsest.turns t where t.tenant_id = $1 and t.session_id = $2
                   and t.through_seq = s.next_seq - 1 and starts_with(t.turn_id, $3))`,
    [tenant, session, prefix],
  );
}

/** The size of a newest user message that no context can show whole, and the budget, both in tokens. */
export interface LargeNewest {
  tokens: number;
  budget: number;
}

/** Null if the newest user message fits alone, or the session's policy allows shortening it. */
export async function largeNewest(pool: Pool, { tenant, session }: SessionIds): Promise<LargeNewest | null> {
  const [found] = await read<LargeNewest & { policy: string }>(
    pool,
    { tenant },
    `select newest.tokens, s.budget, s.policy from palimpsest.sessions s, lateral (
       select tokens from palimpsest.messages m
       where m.tenant_id = $1 and m.session_id = $2 and m.seq > s.through_seq and m.role = 'user' and not m.empty
       order by m.seq desc limit 1) newest
     where s.tenant_id = $1 and s.session_id = $2 and s.live_tokens > s.budget and newest.tokens > s.budget`,
    [tenant, session],
  );
  if (!found) return null;
  const { tokens, budget, policy } = found;
  const { enabled, reduce } = policyOf(JSON.parse(policy) as PolicyLayers);
  return enabled && !reduce.newestUserMessage ? { tokens, budget } : null;
}
