/**
 * Invariant 6. A model result that reached the database is never paid for again: chunks, halves, consolidations. Requests are
 * counted at the endpoint.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool } from '../../../src/store/connection/pool.js';
import { dialogue } from '../../support/dialogue.js';
import { about, ok, refusalText, status, withWindow, type Script } from '../../support/model-replies.js';
import type { RecordedRequest } from '../../support/model-server.js';
import { appendTurns } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let pool: Pool;

beforeAll(async () => {
  stack = await startStack();
  pool = openPool(stack.databaseUrl, { max: 2 });
});

afterAll(async () => {
  await pool.end();
  await stack.stop();
});

/** Small chunks, so that a compaction takes several and a consolidation. One summary model for each test. */
function policyOf(model: string, summary: PolicyInput['summary'] = {}): PolicyInput {
  return { contextWindow: 4_000, summary: { model, contextWindow: 16_000, chunkTokens: 500, ...summary } };
}

const answered = (requests: readonly RecordedRequest[]) =>
  requests.filter((request) => request.answered === 200);

const isConsolidation = ({ body }: RecordedRequest) => /<digest \d{12} 1>/.test(body.messages[1]!.content);

const inAll = (requests: readonly RecordedRequest[]) => requests.map(({ key }) => key);

/** Requests of one summary model, in order. */
function requestsOf(model: string): RecordedRequest[] {
  return stack.model.requests.filter(({ body }) => body.model === model);
}

function script(byModel: Record<string, Script>): void {
  stack.model.reply((request) => (byModel[request.body.model] ?? ok())(request));
}

