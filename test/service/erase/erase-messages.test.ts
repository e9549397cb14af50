/**
 * Erased messages are gone from every column of every table, from every read, and from what a compaction in flight could still
 * commit. A scripted model copies the planted texts into everything that it writes, so that each place holds them before.
 */
import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { historyToJSON } from '@temporalio/common/lib/proto-utils.js';
import type { Pool } from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ChatMessage, LoggedMessage } from '../../../src/conversation/message.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { connectClient } from '../../../src/temporal/connection.js';
import { sessionWorkflowId, taskQueues } from '../../../src/temporal/names.js';
import { columnsHolding, textColumns } from '../../support/columns.js';
import { document } from '../../support/documents.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startEmbeddingServer, type EmbeddingServer } from '../../support/embedding-server.js';
import { completion, notesOn, type Script } from '../../support/model-replies.js';
import { openPool } from '../../support/pool.js';
import { appendTurns } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let pool: Pool;
let embeddings: EmbeddingServer;

const planted = /planted-[a-z]+-[0-9a-f]{12}/g;

/** Repeats every planted text of the request in each part of its answer. */
const copies: Script = (request) => {
  const asked = request.body.messages.map(({ content }) => content).join('\n');
  const material = request.body.messages.at(-1)?.content ?? '';
  // Code, not the model, adds exact values that a summary lacks.
  const found = [...new Set(asked.match(planted) ?? [])].filter((text) => !text.includes('-args-'));
  const marked = [...material.matchAll(/^<\d{3}>(\d+) \w+[^\n]*\n([^\n]{0,200})/gm)];
  const rule = marked.find(([, , text]) => text?.includes('Always'));
  const last = marked.at(-1)?.[1] ?? '1';
  const notes = found.map((text) => `- It was said: ${text} [m${last}]`);
  const content = material.includes('<transcript ')
    ? [
        '## Current state',
        ...(material.match(/\b(?:Request|Answer) \d+: \w+ \w+ \w+/g) ?? [])
          .slice(0, 8)
          .map((one) => `- ${one}`),
        ...found.map((text) => `- ${text}`),
      ].join('\n')
    : notesOn(material, [
        rule ? `- new rule: ${rule[2]} [m${rule[1]}]` : '- none',
        `- next: ${found.join(' ') || 'go on'} [m${last}]`,
      ]).replace('## Notes', ['## Notes', ...notes].join('\n'));
  return completion(request, { message: { content }, finish: 'stop', output: content, withoutUsage: true });
};

beforeAll(async () => {
  embeddings = await startEmbeddingServer();
  stack = await startStack({
    settings: {
      inlineTurnTenants: ['*'],
      embeddings: { apiKey: 'test', baseUrl: embeddings.url, model: 'tiny' },
    },
  });
  pool = openPool(stack.databaseUrl);
  stack.model.reply(copies);
});

afterAll(async () => {
  await pool.end();
  await stack.stop();
  await embeddings.close();
});

const policyOf = (mode: 'journal' | 'incremental'): PolicyInput => ({
  ...smallPolicy,
  summary: { mode },
  pins: [{ pattern: 'planted-pin-[0-9a-f]{12}' }],
});

interface Planted {
  session: string;
  texts: string[];
  /** Messages with planted texts. */
  seqs: number[];
  turns: ChatMessage[][];
}

