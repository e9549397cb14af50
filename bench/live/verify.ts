/**
 * Checks that nothing is lost: logs equal the sent or imported messages, archives are complete, and the job's counts are those
 * of the database.
 */
import type { Pool } from 'pg';
import type { HttpPalimpsest } from '../../src/http-client/index.js';
import type { Backfill } from '../../src/contract/backfills.js';
import { oldSessionId, oldSessionOf, type Material } from './material.js';
import { hashOf, type PlayedSession } from './players.js';

export interface Verified {
  live: number;
  liveMessages: number;
  old: number;
  archiveParts: number;
  /** The faults, one sentence each. */
  wrong: string[];
}

const atOnce = 8;

export async function verify(
  client: HttpPalimpsest,
  pool: Pool,
  played: readonly PlayedSession[],
  material: Material,
  { count, sample, job }: { count: number; sample: number; job: Backfill },
): Promise<Verified> {
  const found: Verified = { live: 0, liveMessages: 0, old: 0, archiveParts: 0, wrong: [] };
  const check = async (session: string, expected: readonly string[]) => {
    try {
      const parts = await checkSession(client, session, expected);
      found.archiveParts += parts;
    } catch (error) {
      found.wrong.push(`${session}: ${(error as Error).message}`);
    }
  };
  await inLanes(played, async ({ session, hashes, broken }) => {
    // After a failed append it is unknown whether the turn was stored.
    if (broken || hashes.length === 0) return;
    await check(session, hashes);
    found.live++;
    found.liveMessages += hashes.length;
  });
  const step = Math.max(1, Math.floor(count / sample));
  const indexes = Array.from({ length: Math.min(sample, count) }, (_, index) => (index * step) % count);
  await inLanes(indexes, async (index) => {
    await check(oldSessionId(index), oldSessionOf(material, index).messages.map(hashOf));
    found.old++;
  });
  found.wrong.push(...(await checkCounts(pool, count, job)));
  return found;
}

/** Every message in order, each checked against its hash by the API; then every archive part. Answers how many parts. */
async function checkSession(
  client: HttpPalimpsest,
  session: string,
  expected: readonly string[],
): Promise<number> {
  let seq = 0;
  for await (const { message } of client.replay({ session }))
    if (hashOf(message) !== expected[seq++]) throw new Error(`message ${seq} is not what was sent`);
  if (seq !== expected.length) throw new Error(`${seq} messages instead of ${expected.length}`);
  const parts = await client.archive({ session });
  for (const { part } of parts)
    for (const { seq: at, message } of await client.archive({ session, part }))
      if (hashOf(message) !== expected[at - 1]) throw new Error(`part ${part}: message ${at} is another`);
  return parts.length;
}

async function checkCounts(pool: Pool, count: number, { counts, job, state }: Backfill): Promise<string[]> {
  const wrong: string[] = [];
  const sum = Object.entries(counts).reduce((total, [name, n]) => total + (name === 'selected' ? 0 : n), 0);
  if (sum !== counts.selected)
    wrong.push(`${job}: ${sum} items are counted, ${counts.selected} were selected`);
  if (state === 'completed' && counts.selected !== count)
    wrong.push(`${job}: ${counts.selected} sessions selected of ${count}`);
  const text = `
    select count(*)::int as sessions,
      count(*) filter (where commits > 0)::int as compacted,
      count(*) filter (where commits > 0 and state is distinct from 'compacted')::int as unknown,
      count(*) filter (where commits = 0 and state = 'compacted')::int as missing
    from (select s.session_id,
            (select count(*) from palimpsest.compactions c where c.tenant_id = s.tenant_id
               and c.session_id = s.session_id and c.generation > 0) as commits,
            (select i.state from palimpsest.backfill_items i where i.tenant_id = s.tenant_id
               and i.job = $1 and i.session_id = s.session_id) as state
          from palimpsest.sessions s where s.tenant_id = 'default' and starts_with(s.session_id, 'old-')) old`;
  const { rows } = await pool.query<Record<'sessions' | 'compacted' | 'unknown' | 'missing', number>>(text, [
    job,
  ]);
  const { sessions, compacted, unknown, missing } = rows[0]!;
  if (sessions !== count) wrong.push(`${sessions} old sessions are stored instead of ${count}`);
  if (compacted !== counts.compacted)
    wrong.push(`${compacted} old sessions are compacted, the job says ${counts.compacted}`);
  if (unknown > 0) wrong.push(`${unknown} old sessions were compacted, and their items do not say so`);
  if (missing > 0) wrong.push(`${missing} items say compacted, and their sessions are not`);
  return wrong;
}

async function inLanes<Item>(items: readonly Item[], work: (item: Item) => Promise<void>): Promise<void> {
  const queue = [...items];
  const lane = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
}
