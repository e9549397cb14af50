/**
 * Invariant 1. Nothing is lost: the log is append-only; a replay of the archive parts in order and then the tail returns every
 * message exactly. Data that was changed outside the store is reported, never replayed as an original.
 */
import fc from 'fast-check';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ChatMessage, Json } from '../../../src/conversation/message.js';
import { openPool, ownerOf } from '../../support/pool.js';
import { dialogue } from '../../support/dialogue.js';
import { histories } from '../../support/histories.js';
import { appendTurns, compactIfPossible, replayed } from '../../support/sessions.js';
import { sized } from '../../support/size.js';
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

/** Any UTF-16 code units: NUL, halves of surrogate pairs, separators that are not line ends in JSON. */
const codeUnits = fc
  .array(
    fc.oneof(
      fc.integer({ min: 0, max: 0xffff }),
      fc.constantFrom(0, 0xd800, 0xdfff, 0xfffd, 0xfeff, 0x2028, 0x22, 0x5c, 0x7f),
    ),
    { maxLength: 60 },
  )
  .map((units) => String.fromCharCode(...units));

const oddKeys = fc.oneof(
  fc.constantFrom(
    '10',
    '2',
    '0',
    '-1',
    '1e3',
    '',
    '__proto__',
    'constructor',
    'length',
    'seq',
    'tokens',
    '\0',
    '\ud83d',
  ),
  codeUnits,
);

const numbers = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }).filter((number) => !Object.is(number, -0)),
  fc.constantFrom(1e21, 5e-324, 2 ** 53, -1e-7, 1.7976931348623157e308),
);

const { value: nested } = fc.letrec<{ value: Json }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.oneof(codeUnits, numbers, fc.boolean(), fc.constant(null)),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.array(fc.tuple(oddKeys, tie('value')), { maxLength: 4 }).map((entries) => Object.fromEntries(entries)),
  ),
}));

/** A message of a malformed history with odd text, odd extra fields, and its keys in any order. */
const odd = fc
  .record({
    text: fc.option(codeUnits.filter((text) => text.trim() !== '')),
    extras: fc.array(fc.tuple(oddKeys, nested), { maxLength: 3 }),
    size: fc.oneof({ weight: 60, arbitrary: fc.constant(0) }, { weight: 1, arbitrary: fc.constant(40_000) }),
    order: fc.array(fc.nat(), { minLength: 12, maxLength: 12 }),
  })
  .map((twist) => (message: ChatMessage): ChatMessage => {
    const { text, extras, size, order } = twist;
    const content = size > 0 ? `${text ?? ''}${'many words '.repeat(size)}` : (text ?? message.content);
    const entries = [
      ...extras.filter(([key]) => !(key in message)),
      ...Object.entries({ ...message, content }),
    ];
    const shuffled = entries
      .map((entry, index) => ({ entry, at: order[index] ?? 0 }))
      .sort((a, b) => a.at - b.at);
    return Object.fromEntries(shuffled.map(({ entry }) => entry));
  });

const odyssey = fc
  .record({
    histories: fc.array(histories, { minLength: 2, maxLength: 4 }),
    twists: fc.array(odd, { minLength: 60, maxLength: 60 }),
    /** Messages of each turn, and whether a compaction is asked for after it. */
    turns: fc.array(fc.tuple(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 0, max: 4 })), {
      minLength: 60,
      maxLength: 60,
    }),
    method: fc.constantFrom('model' as const, 'extractive' as const),
    contextWindow: fc.constantFrom(3_000, 8_000),
  })
  .map(({ histories: parts, twists, turns, ...policy }) => {
    const messages = parts.flat().map((message, index) => twists[index % twists.length]!(message));
    const played: { messages: ChatMessage[]; compact: boolean }[] = [];
    for (let from = 0; from < messages.length;) {
      const [size, compact] = turns[played.length % turns.length]!;
      played.push({ messages: messages.slice(from, from + size), compact: compact === 0 });
      from += size;
    }
    return { turns: played, ...policy };
  });