/** A session that says each text once, and is then compacted several times. */
async function plant(mode: 'journal' | 'incremental', session = randomUUID()): Promise<Planted> {
  const { palimpsest } = stack;
  const text = (kind: string) => `planted-${kind}-${randomUUID().slice(-12)}`;
  const [said, name, meta, pin, args, result] = ['said', 'name', 'meta', 'pin', 'args', 'result'].map(text);
  const long = dialogue(1, 300)[0]![0]!.content as string;
  const turns: ChatMessage[][] = [
    ...dialogue(2),
    [
      {
        role: 'user',
        name,
        content: `Always call me ${said} and keep ${pin}. Request 3: order it under ${said}.`,
        metadata: { note: meta },
      },
      {
        role: 'assistant',
        content: null,
        tool_calls: [
          {
            id: 'call_1',
            type: 'function',
            function: { name: 'order', arguments: JSON.stringify({ customer: args }) },
          },
        ],
      },
      { role: 'tool', tool_call_id: 'call_1', content: `Answer 3: customer ${result}. ${long} ${long}` },
      { role: 'assistant', content: `It is done for ${said}: see ${result}.` },
    ],
  ];
  await appendTurns(palimpsest, session, turns, { policy: policyOf(mode) });
  // Stores reductions of the planted result for this budget.
  await palimpsest.context({ session, budget: 500 });
  const later = dialogue(60).slice(2);
  for (const [index, turn] of later.entries()) {
    await palimpsest.appendTurn({ session, turnId: `t-${3 + index}`, messages: turn });
    if (index % 12 === 11) await palimpsest.settled({ session });
  }
  await palimpsest.settled({ session });
  const whole = [said, name, meta, pin, args, result] as string[];
  // The search splits identifiers.
  const texts = [...whole, ...whole.map((text) => text.slice(-12))];
  return { session, texts, seqs: [5, 6, 7, 8], turns: [...turns, ...later] };
}

/** Columns that no message and nothing made of one reaches. */
const elsewhere = new Set([
  ...[
    'api_tokens.created_by',
    'api_tokens.id',
    'api_tokens.name',
    'api_tokens.scopes',
    'api_tokens.sha256',
    'api_tokens.tenant_id',
  ],
  ...['archive_parts.sha256', 'archive_parts.session_id', 'archive_parts.tenant_id'],
  ...['backfill_items.error_type', 'backfill_items.job', 'backfill_items.session_id', 'backfill_items.state'],
  ...[
    'backfill_items.tenant_id',
    'backfills.cursor',
    'backfills.job',
    'backfills.reason',
    'backfills.request',
  ],
  ...['backfills.state', 'backfills.tenant_id', 'compaction_digests.key', 'compaction_digests.session_id'],
  ...['compaction_digests.tenant_id', 'compactions.currency', 'compactions.coverage', 'compactions.method'],
  ...[
    'compactions.redaction',
    'tenant_limits.limits',
    'tenant_limits.tenant_id',
    'tenant_spend.day',
    'tenant_spend.tenant_id',
  ],
  ...['compactions.layout', 'compactions.model', 'compactions.prompt_version', 'compactions.reason'],
  ...['compactions.run_id', 'compactions.session_id', 'compactions.tenant_id', 'compactions.workflow_id'],
  ...['digest_flights.failure', 'digest_flights.key', 'digest_flights.step', 'digest_flights.tenant_id'],
  ...['digest_holds.key', 'digest_holds.run_id', 'digest_holds.session_id', 'digest_holds.tenant_id'],
  ...['digests.key', 'digests.kind', 'digests.model', 'digests.payer_session', 'digests.prompt_version'],
  ...['digests.tenant_id', 'erasures.session_id', 'erasures.tenant_id'],
  ...['message_texts.role', 'message_texts.session_id', 'message_texts.tenant_id'],
  ...['message_vectors.model', 'message_vectors.session_id', 'message_vectors.tenant_id'],
  ...[
    'messages.role',
    'messages.session_id',
    'messages.tenant_id',
    'messages.sha256',
    'messages.received_sha256',
  ],
  ...['rate_buckets.name', 'reductions.kind', 'reductions.session_id', 'reductions.tenant_id'],
  ...[
    'sessions.begun_mode',
    'sessions.calibration',
    'sessions.exhausted',
    'sessions.fork_of',
    'sessions.format',
  ],
  ...['sessions.session_id', 'sessions.tenant_id', 'sessions.tokenizer'],
  ...['known_lists.digest', 'known_lists.session_id', 'known_lists.tenant_id', 'sessions.continued_in'],
  ...['tenants.tenant_id', 'turns.session_id', 'turns.sha256', 'turns.tenant_id'],
]);

/** Columns with names that the platform gives, which an erasure of messages keeps; `findMessages` reports them. */
const given = new Set([
  ...['messages.answers', 'messages.calls', 'messages.turn_id', 'messages.erased_reason'],
  ...['message_texts.tool', 'sessions.policy', 'tenants.policy', 'turns.turn_id'],
]);

/** Vectors are made of a text but do not contain it. */
const derived = new Set(['message_vectors.numbers', 'message_vectors.embedding']);

