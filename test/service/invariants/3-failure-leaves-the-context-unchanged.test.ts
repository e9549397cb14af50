/**
 * Invariant 3. Failure leaves the context unchanged: for any behaviour of the model endpoint, only a summary is accepted as
 * one. All sessions run concurrently against one endpoint, which has a different fault for each. The agent's context is read
 * with every request, at the moment of the fault.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SessionContext } from '../../../src/contract/context.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool } from '../../support/pool.js';
import { startWorker, type RunningWorker } from '../../../src/worker/worker.js';
import { dialogue } from '../../support/dialogue.js';
import * as replies from '../../support/model-replies.js';
import type { Script } from '../../support/model-replies.js';
import type { RecordedRequest } from '../../support/model-server.js';
import { committed } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';

/** What an endpoint that fails says, in whatever form: none of it may be found in a context or a digest. */
const said = {
  error: 'Error generating summary: upstream exploded',
  placeholder: '[Summary unavailable]',
  page: 'Sign in to the corporate proxy',
  refusal: "I'm sorry, but I can't help with that request.",
};

const traces =
  /exploded|unavailable\]|corporate proxy|can't help|rate limit|status 5\d\d|undefined|\[object/i;

interface Case {
  name: string;
  /** One for each request in order; the last one for all further ones. */
  scripts: Script[];
  /** Milliseconds; plenty where not given. */
  deadline?: number;
  /** The final writer of the summary; null if the policy allows none. */
  ends: 'model' | 'extractive' | null;
  /** Type of the failure that is recorded with the session; null: none. */
  failure: string | null;
  /** Requests that were made in the end; not known where time decides. */
  requests?: number;
}

const { ok } = replies;
const quota = replies.failure('You exceeded your current quota', 'insufficient_quota');
const wrapped = { error: { message: said.error, code: 502 } };

/** Faults after which the endpoint recovers: a retry gets a summary. */
const passing: Case[] = [
  { name: '429 with Retry-After', scripts: [replies.rateLimited('3'), ok()] },
  { name: '500', scripts: [replies.status(500, replies.failure(said.error)), ok()] },
  { name: '503 with a web page', scripts: [replies.status(503, said.page), ok()] },
  { name: '200 that wraps a 502', scripts: [replies.status(200, wrapped), ok()] },
  { name: 'an endpoint that says nothing', scripts: [replies.silence(), ok()] },
  { name: 'an answer that stops in the middle', scripts: [stalled(), ok()] },
  { name: 'a connection dropped before the headers', scripts: [replies.dropBeforeHeaders(), ok()] },
  { name: 'a connection dropped in the middle of the body', scripts: [replies.dropMidBody(), ok()] },
  { name: 'an empty answer', scripts: [replies.empty(), ok()] },
  { name: 'a refusal', scripts: [replies.refusalText(), replies.refusalField(), ok()] },
  { name: 'a summary longer than its input', scripts: [replies.longerThanInput(), ok()] },
].map((one) => ({ ...one, ends: 'model', failure: null, requests: one.scripts.length }));

/** Faults that stay: after a few draws, or at once, it is decided without the model. */
const lasting: Case[] = [
  { name: 'empty answers', scripts: [replies.empty()], failure: 'Llm.BadOutput', requests: 3 },
  { name: 'blank answers', scripts: [replies.blank()], failure: 'Llm.BadOutput', requests: 3 },
  {
    name: 'refusals in their own field',
    scripts: [replies.refusalField()],
    failure: 'Llm.BadOutput',
    requests: 3,
  },
  { name: 'refusals as text', scripts: [ok(said.refusal)], failure: 'Llm.BadOutput', requests: 3 },
  { name: 'error text as a summary', scripts: [ok(said.error)], failure: 'Llm.BadOutput', requests: 3 },
  { name: 'placeholders', scripts: [ok(said.placeholder)], failure: 'Llm.BadOutput', requests: 3 },
  {
    name: 'web pages with status 200',
    scripts: [replies.webPage(said.page)],
    failure: 'Llm.BadOutput',
    requests: 3,
  },
  { name: 'answers cut off by their length', scripts: [replies.cutOff()], failure: 'Llm.BadOutput' },
  {
    name: 'summaries longer than their input',
    scripts: [replies.longerThanInput()],
    failure: 'Summary.NotSmaller',
    requests: 3,
  },
  { name: 'a content filter', scripts: [replies.contentFilter()], failure: 'Llm.Rejected', requests: 1 },
  {
    name: '401',
    scripts: [replies.status(401, replies.failure(said.error))],
    failure: 'Llm.Rejected',
    requests: 1,
  },
  { name: '429 without quota', scripts: [replies.status(429, quota)], failure: 'Llm.Rejected', requests: 1 },
  {
    name: 'a context overflow at any size',
    scripts: [replies.contextOverflow()],
    failure: 'Llm.ContextOverflow',
  },
].map((one) => ({ ...one, ends: 'extractive' }));

