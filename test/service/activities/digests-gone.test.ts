/**
 * Invariants 3, 6 and 9 if digests are deleted during a compaction: those that it has read are protected, deleted ones are
 * requested again, and every compaction ends with a readable outcome.
 */
import type { Pool } from 'pg';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { expireDigests } from '../../../src/store/compactions/digests.js';
import { openPool } from '../../support/pool.js';
import { fillSessions, openBackfills, until, ended, type BackfillBench } from '../../support/backfills.js';
import { dialogue } from '../../support/dialogue.js';
import { ok, status, type Script } from '../../support/model-replies.js';
import type { RecordedRequest } from '../../support/model-server.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let pool: Pool;
let bench: BackfillBench;

beforeAll(async () => {
  stack = await startStack();
  pool = openPool(stack.databaseUrl, { max: 3 });
  bench = await openBackfills(stack);
});

afterAll(async () => {
  await bench.close();
  await pool.end();
  await stack.stop();
});

afterEach(() => {
  stack.model.reply([]);
  stack.model.release();
});

const isConsolidation = ({ body }: RecordedRequest) => /<digest \d{12} 1>/.test(body.messages[1]!.content);

const chunky = (model: string, summary: PolicyInput['summary'] = {}): PolicyInput => ({
  contextWindow: 4_000,
  summary: { model, contextWindow: 16_000, chunkTokens: 500, fallback: 'none', ...summary },
});

const requestsOf = (model: string) => stack.model.requests.filter(({ body }) => body.model === model);

async function fill(session: string, policy: PolicyInput): Promise<void> {
  await stack.palimpsest.appendTurn({ session, turnId: 't', messages: dialogue(16).flat(), policy });
  await stack.palimpsest.settled({ session });
}

/** Chunks that a session has paid for and that no compaction refers to, since its consolidation was refused. */
async function unreferencedChunks(session: string, model: string): Promise<number> {
  stack.model.reply((request) => (isConsolidation(request) ? status(403) : ok())(request));
  await fill(session, chunky(model));
  expect(await stack.palimpsest.compactions({ session })).toEqual([]);
  return requestsOf(model).filter((request) => !isConsolidation(request)).length;
}

/** Answers as `script` does, and first does `before` at each consolidation. */
const atConsolidation =
  (before: () => Promise<unknown>, script: Script = ok()): Script =>
  async (request) => {
    if (isConsolidation(request)) await before();
    return script(request);
  };

const payersLeft = async (...sessions: string[]) =>
  (
    await pool.query<{ payer: string }>(
      'select payer_session as payer from palimpsest.digests where tenant_id = $1 and payer_session = any($2)',
      [stack.queuePrefix, sessions],
    )
  ).rows.map(({ payer }) => payer);

test('a fork finishes its compaction although its source is erased meanwhile, and pays nothing again', async () => {
  const { palimpsest } = stack;
  const chunks = await unreferencedChunks('source', 'erased');
  await palimpsest.fork({ session: 'source', to: 'fork', throughSeq: dialogue(16).flat().length });
  const before = requestsOf('erased').length;
  stack.model.reply(atConsolidation(() => palimpsest.erase({ session: 'source' })));
  expect(await palimpsest.compact({ session: 'fork' })).toMatchObject({
    generation: 1,
    method: 'model',
    chunks,
  });
  expect(requestsOf('erased').slice(before).map(isConsolidation)).toEqual([true]);
  // The paid digests of the erased session belong to the fork from then on, and are deleted with it.
  expect(new Set(await payersLeft('source', 'fork'))).toEqual(new Set(['fork']));
  await palimpsest.erase({ session: 'fork' });
  expect(await payersLeft('source', 'fork')).toEqual([]);
});

test('a failed fork leaves no text of its erased source once it is also erased', async () => {
  const { palimpsest } = stack;
  await unreferencedChunks('source 2', 'both');
  await palimpsest.fork({ session: 'source 2', to: 'fork 2', throughSeq: dialogue(16).flat().length });
  stack.model.reply(atConsolidation(() => palimpsest.erase({ session: 'source 2' }), status(403)));
  await expect(palimpsest.compact({ session: 'fork 2' })).rejects.toMatchObject({ type: 'Llm.Rejected' });
  expect((await payersLeft('source 2', 'fork 2')).length).toBeGreaterThan(0);
  await palimpsest.erase({ session: 'fork 2' });
  expect(await payersLeft('source 2', 'fork 2')).toEqual([]);
});

test('digests in use by a running compaction do not expire', async () => {
  const { palimpsest } = stack;
  const chunks = await unreferencedChunks('expiring', 'expired');
  const before = requestsOf('expired').length;
  let expired = 0;
  stack.model.reply(
    atConsolidation(async () => {
      expired += await expireDigests(pool, stack.queuePrefix, 0);
    }),
  );
  expect(await palimpsest.compact({ session: 'expiring' })).toMatchObject({ method: 'model', chunks });
  expect(requestsOf('expired').slice(before).map(isConsolidation)).toEqual([true]);
  // Nothing else of this tenant was left to expire.
  expect(expired).toBe(0);
});