/** Columns that hold a text of a message or of a model, and must lose it. */
const holding = {
  journal: [
    ...['backfill_items.error_message', 'compactions.head', 'compactions.layers', 'compactions.pinned'],
    ...[
      'compactions.snapshot',
      'compactions.state',
      'digests.text',
      'message_texts.body',
      'message_texts.speaker',
    ],
    ...['message_texts.words', 'messages.body', 'reductions.body', 'sessions.last_error', 'turns.usage'],
  ],
  incremental: [
    'compactions.head',
    'compactions.ledger',
    'compactions.pinned',
    'compactions.snapshot',
    'digests.text',
  ],
};

/** Failures and reports of earlier versions that quote a message, which nothing here provokes. */
async function quoteInNotes({ session, texts }: Planted): Promise<void> {
  const { palimpsest, queuePrefix: tenant } = stack;
  const job = `job-${randomUUID()}`;
  await palimpsest.startBackfill({ job, select: { prefix: session } });
  await expect.poll(async () => (await palimpsest.backfill({ job })).endedAt).not.toBeNull();
  const key = [tenant, session, texts[0]];
  await pool.query(
    'update palimpsest.backfill_items set error_message = $3 where tenant_id = $1 and session_id = $2',
    key,
  );
  await pool.query(
    `update palimpsest.sessions set last_error = jsonb_build_object('type', 'Unknown', 'message', $3::text)
     where tenant_id = $1 and session_id = $2`,
    key,
  );
  await pool.query('alter table palimpsest.turns disable trigger user');
  await pool.query(
    `update palimpsest.turns set usage = jsonb_build_object('note', $3::text)
     where tenant_id = $1 and session_id = $2 and 5 between from_seq and through_seq`,
    key,
  );
  await pool.query('alter table palimpsest.turns enable trigger user');
}

/** Everything that a reader can be shown of a session. */
async function allReads(session: string, texts: readonly string[]): Promise<string> {
  const { palimpsest } = stack;
  const replayed: LoggedMessage[] = [];
  for await (const message of palimpsest.replay({ session })) replayed.push(message);
  const text = async (pieces: AsyncGenerator<string>) => {
    let whole = '';
    for await (const piece of pieces) whole += piece;
    return whole;
  };
  const formats = ['openai-chat', 'anthropic', 'openai-responses', 'gemini', 'langchain', 'ai-sdk'] as const;
  const contexts = [];
  for (const format of formats) contexts.push(await palimpsest.context({ session, format }));
  contexts.push(await palimpsest.context({ session, budget: 1_800 }));
  const found = [];
  for (const query of texts)
    for (const { snippet } of (await palimpsest.search({ session, query })).hits) found.push(snippet);
  const parts = await palimpsest.archive({ session });
  const archived = await Promise.all(parts.map(({ part }) => palimpsest.archive({ session, part })));
  return JSON.stringify([
    ...[replayed, await text(palimpsest.export({ session })), await text(palimpsest.historyLog({ session }))],
    ...[
      contexts,
      found,
      archived,
      await palimpsest.expand({ session }),
      await palimpsest.status({ session }),
    ],
    await palimpsest.toolResponse({ session, callId: 'call_1' }),
    await palimpsest.toolResponse({ session, seq: 5 }),
    ...[await palimpsest.compactions({ session }), await palimpsest.timeline({ session })],
    await palimpsest.sessions({}),
  ]);
}

test('every column that can hold a text is classified', async () => {
  const known = new Set([...elsewhere, ...given, ...derived, ...holding.journal, ...holding.incremental]);
  const columns = (await textColumns(pool)).map(({ table, name }) => `${table}.${name}`);
  expect(columns.filter((column) => !known.has(column))).toEqual([]);
});