describe('invariant 1: nothing is lost', () => {
  test('any messages in any turns are replayed as the same JSON text, after any compactions', async () => {
    const { palimpsest } = stack;
    let run = 0;
    let compacted = 0;
    await fc.assert(
      fc.asyncProperty(odyssey, async ({ turns, method, contextWindow }) => {
        const session = `odyssey-${++run}`;
        const policy = { contextWindow, summary: { method } };
        const given: string[] = [];
        for (const [index, { messages, compact }] of turns.entries()) {
          given.push(...messages.map((message) => JSON.stringify(message)));
          await palimpsest.appendTurn({
            session,
            turnId: `t-${index}`,
            messages,
            ...(index === 0 ? { policy } : {}),
          });
          if (compact) await compactIfPossible(palimpsest, session);
        }
        await palimpsest.settled({ session });
        expect(await replayed(palimpsest, session)).toEqual(given);

        const parts = await palimpsest.archive({ session });
        compacted += parts.length;
        let next = 1;
        for (const { part, fromSeq, throughSeq } of parts) {
          expect(fromSeq).toBe(next);
          const evicted = await palimpsest.archive({ session, part });
          expect(evicted.map(({ message }) => JSON.stringify(message))).toEqual(
            given.slice(fromSeq - 1, throughSeq),
          );
          next = throughSeq + 1;
        }
      }),
      { numRuns: sized(4, 10), endOnFailure: true },
    );
    expect(compacted).toBeGreaterThan(0);
  });

  /** Each runs with the table's guards off, as a failing disk or an operator with a console would. */
  const changes = [
    {
      what: 'an archived body is changed',
      sql: `update palimpsest.messages set body = replace(body, 'Request 2', 'Request 7')`,
      seq: 3,
      details: { seq: 3 },
    },
    {
      what: 'a body of the tail is changed',
      sql: `update palimpsest.messages set body = replace(body, 'Answer 20', 'Answer 21')`,
      seq: 40,
      details: { seq: 40 },
    },
    {
      what: 'an archived body is changed together with its hash',
      sql: `update palimpsest.messages set body = '{"role":"user","content":"x"}',
              sha256 = sha256(convert_to('{"role":"user","content":"x"}', 'UTF8'))`,
      seq: 3,
      details: { part: 1 },
    },
    {
      what: 'an archived message is deleted',
      sql: 'delete from palimpsest.messages',
      seq: 3,
      details: { seq: 3 },
    },
    {
      what: 'a message of the tail is deleted',
      sql: 'delete from palimpsest.messages',
      seq: 40,
      details: { seq: 40 },
    },
  ];

  test.each(changes)('$what: replay says Store.Corrupt', async ({ what, sql, seq, details }) => {
    const { palimpsest, queuePrefix: tenant } = stack;
    const session = `corrupt: ${what}`;
    await appendTurns(palimpsest, session, dialogue(20), { policy: { contextWindow: 4_000 } });
    await palimpsest.settled({ session });
    const [part] = await palimpsest.archive({ session });
    expect(part?.throughSeq).toBeGreaterThan(3);
    expect(part?.throughSeq).toBeLessThan(40);
    expect(await replayed(palimpsest, session)).toHaveLength(40);

    const client = await ownerOf(pool).connect();
    try {
      await client.query('begin');
      await client.query('alter table palimpsest.messages disable trigger all');
      await client.query('alter table palimpsest.messages drop constraint messages_sha256');
      const { rowCount } = await client.query(
        `${sql} where tenant_id = $1 and session_id = $2 and seq = $3`,
        [tenant, session, seq],
      );
      expect(rowCount).toBe(1);
      await client.query('alter table palimpsest.messages enable trigger all');
      // Later writes are guarded again; the changed row stays changed.
      await client.query(
        `alter table palimpsest.messages add constraint messages_sha256
         check (sha256 = sha256(convert_to(body, 'UTF8'))) not valid`,
      );
      await client.query('commit');
    } finally {
      client.release();
    }
    await expect(replayed(palimpsest, session)).rejects.toMatchObject({ type: 'Store.Corrupt', details });
  });
});
