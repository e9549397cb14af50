/** Planted secrets of every kind and place reach neither the model nor anything that memory keeps; the log keeps them. */
import type { Pool } from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { openPool } from '../../../src/store/connection/pool.js';
import { places, planted, shows } from '../../cases/secrets.js';
import { appendTurns } from '../../support/sessions.js';
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

/** A turn for each kind, with the secret in a user text, in the arguments of a call, and in its result. */
function turns(): ChatMessage[][] {
  const [inText, inOutput, inArguments] = Object.values(places);
  return planted.map(({ kind, text }, index): ChatMessage[] => [
    { role: 'user', content: `Step ${index}, ${kind}. ${inText!(text)}` },
    {
      role: 'assistant',
      content: null,
      tool_calls: [
        {
          id: `call_${index}`,
          type: 'function',
          function: { name: 'write_file', arguments: inArguments!(text) },
        },
      ],
    },
    { role: 'tool', tool_call_id: `call_${index}`, content: inOutput!(text) },
    { role: 'assistant', content: `Step ${index} is done.` },
  ]);
}

test.each([
  ['journal', { mode: 'journal' }],
  ['snapshots', { mode: 'incremental' }],
  ['extraction rules', { mode: 'incremental', method: 'extractive' }],
] as [string, NonNullable<PolicyInput['summary']>][])(
  'with %s, no planted secret leaves the log',
  async (name, summary) => {
    const session = `planted, ${name}`;
    const before = stack.model.requests.length;
    // No field names redaction: it is on by default.
    const policy: PolicyInput = { contextWindow: 6_000, summary };
    await appendTurns(stack.palimpsest, session, turns(), { policy });
    await stack.palimpsest.settled({ session });
    const requests = stack.model.requests.slice(before).map(({ body }) => JSON.stringify(body));
    const kept: string[] = [];
    for (const table of ['compactions', 'digests', 'archive_parts']) {
      const { rows } = await pool.query<{ row: string }>(
        `select row_to_json(t)::text as row from palimpsest.${table} t`,
      );
      kept.push(...rows.map(({ row }) => row));
    }
    const { rows: heads } = await pool.query(
      'select 1 from palimpsest.compactions where session_id = $1 and generation > 0',
      [session],
    );
    expect(heads.length).toBeGreaterThan(0);
    if (summary.method !== 'extractive') expect(requests.join('')).toContain('[REDACTED:');
    const told = [...requests, ...kept].join('\n').replaceAll('\\\\n', '\n').replaceAll('\\n', '\n');
    expect(planted.filter((one) => shows(told, one)).map(({ kind }) => kind)).toEqual([]);
    let log = '';
    for await (const { message } of stack.palimpsest.replay({ session })) log += String(message.content);
    expect(planted.filter((one) => !shows(log, one)).map(({ kind }) => kind)).toEqual([]);
  },
);
