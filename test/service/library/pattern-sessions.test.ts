/**
 * Sessions whose policy has patterns: hostile ones block no other session, and patterns stored before the check cause no
 * defect.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool } from '../../../src/store/connection/pool.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
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

async function fill(session: string, policy: PolicyInput, said = 'Use port 8080.'): Promise<void> {
  for (const [index, [request, answer]] of dialogue(6).entries()) {
    const messages = [{ ...request!, content: `${said}\n${String(request!.content)}` }, answer!];
    await stack.palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
  }
}

/** Stores the policy of a session as an earlier version would have. */
async function store(session: string, policy: PolicyInput): Promise<void> {
  const stored = await pool.query(
    `update palimpsest.sessions set policy = jsonb_set(policy::jsonb, '{session}', $3::jsonb)
     where tenant_id = $1 and session_id = $2`,
    [stack.queuePrefix, session, JSON.stringify(policy)],
  );
  expect(stored.rowCount).toBe(1);
}

test('a compaction with patterns on which a backtracking engine never ends is done, and so are concurrent ones', async () => {
  const { palimpsest } = stack;
  const letters = 'a'.repeat(3_000);
  const pins = [{ pattern: 'a*a*a*a*b' }, { pattern: '(?:a|a){10}(?:a|a){10}b' }];
  const policy = { contextWindow: 16_000, keep: { messages: 2 } };
  await fill('hostile', { ...policy, pins, redact: { patterns: ['(?:a?){30}a{30}b'] } }, letters);
  await fill('beside', policy);
  const [hostile, beside] = await Promise.all([
    palimpsest.compact({ session: 'hostile' }),
    palimpsest.compact({ session: 'beside' }),
  ]);
  expect(hostile).toMatchObject({ generation: 1 });
  expect(beside).toMatchObject({ generation: 1 });
});

describe('a policy stored before its patterns were checked', () => {
  const lookbehind = '(?<=port )\\d+';
  const policy = { ...smallPolicy, contextWindow: 8_000, keep: { messages: 2 } };

  test('continues without a pin that cannot be matched, and the status reports it', async () => {
    const { palimpsest } = stack;
    const session = 'old-pins';
    await fill(session, policy);
    await store(session, { ...policy, pins: [{ pattern: lookbehind }, { pattern: 'port \\d+' }] });
    expect(await palimpsest.compact({ session })).toMatchObject({ generation: 1 });
    const { lastError, skippedPins } = await palimpsest.status({ session });
    expect(lastError).toBeNull();
    expect(skippedPins).toEqual([
      { path: 'policy.pins[0].pattern', reason: expect.stringContaining('a lookaround') },
    ]);
    const { messages } = await palimpsest.context({ session });
    expect(JSON.stringify(messages)).toContain('<pin>port 8080</pin>');
  });

  test('with one in redact stops compactions until the pattern is replaced, so that no secret is shown', async () => {
    const { palimpsest, model } = stack;
    const session = 'old-redact';
    await fill(session, policy);
    await store(session, { ...policy, redact: { patterns: [lookbehind] } });
    const before = await palimpsest.context({ session });
    const asked = model.requests.length;
    await expect(palimpsest.compact({ session })).rejects.toMatchObject({
      type: 'Input.Invalid',
      message: expect.stringMatching(/^policy\.redact\.patterns\[0\] .*a lookaround/),
      hint: expect.stringContaining('Match the surrounding words'),
    });
    expect(model.requests).toHaveLength(asked);
    expect(await palimpsest.context({ session })).toEqual(before);
    const { lastError } = await palimpsest.status({ session });
    expect(lastError).toMatchObject({
      type: 'Input.Invalid',
      message: expect.stringContaining('a lookaround'),
    });

    await palimpsest.configure({ session, policy: { ...policy, redact: { patterns: ['port \\d+'] } } });
    expect(await palimpsest.compact({ session })).toMatchObject({ generation: 1 });
    expect(JSON.stringify(model.requests.slice(asked))).not.toContain('port 8080');
    expect((await palimpsest.status({ session })).lastError).toBeNull();
  });
});