const deleteDigests = (session: string) =>
  pool.query(
    `delete from palimpsest.digests d where tenant_id = $1 and payer_session = $2 and not exists (
       select from palimpsest.compaction_digests u where u.tenant_id = $1 and u.key = d.key)`,
    [stack.queuePrefix, session],
  );

test('deleted digests are requested again, and the compaction commits', async () => {
  const { palimpsest } = stack;
  let gone = 0;
  stack.model.reply(
    atConsolidation(async () => {
      if (++gone === 1) await deleteDigests('asked again');
    }),
  );
  await fill('asked again', chunky('asked again'));
  const [compaction] = await palimpsest.compactions({ session: 'asked again' });
  expect(compaction).toMatchObject({ generation: 1, method: 'model' });
  const requests = requestsOf('asked again');
  expect(requests.filter((request) => !isConsolidation(request))).toHaveLength(2 * compaction!.chunks);
  expect(requests.filter(isConsolidation)).toHaveLength(1);
});

test('digests that are deleted repeatedly end the compaction with a typed failure', async () => {
  const { palimpsest } = stack;
  const vanishing: Script = async (request) => {
    await deleteDigests('vanishing');
    return ok()(request);
  };
  stack.model.reply(vanishing);
  await fill('vanishing', chunky('vanishing', { concurrency: 1 }));
  const { lastError, generation } = await palimpsest.status({ session: 'vanishing' });
  expect({ lastError, generation }).toMatchObject({ generation: 0, lastError: { type: 'Store.DigestGone' } });
  expect(lastError!.message).not.toMatch(/constraint|palimpsest\.|backup/);
  stack.model.reply([]);
  expect(await palimpsest.compact({ session: 'vanishing' })).toMatchObject({ method: 'model' });
});

/** Every commit of these sessions is refused by the database itself. */
async function refuseCommits(prefix: string): Promise<void> {
  await pool.query(
    `create or replace function palimpsest.refuse() returns trigger language plpgsql as $$
     begin
       if new.generation > 0 and new.session_id like '${prefix}%' then
         raise exception 'violates check constraint "secret_constraint"' using errcode = 'check_violation';
       end if;
       return new;
     end $$`,
  );
  await pool.query(
    `create or replace trigger refuse before insert on palimpsest.compactions
     for each row execute function palimpsest.refuse()`,
  );
}

test('a commit that the database refuses ends the compaction with a typed failure, live and in a backfill', async () => {
  const { palimpsest } = stack;
  await refuseCommits('refused');
  const raw = /secret_constraint|violates|select|insert/;
  await palimpsest.appendTurn({ session: 'refused', turnId: 't', messages: dialogue(6).flat() });
  const failure: unknown = await palimpsest.compact({ session: 'refused' }).catch((error: unknown) => error);
  expect(failure).toMatchObject({ type: 'Worker.Failed', message: expect.not.stringMatching(raw) });
  const { lastError } = await palimpsest.status({ session: 'refused' });
  expect(lastError).toMatchObject({ type: 'Worker.Failed', message: expect.not.stringMatching(raw) });

  const tenant = `refusing-${stack.queuePrefix}`;
  await fillSessions(bench.pool, tenant, 3, { prefix: 'refused-' });
  const jobs = bench.of(tenant);
  // No session fails before the job is cancelled.
  stack.model.hold();
  await jobs.start({ job: 'j', concurrency: 3 });
  await until(jobs, 'j', ({ counts }) => counts.running > 0);
  await jobs.cancel({ job: 'j' });
  stack.model.release();
  const report = await until(jobs, 'j', ended);
  expect(report).toMatchObject({ state: 'cancelled', counts: { running: 0, pending: 0 } });
  expect(report.counts.failed + report.counts.skipped).toBe(3);
  for (const type of Object.keys(report.failures)) expect(type).toBe('Worker.Failed');
});

test('an unreadable message ends the compaction with a failure that names it without its text', async () => {
  const { palimpsest } = stack;
  const session = 'damaged';
  await palimpsest.appendTurn({ session, turnId: 't', messages: dialogue(6).flat() });
  // As an administrator could, with triggers and constraints disabled.
  const guarded = 'alter table palimpsest.messages';
  await pool.query(`${guarded} disable trigger all, drop constraint messages_sha256`);
  await pool.query(
    `update palimpsest.messages set body = '{"secret' where tenant_id = $1 and session_id = $2 and seq = 2`,
    [stack.queuePrefix, session],
  );
  const failure: unknown = await palimpsest.compact({ session }).catch((error: unknown) => error);
  expect(failure).toMatchObject({ type: 'Store.Corrupt', message: expect.not.stringContaining('secret') });
  expect(failure).toMatchObject({ details: { seq: 2 }, hint: expect.stringContaining('palimpsest verify') });
});
