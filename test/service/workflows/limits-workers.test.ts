/**
 * Limits of the provider's account apply to all workers together; live sessions are served before backfills; and a wait for a
 * limit does not count as a failure.
 */
import type { Client } from '@temporalio/client';
import type { Pool } from 'pg';
import { afterEach, expect, test } from 'vitest';
import { connectClient } from '../../../src/temporal/connection.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool } from '../../support/pool.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { backfillPriority, compactionWorkflowId, taskQueues } from '../../../src/temporal/names.js';
import type { compaction } from '../../../workflows/compaction.js';
import { samplesOf, startCliWorker, type CliWorker } from '../../support/cli-worker.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { countPrompt, empty, ok, rateLimited } from '../../support/model-replies.js';
import { startStack, type Stack, type StackOptions } from '../../support/stack.js';

let stack: Stack;
let pool: Pool;
let client: Client;
const workers: CliWorker[] = [];

async function start(options: StackOptions): Promise<void> {
  stack = await startStack(options);
  pool = openPool(stack.databaseUrl, { max: 4 });
  client = await connectClient({ address: stack.temporal.address });
}

async function startProcess(env: Record<string, string>): Promise<void> {
  workers.push(await startCliWorker(stack, env));
}

afterEach(async () => {
  for (const worker of workers.splice(0)) worker.signal('SIGKILL');
  await client.connection.close();
  await pool.end();
  await stack.stop();
});

/** Nothing flows in for this many seconds. */
const setLevel = (level: number, seconds = 0) =>
  pool.query(
    `insert into palimpsest.rate_buckets values ('tokens-per-minute', $1, clock_timestamp() + make_interval(secs => $2))
     on conflict (name) do update set level = excluded.level, updated_at = excluded.updated_at`,
    [level, seconds],
  );

async function live(session: string, policy: PolicyInput = smallPolicy, count = 16): Promise<void> {
  for (const [index, messages] of named(session, count).entries())
    await stack.palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
}

/** As a backfill starts it. */
async function backfill(session: string): Promise<void> {
  const ids = { tenant: stack.queuePrefix, session };
  await appendTurn(pool, { ...ids, turnId: 'all', messages: named(session, 16).flat(), policy: smallPolicy });
  await client.workflow.start<typeof compaction>('compaction', {
    workflowId: compactionWorkflowId(ids, 1),
    taskQueue: taskQueues(stack.queuePrefix).workflow,
    priority: backfillPriority(ids.tenant),
    args: [{ v: 1, ...ids, reason: 'trigger', force: false }],
  });
}

/** When the model step of a session's compaction was handed to a worker. Unix milliseconds, the server's clock. */
async function handedOut(session: string): Promise<number> {
  const handle = client.workflow.getHandle(compactionWorkflowId({ tenant: stack.queuePrefix, session }, 1));
  await handle.result();
  const { events = [] } = await handle.fetchHistory();
  const scheduled = events?.find(
    (event) => event.activityTaskScheduledEventAttributes?.activityType?.name === 'summarizeChunk',
  );
  const started = events?.find(
    ({ activityTaskStartedEventAttributes: of }) => of && of.scheduledEventId?.eq(scheduled!.eventId!),
  );
  const { seconds, nanos } = started!.eventTime!;
  return Number(seconds) * 1_000 + Number(nanos) / 1e6;
}

/** A conversation with its session's name, so that its requests can be identified. */
const named = (session: string, count: number) =>
  dialogue(count).map((messages) =>
    messages.map((one) => ({ ...one, content: `<<${session}>> ${String(one.content)}` })),
  );

const isBackfill = (text: string) => text.includes('<<backfill-');

/** When each request arrived, in milliseconds from `startedAt`, and the tokens it used. */
function arrivals(startedAt: number) {
  return stack.model.requests.map((request) => {
    const text = request.body.messages.map(({ content }) => content).join('\n');
    return {
      at: request.at - startedAt,
      tokens: countPrompt(request) + outputTokens,
      backfill: isBackfill(text),
    };
  });
}

const summary = 'A summary of what was asked and answered, of ledgers, invoices and budgets.';
const outputTokens = 15;