/** Faults that outlast the deadline. */
const outage: Case[] = [
  { name: '500 for good', scripts: [replies.status(500, replies.failure(said.error))], deadline: 2_500 },
  { name: 'silence for good', scripts: [replies.silence()], deadline: 2_500 },
  { name: 'a call in flight at the deadline', scripts: [replies.silence()], deadline: 700 },
  { name: 'a Retry-After beyond the deadline', scripts: [replies.rateLimited('3600')], deadline: 2_500 },
].map((one) => ({
  ...one,
  ends: 'extractive',
  failure: expect.stringMatching(/^Llm\.(Unavailable|RateLimited)$/),
}));

const withoutFallback: Case[] = [...lasting, ...outage].map((one) => ({
  ...one,
  name: `${one.name}, without a fallback`,
  ends: null,
}));

const cases = [...passing, ...lasting, ...outage, ...withoutFallback];

/** A session of one case while it lives. */
interface Life {
  before: Promise<SessionContext>;
  requests: RecordedRequest[];
  during: SessionContext[];
}

let stack: Stack;
let worker: RunningWorker;
let pool: Pool;
const lives = new Map<string, Life>();

beforeAll(async () => {
  // Endpoint, worker and tests share this process: a stall longer than this ends every call in flight, and each is made again.
  stack = await startStack({ worker: false, modelTimeoutMs: 20_000 });
  worker = await startWorker(stack.settings);
  worker.finished.catch(() => undefined);
  pool = openPool(stack.databaseUrl, { max: 4 });
  const reader = await stack.elsewhere();
  stack.model.reply(async (request) => {
    const { name, scripts } = cases.find((one) => one.name === request.body.model)!;
    const life = lives.get(name)!;
    const number = life.requests.push(request);
    await life.before;
    life.during.push(await reader.context({ session: name }));
    return scripts[Math.min(number, scripts.length) - 1]!(request);
  });
  // Six at once, so that their first reads are not far from their first calls.
  for (let at = 0; at < cases.length; at += 6) await Promise.all(cases.slice(at, at + 6).map(begin));
});

afterAll(async () => {
  await pool.end();
  await worker.shutdown();
  await stack.stop();
});

/**
 * The whole conversation comes in one turn, so that the context is the same before, during and after the fault. A case's
 * name is its summary model's too: that is how the endpoint knows whose turn it is.
 */
async function begin({ name, deadline = 120_000, ends }: Case): Promise<void> {
  const { palimpsest } = stack;
  const policy: PolicyInput = {
    contextWindow: 4_000,
    summary: {
      model: name,
      contextWindow: 16_000,
      deadline,
      fallback: ends === null ? 'none' : 'extractive',
    },
  };
  const messages = dialogue(16).flat();
  const stored = palimpsest.appendTurn({ session: name, turnId: 't', messages, policy });
  const before = stored.then(() => palimpsest.context({ session: name }));
  lives.set(name, { before, requests: [], during: [] });
  await before;
}

function stalled(): Script {
  return async (request) => ({ ...(await ok()(request)), fault: 'stall-mid-body' });
}

async function digestsOf(session: string): Promise<string[]> {
  const { rows } = await pool.query<{ text: string }>(
    'select text from palimpsest.digests where tenant_id = $1 and payer_session = $2',
    [stack.queuePrefix, session],
  );
  return rows.map(({ text }) => text);
}

describe.concurrent('invariant 3: failure leaves the context unchanged', () => {
  test.for(cases)('$name → $ends', async ({ name, deadline, ends, failure, requests }, { expect: check }) => {
    const { palimpsest } = stack;
    const life = lives.get(name)!;
    await palimpsest.settled({ session: name });
    const before = await life.before;
    const after = await palimpsest.context({ session: name });
    const status = await palimpsest.status({ session: name });
    const compactions = await committed(pool, stack.queuePrefix, name);

    check(before.generation).toBe(0);
    // A read that began before the deadline may end after the fallback's commit.
    const shown = deadline === undefined ? [before] : [before, after];
    for (const during of life.during) check(shown).toContainEqual(during);
    check(compactions.map(({ method }) => method)).toEqual(ends === null ? [] : [ends]);
    check(status.lastError?.type ?? null).toEqual(failure);
    check(status.failures).toBe(failure === null ? 0 : 1);
    if (requests !== undefined) check(life.requests).toHaveLength(requests);

    if (ends === null) check(after).toEqual(before);
    else check(after.tokens).toBeLessThan(before.tokens);
    const written = [after.messages, compactions, await digestsOf(name)];
    check(JSON.stringify(written)).not.toMatch(traces);
    check(compactions.every(({ snapshot }) => snapshot?.includes('## '))).toBe(true);
    if (ends !== 'model') check(await digestsOf(name)).toEqual([]);
  });

  test('contexts were read meanwhile', ({ expect: check }) => {
    const read = [...lives.values()].map(({ during }) => during.length);
    check(read.filter((count) => count > 0).length).toBeGreaterThan(lives.size / 2);
  });

  test('Retry-After is waited for', async ({ expect: check }) => {
    await stack.palimpsest.settled({ session: '429 with Retry-After' });
    const [first, second] = lives.get('429 with Retry-After')!.requests;
    check(second!.at - first!.at).toBeGreaterThanOrEqual(3_000);
  });
});
