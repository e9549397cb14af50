/** Returns session ids for a waiting shell: a limited number, within 200 ms, and never an error. */
import { apiOf } from '../command/connect.js';
import { read } from '../../store/connection/transaction.js';
import type { Run } from '../command/run.js';

const most = 50;
const withinMs = 200;

/** Ids that a shell would not read as one plain word are omitted. */
const plain = /^[\w.,:@%+=~^/-]+$/;

export async function sessionIds(run: Run, prefix: string): Promise<string[]> {
  const late = new Promise<string[]>((resolve) => setTimeout(() => resolve([]), withinMs).unref());
  const api = apiOf(run.globals);
  const found = (api === null ? fromDatabase(run, prefix) : fromApi(api, prefix)).catch(() => []);
  return (await Promise.race([found, late])).filter((id) => plain.test(id));
}

async function fromDatabase(run: Run, prefix: string): Promise<string[]> {
  const pool = await run.pool();
  const rows = await read<{ id: string }>(
    pool,
    run,
    `select session_id as id from palimpsest.sessions
     where tenant_id = $1 and starts_with(session_id, $2) order by session_id limit ${most}`,
    [run.tenant, prefix],
  );
  return rows.map(({ id }) => id);
}

async function fromApi({ url, token }: { url: string; token?: string }, prefix: string): Promise<string[]> {
  const address = new URL('v1/sessions', url.endsWith('/') ? url : `${url}/`);
  address.search = new URLSearchParams({ prefix, limit: String(most) }).toString();
  const answer = await fetch(address, {
    headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
    signal: AbortSignal.timeout(withinMs),
  });
  const { sessions } = (await answer.json()) as { sessions: { session: string }[] };
  return sessions.map(({ session }) => session);
}