describe.each(['journal', 'incremental'] as const)('in %s mode', (mode) => {
  test('nothing of the erased messages is left in the session and its forks', async () => {
    const { palimpsest, queuePrefix: tenant } = stack;
    const one = await plant(mode);
    const { session, texts, seqs, turns } = one;
    const messages = 4 + 4 + 2 * 58;
    const before = await palimpsest.compactions({ session });
    expect(before.length).toBeGreaterThanOrEqual(3);
    const fork = `fork-${randomUUID()}`;
    await palimpsest.fork({ session, to: fork, throughSeq: messages });
    await palimpsest.restore({ session, generation: 1 });
    await palimpsest.restore({ session, generation: 2 });
    await quoteInNotes(one);
    await palimpsest.settled({ session });
    await palimpsest.settled({ session: fork });
    expect(await columnsHolding(pool, texts)).toEqual(expect.arrayContaining(holding[mode]));
    const shown = await allReads(session, texts);
    for (const text of texts) expect(shown).toContain(text);
    const vectors = async () =>
      (
        await pool.query(
          'select from palimpsest.message_vectors where tenant_id = $1 and session_id = any ($2) and seq = any ($3)',
          [tenant, [session, fork], seqs],
        )
      ).rowCount;
    expect(await vectors()).toBeGreaterThan(0);

    const alone = await palimpsest.eraseMessages({ session, seqs, reason: 'asked by the person' });
    expect(alone).toMatchObject({
      ...{ dryRun: false, already: [], forks: [], remaining: [{ session: fork, seqs }] },
      messages: seqs.map((seq) => ({ seq, reason: 'asked by the person' })),
    });
    expect(alone.generations.length).toBeGreaterThanOrEqual(3);
    // Its own rows have none of it; the fork has.
    const own = await pool.query<{ row: string }>(
      `select to_jsonb(c)::text as row from palimpsest.compactions c where tenant_id = $1 and session_id = $2
       union all select to_jsonb(m)::text from palimpsest.messages m where tenant_id = $1 and session_id = $2`,
      [tenant, session],
    );
    for (const { row } of own.rows) expect(row).not.toMatch(planted);

    const again = await palimpsest.eraseMessages({ session, seqs, forks: true });
    expect(again).toMatchObject({ already: seqs, remaining: [], forks: [{ session: fork }] });
    await palimpsest.settled({ session });
    await palimpsest.settled({ session: fork });
    expect(await columnsHolding(pool, texts)).toEqual([]);
    expect(await vectors()).toBe(0);

    for (const of of [session, fork]) expect(await allReads(of, texts)).not.toMatch(planted);
    // A repeated append of the erased turn is the same turn, and shows nothing of it.
    const repeated = await palimpsest.appendTurn({ session, turnId: 't-2', messages: turns[2]! });
    expect(repeated).toMatchObject({ repeated: true, fromSeq: 5, throughSeq: 8 });
    expect(await columnsHolding(pool, texts)).toEqual([]);
    // The session goes on: every generation can be restored, and a model writes the summary again.
    for (const generation of [1, 2, 3]) {
      await palimpsest.restore({ session, generation });
      expect(JSON.stringify(await palimpsest.context({ session }))).not.toMatch(planted);
    }
    await palimpsest.resummarize({ session });
    await palimpsest.compact({ session });
    const after = `fork-${randomUUID()}`;
    await palimpsest.fork({ session, to: after, throughSeq: messages });
    expect(await allReads(after, texts)).not.toMatch(planted);
    expect(await columnsHolding(pool, texts)).toEqual([]);
  });
});

/** The bytes of a file, which PostgreSQL may have removed since it was listed. */
const bytesOf = (file: string): Promise<Buffer> =>
  readFile(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return Buffer.alloc(0);
    throw error;
  });

/** Names of the files below a folder that contain one of these texts. */
async function filesHolding(folder: string, texts: readonly string[]): Promise<string[]> {
  const sought = texts.map((text) => Buffer.from(text));
  const found: string[] = [];
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const bytes = await bytesOf(path.join(folder, entry.name));
    if (sought.some((text) => bytes.includes(text))) found.push(entry.name);
  }
  return found.sort();
}

