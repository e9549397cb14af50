import type { CallLink } from '../../conversation/message.js';
import type { SessionIds } from '../../contract/ids.js';
import type { Query } from '../connection/transaction.js';

/** A result and the call that it names. */
export interface Answer {
  seq: number;
  /** Call id, or function name of a legacy result; null if the result names no call. */
  answers: string | null;
}

/** The search for a call goes back this many messages. A result usually follows its call within a few messages. */
const farthestCall = 500;

/**
 * Maps the seq of each result to its tool: the name of the latest earlier call that has its id. `answers` is in order
 * of seq. A result gets no name if its call is not within the 500 messages before the first of `answers`.
 */
export async function toolNames(
  query: Query,
  ids: SessionIds,
  answers: readonly Answer[],
): Promise<Map<number, string>> {
  const names = new Map<number, string>();
  const [first] = answers;
  const last = answers.at(-1);
  if (first === undefined || last === undefined) return names;
  const callers = await query<{ seq: number; calls: string }>(
    `select seq, calls from palimpsest.messages
     where tenant_id = $1 and session_id = $2 and seq between $3 and $4 and calls is not null order by seq`,
    [ids.tenant, ids.session, first.seq - farthestCall, last.seq],
  );
  const known = new Map<string, string>();
  let next = 0;
  for (const { seq, answers: id } of answers) {
    for (let caller = callers[next]; caller && caller.seq < seq; caller = callers[++next]) {
      const links = JSON.parse(caller.calls) as CallLink[];
      for (const link of links) known.set(link.id ?? link.name, link.name);
    }
    const name = id === null ? undefined : known.get(id);
    if (name !== undefined) names.set(seq, name);
  }
  return names;
}
