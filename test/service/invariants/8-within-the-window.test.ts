/**
 * Invariant 8 in the provider's own tokens: for any reported usage, context and request overhead stay within the declared
 * window. The provider is simulated: it counts `overhead + factor × local count`.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { fitted } from '../../../src/library/context.js';
import { atOnce } from '../../../src/steps.js';
import { readContextSource } from '../../../src/store/reading/context.js';
import { openPool } from '../../support/pool.js';
import { loadSession } from '../../../src/store/sessions/sessions.js';
import { appendTurn } from '../../../src/store/append/turns.js';
import { createDatabase, type TestDatabase } from '../../support/database.js';
import { newSession, talk } from '../../support/store.js';

let database: TestDatabase;
let pool: Pool;

beforeAll(async () => {
  database = await createDatabase();
  pool = openPool(database.url);
});

afterAll(async () => {
  await pool.end();
  await database.drop();
});

const call = { id: 'c', type: 'function' as const, function: { name: 'read', arguments: '{}' } };

const result = (words: number) => ({
  role: 'tool' as const,
  tool_call_id: 'c',
  content: 'a word of it '.repeat(words / 4),
});

describe('a report of usage', () => {
  it('of a request with less overhead than declared never lets more into the window', async () => {
    const policy: PolicyInput = { model: 'gpt-4o', contextWindow: 128_000, overhead: 10_000 };
    const ids = newSession();
    await appendTurn(pool, { ...ids, turnId: '1', messages: talk(1, 5_800), policy });
    const { liveTokens, budget } = await loadSession(pool, ids);
    const usage = { inputTokens: 6_000 + liveTokens, outputTokens: 20 };
    const asked = { role: 'assistant' as const, content: null, tool_calls: [call] };
    await appendTurn(pool, { ...ids, turnId: '2', messages: [asked], usage });
    await appendTurn(pool, { ...ids, turnId: '3', messages: [result(180_000)] });
    expect((await loadSession(pool, ids)).budget).toBe(budget);
    const { context } = atOnce(fitted(ids.session, await readContextSource(pool, ids, 'own')));
    expect(6_000 + context.tokens).toBeLessThanOrEqual(128_000);
  });

  it('without cached tokens never lets more into the window', async () => {
    const ids = newSession();
    const policy: PolicyInput = { model: 'claude-sonnet-4-5' };
    await appendTurn(pool, { ...ids, turnId: '0', messages: talk(1, 40_000), policy });
    const before = await loadSession(pool, ids);
    for (const turn of ['1', '2', '3', '4']) {
      const { liveTokens } = await loadSession(pool, ids);
      const usage = { inputTokens: Math.round(liveTokens / 4), outputTokens: 20 };
      await appendTurn(pool, {
        ...{ ...ids, turnId: turn, usage },
        messages: [{ role: 'assistant', content: 'done' }, ...talk(1, 400)],
      });
    }
    expect((await loadSession(pool, ids)).budget).toBe(before.budget);
  });
});
