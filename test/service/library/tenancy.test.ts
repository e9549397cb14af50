/** The library for one tenant, with the ids of another tenant's objects: every operation, found in the table of routes. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { routes } from '../../../src/contract/routes.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { openPool } from '../../support/pool.js';
import { startStack, type Stack } from '../../support/stack.js';

type Request = Record<string, unknown>;
type Operation = keyof typeof routes;

const secret = 'the heron nests at the old mill';
const session = 'theirs';
const job = 'their-job';

let stack: Stack;
let pool: Pool;
let ours: Palimpsest;
let theirs: Palimpsest;
let id: string;

beforeAll(async () => {
  stack = await startStack();
  pool = openPool(stack.databaseUrl);
  ours = stack.palimpsest.forTenant(`ours-${stack.queuePrefix}`);
  theirs = stack.palimpsest.forTenant(`theirs-${stack.queuePrefix}`);
  await theirs.appendTurn({
    session,
    turnId: 'first',
    messages: [
      { role: 'user', content: secret },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'call', type: 'function', function: { name: 'look', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'call', content: secret },
    ],
  });
  await theirs.settled({ session });
  await theirs.startBackfill({ job, select: { prefix: 'none/' } });
  await vi.waitFor(async () => expect((await theirs.backfill({ job })).state).toBe('completed'), 60_000);
  ({ id } = await theirs.createToken({ name: 'theirs', scopes: ['read'] }));
});

afterAll(async () => {
  await pool.end();
  await stack.stop();
});

/** What each operation is asked beside the object that its path names. */
const more: Partial<Record<Operation, Request>> = {
  // These make an object of ours, whether another tenant has one of that name or not.
  appendTurn: { session: 'made', turnId: 'next', messages: [{ role: 'user', content: 'hello' }] },
  sync: { session: 'synced', messages: [{ role: 'user', content: 'hello' }] },
  startBackfill: { job: 'made', select: { prefix: session } },
  archivePart: { part: 1 },
  configure: { policy: { contextWindow: 16_000 } },
  createToken: { name: 'ours', scopes: ['read'] },
  eraseMessages: { seqs: [1] },
  estimateBackfill: { select: { prefix: session } },
  expand: { fromSeq: 1 },
  findMessages: { text: 'heron' },
  fork: { to: 'copy', throughSeq: 1 },
  pin: { pins: [{ seq: 1 }] },
  resizeBackfill: { concurrency: 2 },
  restore: { generation: 0 },
  search: { query: 'heron' },
  toolResponse: { callId: 'call' },
};

const operations = Object.entries(routes).map(([operation, { path }]) => ({
  operation: operation as Operation,
  path,
}));

/** The answer with the items of a stream, or the type of the failure. */
async function answerOf(operation: Operation, request: Request): Promise<unknown> {
  const method = operation === 'archivePart' || operation === 'archiveParts' ? 'archive' : operation;
  const call = ours[method] as (request: Request) => unknown;
  try {
    const answer = await call.call(ours, request);
    if (typeof answer !== 'object' || answer === null || !(Symbol.asyncIterator in answer)) return answer;
    const items: unknown[] = [];
    for await (const item of answer as AsyncIterable<unknown>) items.push(item);
    return items;
  } catch (error) {
    return (error as { type?: string }).type ?? error;
  }
}

async function stored(): Promise<unknown[]> {
  const all: unknown[] = [];
  for (const [table, columns] of Object.entries({
    sessions: 'session_id, policy, closed_at, paused_at',
    messages: '*',
    compactions: '*',
    tenants: '*',
    backfills: 'job, request, state',
    api_tokens: '*',
  })) {
    const { rows } = await pool.query<{ row: string }>(
      `select t::text as row from (select ${columns} from palimpsest.${table} where tenant_id = $1) t order by 1`,
      [theirs.tenant],
    );
    all.push([table, rows]);
  }
  return all;
}

test.each(operations)('$operation ($path) reaches nothing of another tenant', async ({ operation, path }) => {
  const object = path.includes('{session}')
    ? { session }
    : path.includes('{job}')
      ? { job }
      : path.includes('{id}')
        ? { id }
        : {};
  const before = await stored();
  const answer = await answerOf(operation, { ...object, ...more[operation] });
  expect(JSON.stringify(answer)).not.toMatch(/heron|theirs-/);
  if (path.includes('{') && operation !== 'appendTurn' && operation !== 'sync')
    expect(answer).toMatch(/^Store\.(?:Session|Backfill|Token)NotFound$/);
  else expect(answer).not.toBeInstanceOf(Error);
  expect(await stored()).toEqual(before);
});
