/** Messages that tell the session's own agent nothing new: a search by the agent finds them after all others. */
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import { recoveryTools } from '../../contract/recovery-tools.js';
import { read } from '../connection/transaction.js';
import type { Scope } from './scope.js';

/**
 * Matches `message_texts.tool` if it names recovery tools only, one per line. Clients of MCP put the name of the server and
 * `__` before the name of a tool. PostgreSQL and JavaScript read the pattern alike.
 */
const recoveryOnly = `^(([^\\n]*__)?(${recoveryTools.map(({ function: { name } }) => name).join('|')})(\\n|$))+$`;

/**
 * Returns the calls and results of the recovery tools, which quote originals that are hits themselves, and the newest user
 * message, which the agent's context shows. A user message of several slices is not returned, because the context may show an
 * excerpt of it. Returns nothing if the scope asks for a recovery tool or for one message.
 */
export async function echoesIn(pool: Pool, ids: SessionIds, scope: Scope): Promise<ReadonlySet<number>> {
  const { tool, fromSeq, throughSeq } = scope;
  if (fromSeq === throughSeq || (tool !== null && new RegExp(recoveryOnly).test(tool))) return new Set();
  const rows = await read<{ seq: number }>(
    pool,
    ids,
    `select seq from palimpsest.message_texts
     where tenant_id = $1 and session_id = $2 and slice = 0 and tool ~ $3
     union all
     select max(seq) from palimpsest.message_texts
     where tenant_id = $1 and session_id = $2 and seq = (
       select seq from palimpsest.messages
       where tenant_id = $1 and session_id = $2 and role = 'user' order by seq desc limit 1)
     having count(*) = 1`,
    [ids.tenant, ids.session, recoveryOnly],
  );
  return new Set(rows.map(({ seq }) => seq));
}
