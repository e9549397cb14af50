/**
 * Another redaction, by a new version of the forms or by a new pattern, redacts the standing memory by code, in one generation
 * and without a call of the model; earlier generations are redacted when they are restored.
 */
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { callRecoveryTool } from '../../../src/contract/recovery-tools.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool } from '../../support/pool.js';
import { words } from '../../support/dialogue.js';
import { about } from '../../support/model-replies.js';
import { appendTurns, replayed } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let pool: Pool;

beforeAll(async () => {
  stack = await startStack();
  pool = openPool(stack.databaseUrl);
});

afterAll(async () => {
  await pool.end();
  await stack.stop();
});

const secret = 'ORCHID-4711';
const turns = Array.from({ length: 30 }, (_, index): ChatMessage[] => [
  {
    role: 'user',
    content: `Step ${index}: use ${secret} for the gate ${index}, then write down the time of the visit.`,
  },
  {
    role: 'assistant',
    content: `The gate ${index} opened with ${secret}. ${words(80, index)}`,
  },
]);

const modes: NonNullable<PolicyInput['summary']>[] = [
  { mode: 'journal' },
  { mode: 'incremental' },
  { mode: 'full_rewrite' },
  { mode: 'journal', method: 'extractive' },
];

const memoryOf = async (session: string, generation: number) => {
  const { rows } = await pool.query<{ row: string; reason: string; redaction: string }>(
    `select row_to_json(c)::text as row, reason, redaction from palimpsest.compactions c
     where session_id = $1 and generation = $2`,
    [session, generation],
  );
  return rows[0]!;
};

test.each(modes)('in the mode %o', async (summary) => {
  const { palimpsest, model } = stack;
  const session = JSON.stringify(summary);
  model.reply(about(`- The gates open with ${secret}.`));
  const policy: PolicyInput = {
    contextWindow: 3_000,
    summary,
    // Nothing is requested ahead while the requests are counted.
    memory: { eager: false },
    pins: [secret.slice(0, 6), { pattern: 'gate \\d+' }],
  };
  await appendTurns(palimpsest, session, turns, { policy });
  await palimpsest.settled({ session });
  const before = await palimpsest.context({ session });
  expect(before.generation).toBeGreaterThan(0);
  expect((await memoryOf(session, before.generation)).row).toContain(secret);
  const originals = await replayed(palimpsest, session);
  const requests = model.requests.length;

  const patterns = [secret, 'gate 1\\d?'];
  await palimpsest.configure({ session, policy: { ...policy, redact: { patterns } } });
  const after = await palimpsest.context({ session });
  const [head] = after.messages;
  expect(after.generation).toBe(before.generation + 1);
  expect(String(head?.content)).toContain('[REDACTED:custom:');
  expect(String(head?.content)).not.toContain(secret);
  // The policy names this text itself.
  expect(String(head?.content)).toContain(`<pin>${secret.slice(0, 6)}</pin>`);
  const redacted = await memoryOf(session, after.generation);
  expect(redacted.reason).toBe('redact');
  expect(redacted.row).not.toContain(secret);
  expect(redacted.row).not.toMatch(/gate 1\d?\b/);
  expect(model.requests).toHaveLength(requests);
  // The tail stays as it is, and nothing happens a second time.
  expect(after.messages.slice(1)).toEqual(before.messages.slice(1));
  expect((await palimpsest.context({ session })).generation).toBe(after.generation);
  expect((await palimpsest.status({ session })).tokens).toBe(after.tokens);

  await palimpsest.restore({ session, generation: 1 });
  const restored = await palimpsest.context({ session });
  expect(restored.generation).toBe(after.generation + 1);
  const { row } = await memoryOf(session, restored.generation);
  expect(row).not.toContain(secret);
  expect(model.requests).toHaveLength(requests);
  expect(await replayed(palimpsest, session)).toEqual(originals);

  model.reply(about('- The gates open.'));
  await appendTurns(palimpsest, session, turns, { from: turns.length });
  await palimpsest.settled({ session });
  const later = await palimpsest.context({ session });
  expect(later.generation).toBeGreaterThan(restored.generation);
  expect((await memoryOf(session, later.generation)).row).not.toContain(secret);
  for (const { body } of model.requests.slice(requests)) expect(JSON.stringify(body)).not.toContain(secret);
});

test('a redaction that finds nothing in the memory makes no generation', async () => {
  const { palimpsest } = stack;
  const session = 'nothing';
  const policy: PolicyInput = { contextWindow: 3_000, summary: { mode: 'journal', method: 'extractive' } };
  await appendTurns(palimpsest, session, turns, { policy });
  await palimpsest.settled({ session });
  const before = await palimpsest.context({ session });
  const { redaction } = await memoryOf(session, before.generation);
  await palimpsest.configure({ session, policy: { ...policy, redact: { patterns: ['TULIP-\\d+'] } } });
  expect(await palimpsest.context({ session })).toEqual(before);
  expect((await memoryOf(session, before.generation)).redaction).not.toBe(redaction);
});

test('the agent reads the original of a carried request with the recovery tools', async () => {
  const { palimpsest } = stack;
  const session = 'carried';
  const request = 'Log in to the shop with the password Tr0ub4dor&3x and read all pages.';
  const policy: PolicyInput = { contextWindow: 3_000, summary: { mode: 'journal', method: 'extractive' } };
  const pages = Array.from({ length: 60 }, (_, index): ChatMessage[] => [
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: `c${index}`, type: 'function', function: { name: 'read', arguments: '{}' } }],
    },
    {
      role: 'tool',
      tool_call_id: `c${index}`,
      content: `Page ${index}: ${words(60, index)}`,
    },
  ]);
  await appendTurns(palimpsest, session, [[{ role: 'user', content: request }], ...pages], { policy });
  await palimpsest.settled({ session });
  const { messages } = await palimpsest.context({ session });
  const carried = messages.find(({ content }) => String(content).startsWith('Log in to the shop'));
  expect(carried?.content).toMatch(
    /^Log in to the shop with the password \[REDACTED:password:[0-9a-f]{8}\] and read all pages\.$/,
  );
  expect(String(messages[0]?.content)).toContain('message 1, the request in force');
  const found = await callRecoveryTool(palimpsest, session, 'expand_history', { from_message: 1 });
  expect(found).toContain('Tr0ub4dor&3x');
});