test('the tokens of several worker processes stay within the rate, and backfills leave them to live sessions', async () => {
  const perMinute = 240_000;
  await start({ worker: false });
  stack.model.reply(ok(summary));
  await setLevel(0);
  const startedAt = Date.now();
  const limit = { PALIMPSEST_TOKENS_PER_MINUTE: String(perMinute) };
  await Promise.all([
    startProcess({ PALIMPSEST_WORKER_ROLES: 'workflow,database' }),
    startProcess({ PALIMPSEST_WORKER_ROLES: 'model', ...limit }),
    startProcess({ PALIMPSEST_WORKER_ROLES: 'model', ...limit }),
  ]);
  const backfills = Array.from({ length: 20 }, (_, index) => `backfill-${index}`);
  const lives = Array.from({ length: 20 }, (_, index) => `live-${index}`);
  // Nothing has saved up while the processes started, nor while the backfill's sessions did.
  await setLevel(0);
  for (const session of backfills) await backfill(session);
  const emptyAt = Date.now() - startedAt;
  // However slowly the live sessions come, they take more than there is.
  await setLevel(0, 3_600);
  await Promise.all(lives.map((session) => live(session)));
  await Promise.all(lives.map((session) => stack.palimpsest.settled({ session })));

  const during = arrivals(startedAt);
  expect(during.filter(({ backfill }) => backfill)).toEqual([]);
  const total = (some: typeof during) => some.reduce((sum, { tokens }) => sum + tokens, 0);
  const inflow = (ms: number) => (perMinute * ms) / 60_000;
  for (const { at } of during) {
    // From an empty bucket, at most the inflow at any moment.
    expect(total(during.filter((other) => other.at <= at))).toBeLessThanOrEqual(inflow(at - emptyAt));
  }
  const last = Math.max(...during.map(({ at }) => at));
  const share = total(during) / inflow(last - emptyAt);
  console.log(
    `live: ${during.length} calls, ${total(during)} tokens in ${last - emptyAt} ms, ${Math.round(100 * share)} % of the inflow; backfill: 0`,
  );
  for (const session of lives) {
    const { lastError, failures } = await stack.palimpsest.status({ session });
    expect({ lastError, failures }).toEqual({ lastError: null, failures: 0 });
  }

  // The bucket fills again: the backfill continues, and leaves 30 % of it.
  const resumedAt = Date.now() - startedAt;
  await setLevel(0.3 * perMinute);
  await expect.poll(() => arrivals(startedAt).filter(({ backfill }) => backfill).length).toBeGreaterThan(3);
  const afterwards = arrivals(startedAt).filter(({ backfill }) => backfill);
  for (const { at } of afterwards)
    expect(total(afterwards.filter((other) => other.at <= at))).toBeLessThanOrEqual(inflow(at - resumedAt));

  const pages = await Promise.all(workers.map((worker) => worker.page('/metrics')));
  const waits = pages.map(({ text }) => samplesOf(text, 'palimpsest_token_waits_total'));
  for (const traffic of ['{traffic="live"}', '{traffic="backfill"}'])
    expect(waits.reduce((sum, samples) => sum + (samples.get(traffic) ?? 0), 0)).toBeGreaterThan(0);
});

test("several workers together keep the queue's limit of requests per second", async () => {
  await start({ worker: false });
  stack.model.reply(ok(summary));
  const limit = { PALIMPSEST_REQUESTS_PER_SECOND: '4' };
  await Promise.all([
    startProcess({ PALIMPSEST_WORKER_ROLES: 'workflow,database' }),
    startProcess({ PALIMPSEST_WORKER_ROLES: 'model', ...limit }),
    startProcess({ PALIMPSEST_WORKER_ROLES: 'model', ...limit }),
  ]);
  const sessions = Array.from({ length: 24 }, (_, index) => `backfill-${index}`);
  for (const session of sessions) await backfill(session);
  await stack.model.waitForRequests(24);
  // When the server handed each step out: at the endpoint they arrive later, on a busy machine some more than others.
  const times = (await Promise.all(sessions.map(handedOut))).sort((a, b) => a - b);
  const seconds = ((times.at(-1) ?? 0) - (times[0] ?? 0)) / 1000;
  console.log(`24 requests in ${seconds.toFixed(1)} s at 4 a second`);
  // The server lets one second's worth through at once.
  expect(seconds).toBeGreaterThan((24 - 2 * 4) / 4);
});

test('a session that waits for tokens past its deadline gets the fallback, without a failure of the model', async () => {
  await start({ worker: false });
  stack.settings.model.tokensPerMinute = 60_000;
  await stack.work();
  await setLevel(-59_000);
  const session = 'late';
  await live(session, { ...smallPolicy, summary: { deadline: 30_000 } });
  await stack.palimpsest.settled({ session });
  expect(await stack.palimpsest.compactions({ session })).toMatchObject([{ method: 'extractive' }]);
  expect(stack.model.requests).toHaveLength(0);
  const status = await stack.palimpsest.status({ session });
  expect(status).toMatchObject({ failures: 0, lastError: { type: 'Llm.RateLimited' } });

  // Once there are tokens, the next compaction asks the model.
  await setLevel(60_000);
  for (const [index, messages] of named(session, 16).entries())
    await stack.palimpsest.appendTurn({ session, turnId: `more-${index}`, messages });
  await stack.palimpsest.settled({ session });
  const methods = (await stack.palimpsest.compactions({ session })).map(({ method }) => method);
  expect(methods.slice(0, 2).sort()).toEqual(['extractive', 'model']);
});

test('attempts at a busy endpoint do not count as answers', async () => {
  await start({});
  const busy = rateLimited('0.05');
  stack.model.reply([busy, busy, busy, empty(), busy, empty(), ok(summary)]);
  await live('drawn');
  await stack.palimpsest.settled({ session: 'drawn' });
  expect(await stack.palimpsest.compactions({ session: 'drawn' })).toMatchObject([{ method: 'model' }]);

  // Three bad answers are final all the same.
  stack.model.reply([busy, empty(), busy, empty(), empty(), ok(summary)]);
  await live('bad');
  await stack.palimpsest.settled({ session: 'bad' });
  expect((await stack.palimpsest.compactions({ session: 'bad' }))[0]).toMatchObject({ method: 'extractive' });
});