describe('invariant 6: a model result is never paid for again', () => {
  test('a chunk that does not fit is requested in halves, never again unchanged', async () => {
    const { palimpsest } = stack;
    const session = 'overflow';
    script({ overflow: withWindow(1_300) });
    const policy = policyOf('overflow', { chunkTokens: 2_500 });
    await appendTurns(palimpsest, session, dialogue(16), { policy });
    await palimpsest.settled({ session });
    const requests = requestsOf('overflow');
    expect(requests.filter((request) => request.answered === 400).length).toBeGreaterThan(2);
    expect(new Set(inAll(requests)).size).toBe(requests.length);
    const [outcome] = await palimpsest.compactions({ session });
    expect(outcome).toMatchObject({ method: 'model' });
    expect(outcome!.chunks).toBeGreaterThan(2);
  });

  test('digests that do not fit together with the snapshot are merged first, and no request is made twice', async () => {
    const { palimpsest } = stack;
    const session = 'merges';
    const policy = policyOf('merges', { chunkTokens: 1_500 });
    const long = about(`## Current state\n- ${'the queue was drained and the ledger agrees; '.repeat(40)}`);
    script({ merges: long });
    await appendTurns(palimpsest, session, dialogue(16), { policy });
    await palimpsest.settled({ session });
    // Now there is a snapshot, and the endpoint takes it with one digest, not with two.
    const before = requestsOf('merges').length;
    script({ merges: (request) => withWindow(isConsolidation(request) ? 2_050 : 4_000, long)(request) });
    // At once: turn by turn the compaction could begin with fewer of them, and have one digest only.
    await palimpsest.appendTurn({ session, turnId: 'rest', messages: dialogue(32).slice(16).flat() });
    await palimpsest.settled({ session });
    const requests = requestsOf('merges');
    expect(
      requests.slice(before).some((request) => isConsolidation(request) && request.answered === 400),
    ).toBe(true);
    expect(new Set(inAll(requests)).size).toBe(requests.length);
    const compactions = await palimpsest.compactions({ session });
    expect(compactions.map(({ method }) => method)).toEqual(['model', 'model']);
  });

  test('the answers of a failed compaction are used by the next one', async () => {
    const { palimpsest } = stack;
    const session = 'second attempt';
    const policy = policyOf('second', { fallback: 'none' });
    // The chunk with the fourth request is refused, whatever comes before and after it is answered.
    const poisoned: Script = async (request) => {
      if (!request.body.messages[1]!.content.includes('Request 4:')) return ok()(request);
      await expect.poll(() => answered(requestsOf('second')).length).toBeGreaterThan(1);
      return status(403)(request);
    };
    script({ second: poisoned });
    await palimpsest.appendTurn({ session, turnId: 't', messages: dialogue(16).flat(), policy });
    await palimpsest.settled({ session });
    expect(await palimpsest.compactions({ session })).toEqual([]);
    const first = requestsOf('second');
    const refused = first.filter((request) => request.answered === 403);
    expect(refused).toHaveLength(1);
    expect(answered(first).length).toBeGreaterThan(1);
    expect(first.some(isConsolidation)).toBe(false);

    script({});
    // More turns have come: the later plan finds what was cut from the same left edge.
    await palimpsest.appendTurn({ session, turnId: 't2', messages: dialogue(18).slice(16).flat() });
    const outcome = await palimpsest.compact({ session });
    expect(outcome).toMatchObject({ generation: 1, method: 'model' });
    const again = requestsOf('second').slice(first.length);
    const known = new Set(inAll(answered(first)));
    expect(again.filter(({ key }) => known.has(key))).toEqual([]);
    expect(again.filter(({ key }) => key === refused[0]!.key)).toHaveLength(1);
    // Calls of the failed compaction count as well, except for an answer that came while it was given up.
    expect(outcome!.modelCalls).toBeGreaterThan(answered(again).length);
    expect(outcome!.modelCalls).toBeLessThanOrEqual(answered(requestsOf('second')).length);
  });

  test('a consolidation that is refused costs no chunk again', async () => {
    const { palimpsest } = stack;
    const session = 'refused fold';
    script({ fold: (request) => (isConsolidation(request) ? refusalText() : ok())(request) });
    const policy = policyOf('fold', { fallback: 'none' });
    await palimpsest.appendTurn({ session, turnId: 't', messages: dialogue(16).flat(), policy });
    await palimpsest.settled({ session });
    const first = requestsOf('fold');
    const chunks = first.filter((request) => !isConsolidation(request)).length;
    expect(chunks).toBeGreaterThan(3);
    // A refusal may be a bad draw: it is drawn again, and then it is final.
    expect(first.length - chunks).toBe(3);
    script({});
    expect(await palimpsest.compact({ session })).toMatchObject({ method: 'model', chunks });
    const again = requestsOf('fold').slice(first.length);
    expect(again.map(isConsolidation)).toEqual([true]);
  });

  test('sessions of one tenant share equal answers; another tenant pays again', async () => {
    const { palimpsest, databaseUrl, temporal, queuePrefix } = stack;
    const other = await Palimpsest.connect({
      ...{ databaseUrl, temporal, queuePrefix },
      tenant: `${queuePrefix}-other`,
    });
    try {
      const policy = policyOf('shared');
      const run = async (of: Palimpsest, session: string) => {
        const before = requestsOf('shared').length;
        await of.appendTurn({ session, turnId: 't', messages: dialogue(16).flat(), policy });
        await of.settled({ session });
        expect(await of.compactions({ session })).toMatchObject([{ generation: 1, method: 'model' }]);
        return requestsOf('shared').length - before;
      };
      const paid = await run(palimpsest, 'one');
      expect(paid).toBeGreaterThan(4);
      expect(await run(palimpsest, 'two')).toBe(0);
      expect(await palimpsest.compactions({ session: 'two' })).toMatchObject([
        { modelCalls: 0, modelInputTokens: 0 },
      ]);
      expect(await run(other, 'one')).toBe(paid);
      const { rows } = await pool.query<{ keys: number; tenants: number }>(
        `select count(distinct key)::int as keys, count(distinct tenant_id)::int as tenants
         from palimpsest.digests where payer_session = 'one'`,
      );
      expect(rows).toEqual([{ keys: 2 * paid, tenants: 2 }]);
      expect(new Set(inAll(requestsOf('shared'))).size).toBe(2 * paid);
    } finally {
      await other.close();
    }
  });

  test('many compactions of a growing session, without paying for anything twice', async () => {
    const { palimpsest } = stack;
    const session = 'growing';
    const turns = dialogue(60);
    for (let from = 0; from < turns.length; from += 5) {
      await appendTurns(palimpsest, session, turns.slice(from, from + 5), {
        policy: policyOf('growing'),
        from,
      });
      await palimpsest.settled({ session });
    }
    const compactions = await palimpsest.compactions({ session });
    expect(compactions.length).toBeGreaterThan(3);
    const requests = requestsOf('growing');
    expect(compactions.reduce((sum, { modelCalls }) => sum + modelCalls, 0)).toBe(requests.length);
    expect(new Set(inAll(requests)).size).toBe(requests.length);
  });
});
