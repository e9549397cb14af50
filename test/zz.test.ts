import { afterAll, beforeAll, expect, test } from 'vitest';
import { ended, fillSessions, openBackfills, until, type BackfillBench } from './support/backfills.js';
import { smallPolicy, startStack, type Stack } from './support/stack.js';
let stack: Stack; let bench: BackfillBench;
beforeAll(async () => { stack = await startStack(); bench = await openBackfills(stack, { pageSize: 20 }); });
afterAll(async () => { await bench.close(); await stack.stop(); });
const priced = { ...smallPolicy, prices: { input: 1_000 } };
test('x', async () => {
  const tenant = 'e' + stack.queuePrefix;
    await fillSessions(bench.pool, tenant, 4, { policy: priced });
    await fillSessions(bench.pool, tenant, 4, { prefix: 'long-', turns: 120, policy: priced });
    const backfills = bench.of(tenant);
    const estimate = await backfills.estimate({});
    await backfills.start({ job: 'j' });
    const report = await until(backfills, 'j', ended);
    console.log(estimate, report);
    console.log((await bench.pool.query('select session_id, generation, reason, method, chunks, model_calls, model_input_tokens, model_output_tokens, tokens_before, tokens_after, evicted, fallback from palimpsest.compactions where tenant_id=$1 and generation>0', [tenant])).rows);
    expect(1).toBe(1);
});