test('the files of PostgreSQL lose the messages when tables are rewritten and the log has moved on', async () => {
  const { palimpsest } = stack;
  // Long texts are compressed, so the bytes of a message are found only in a short one.
  const { session, texts, seqs } = await plant('journal');
  const [{ data, base }] = (
    await pool.query<{ data: string; base: string }>(
      `select current_setting('data_directory') as data,
         current_setting('data_directory') || '/base/' || oid as base from pg_database where datname = current_database()`,
    )
  ).rows as [{ data: string; base: string }];
  const wal = path.join(data, 'pg_wal');
  await pool.query('checkpoint');
  expect(await filesHolding(base, texts)).not.toEqual([]);
  expect(await filesHolding(wal, texts)).not.toEqual([]);

  await palimpsest.eraseMessages({ session, seqs });
  await palimpsest.settled({ session });
  // The statements of docs/operating.md.
  const [vacuum = ''] = /^VACUUM \(FULL\) palimpsest[^;]+/m.exec(document('docs/operating.md')) ?? [];
  // A transaction that began before the erasure keeps the rows until it ends.
  const rewritten = async () => {
    await pool.query(vacuum);
    await pool.query('checkpoint');
    return filesHolding(base, texts);
  };
  await expect.poll(rewritten, { interval: 500 }).toEqual([]);
  await pool.query('select pg_switch_wal()');
  await pool.query('checkpoint');
  // What a recovery reads. Other bytes of the log are those of earlier segments, which wait under a later name to be overwritten.
  const [{ from, to }] = (
    await pool.query<{ from: Place; to: Place }>(
      `select to_json(pg_walfile_name_offset(redo_lsn)) as from,
         to_json(pg_walfile_name_offset(pg_current_wal_insert_lsn())) as to from pg_control_checkpoint()`,
    )
  ).rows as [{ from: Place; to: Place }];
  const read = (await readdir(wal))
    .filter((name) => name >= from.file_name && name <= to.file_name)
    .sort()
    .map(async (name) => {
      const start = name === from.file_name ? from.file_offset : 0;
      const end = name === to.file_name ? to.file_offset : Infinity;
      return (await bytesOf(path.join(wal, name))).subarray(start, end);
    });
  const log = Buffer.concat(await Promise.all(read));
  expect(log.length).toBeGreaterThan(0);
  expect(texts.filter((text) => log.includes(text))).toEqual([]);
});

test('what Temporal keeps is the text of inline turns, until its retention', async () => {
  const ids = { tenant: stack.queuePrefix, session: randomUUID() };
  const [inline, appended] = [
    `planted-inline-${randomUUID().slice(-12)}`,
    `planted-said-${randomUUID().slice(-12)}`,
  ];
  const client = await connectClient(stack.temporal);
  try {
    await stack.palimpsest.appendTurn({
      ...{ session: ids.session, turnId: 't-0' },
      messages: [{ role: 'user', content: appended }],
    });
    await client.workflow.signalWithStart('session', {
      workflowId: sessionWorkflowId(ids),
      taskQueue: taskQueues(stack.queuePrefix).workflow,
      args: [{ v: 1, ...ids, idleAfterMs: 600_000 }],
      signal: 'turn',
      signalArgs: [{ turnId: 'inline', messages: [{ role: 'user', content: inline }] }],
    });
    await expect.poll(() => columnsHolding(pool, [inline])).toContain('messages.body');
    await stack.palimpsest.eraseMessages({ session: ids.session, seqs: [1, 2] });
    await stack.palimpsest.settled({ session: ids.session });
    expect(await columnsHolding(pool, [inline, appended])).toEqual([]);
    const histories = async (): Promise<string> => {
      let all = '';
      for await (const { workflowId, runId } of client.workflow.list({
        query: `TenantId = '${ids.tenant}'`,
      })) {
        if (!workflowId.includes(ids.session)) continue;
        const handle = client.workflow.getHandle(workflowId, runId);
        all += JSON.stringify(JSON.parse(historyToJSON(await handle.fetchHistory())), decoded);
        all += JSON.stringify((await handle.describe()).memo ?? {});
      }
      return all;
    };
    await expect.poll(histories).toContain(inline);
    expect(await histories()).not.toContain(appended);
    const status = await client.workflow.getHandle(sessionWorkflowId(ids)).query('status');
    expect(JSON.stringify(status)).not.toMatch(planted);
  } finally {
    await client.connection.close();
  }
});

/** A position in PostgreSQL's log. */
interface Place {
  file_name: string;
  file_offset: number;
}

/** Payloads are base64 in the JSON of a history. */
const decoded = (key: string, value: unknown) =>
  key === 'data' && typeof value === 'string' ? Buffer.from(value, 'base64').toString() : value;
