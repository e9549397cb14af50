import type { Pool } from 'pg';
import { currentCaller, Places } from '../connection/places.js';
import { parseBody } from '../../formats/native.js';
import { metaOf } from '../../conversation/validate.js';
import { messagePages, type StoredMessage } from '../log/messages.js';
import { searchableText, slicesOf, wordsVector } from './words.js';
import { keepSession } from '../sessions/session-table.js';
import { loadSession } from '../sessions/sessions.js';
import type { SessionIds } from '../../contract/ids.js';
import type { SessionRow } from '../sessions/session-row.js';
import { storable } from '../connection/values.js';
import { toolNames } from '../log/tool-names.js';
import { reading, withTransaction, type Query } from '../connection/transaction.js';

/** UTF-16 code units written by one statement. */
const batchLength = 500_000;

/** One slice of one message as a row of `message_texts`. */
interface Row {
  seq: number;
  slice: number;
  role: string;
  tool: string | null;
  speaker: string | null;
  offset: number;
  text: string;
}

/**
 * Makes the log searchable up to `throughSeq` (default: the whole log), from where the last call ended. Works in
 * pages, so that memory does not grow with the log. Rows are durable before `indexedThroughSeq` moves past them: the
 * next call continues where an aborted one ended, and two concurrent calls write the same rows once.
 * Throws `Store.SessionNotFound`; `Store.StaleGeneration` if the session is erased and recreated meanwhile.
 */
export async function indexTexts(pool: Pool, ids: SessionIds, throughSeq?: number): Promise<void> {
  const caller = currentCaller();
  const row = await loadSession(pool, ids);
  if (!caller) return index(pool, ids, row, throughSeq);
  if (row.indexedThroughSeq >= row.nextSeq - 1) return;
  const { tenant, session } = ids;
  const leave = await indexing.take({ tenant, session: { tenant, session }, signal: caller.signal });
  try {
    // Another caller may have indexed the session meanwhile.
    await index(pool, ids, await loadSession(pool, ids), throughSeq);
  } finally {
    leave();
  }
}

/**
 * Limits callers of the API: a session is indexed once, however many searches ask for it, and a tenant indexes one
 * session at a time. Splitting texts into words occupies the one thread on which the process serves all callers.
 */
const indexing = new Places({
  limit: { name: 'indexing', counts: 'sessions that may be made searchable at once' },
  most: 4,
  tenantShare: 0.25,
  waitMs: 30_000,
});

async function index(pool: Pool, ids: SessionIds, session: SessionRow, throughSeq?: number): Promise<void> {
  const { indexedThroughSeq, nextSeq } = session;
  const query = reading(pool, ids);
  const through = Math.min(throughSeq ?? nextSeq - 1, nextSeq - 1);
  for await (const page of messagePages(query, ids, indexedThroughSeq + 1, through)) {
    const rows = await rowsOf(
      query,
      ids,
      page.filter(({ erasedAt }) => erasedAt === null),
    );
    for (const batch of batches(rows)) {
      const words = await inTurns(batch, ({ text }) => wordsVector(text));
      await withTransaction(pool, ids, async (tx) => {
        await keepSession(tx, session);
        await insert(tx.query, ids, batch, words);
      });
    }
    await query(
      `update palimpsest.sessions set indexed_through_seq = $3
       where tenant_id = $1 and session_id = $2 and incarnation = $4 and indexed_through_seq < $3`,
      [ids.tenant, ids.session, page.at(-1)?.seq, session.incarnation],
    );
  }
}

async function rowsOf(query: Query, ids: SessionIds, page: readonly StoredMessage[]): Promise<Row[]> {
  const messages = await inTurns(page, ({ seq, body }) => {
    const { message } = parseBody(body);
    return { seq, message, ...metaOf(message) };
  });
  const results = messages.filter(({ role }) => role === 'tool' || role === 'function');
  const named = await toolNames(query, ids, results);
  const rows = await inTurns(messages, ({ seq, role, calls, message }): Row[] => {
    const text = searchableText(message);
    if (text === '') return [];
    const result = role === 'tool' || role === 'function';
    const names = result ? [named.get(seq) ?? message.name ?? ''] : calls.map(({ name }) => name);
    const tool = storable([...new Set(names)].join('\n')) || null;
    const speaker = message.name ? storable(message.name) : null;
    return slicesOf(text).map((slice, at) => ({ seq, slice: at, role, tool, speaker, ...slice }));
  });
  return rows.flat();
}

/** Milliseconds of processor time in one slice. */
const turnMs = 10;

/** `map` that lets other work of the process run between slices. */
async function inTurns<In, Out>(all: readonly In[], work: (one: In) => Out): Promise<Out[]> {
  const done: Out[] = [];
  let until = performance.now() + turnMs;
  for (const one of all) {
    done.push(work(one));
    if (performance.now() < until) continue;
    await new Promise((resolve) => setImmediate(resolve));
    until = performance.now() + turnMs;
  }
  return done;
}

function* batches(rows: readonly Row[]): Generator<Row[]> {
  let batch: Row[] = [];
  let length = 0;
  for (const row of rows) {
    batch.push(row);
    length += row.text.length;
    if (length < batchLength) continue;
    yield batch;
    batch = [];
    length = 0;
  }
  if (batch.length > 0) yield batch;
}

async function insert(
  query: Query,
  ids: SessionIds,
  rows: readonly Row[],
  words: readonly string[],
): Promise<void> {
  await query(
    `insert into palimpsest.message_texts (tenant_id, session_id, seq, slice, role, tool, speaker, char_offset, body, words)
     select $1, $2, seq, slice, role, tool, speaker, char_offset, body, words::tsvector
     from unnest($3::int[], $4::int[], $5::text[], $6::text[], $7::text[], $8::int[], $9::text[], $10::text[])
       as new (seq, slice, role, tool, speaker, char_offset, body, words)
     on conflict do nothing`,
    [
      ids.tenant,
      ids.session,
      rows.map(({ seq }) => seq),
      rows.map(({ slice }) => slice),
      rows.map(({ role }) => role),
      rows.map(({ tool }) => tool),
      rows.map(({ speaker }) => speaker),
      rows.map(({ offset }) => offset),
      rows.map(({ text }) => text),
      words,
    ],
  );
}
