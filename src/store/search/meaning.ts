/** Search by meaning: finds messages by the meaning of a query, whatever words they use. */
import { randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import type { SearchByMeaning } from '../../contract/archive.js';
import { isFailure, isModelFailureType } from '../../errors.js';
import type { Embedder } from '../../llm/embedder.js';
import { currentCaller } from '../connection/places.js';
import { read } from '../connection/transaction.js';
import { loadSession } from '../sessions/sessions.js';
import { embedTexts, embedWithin, redactorOf } from './embed-texts.js';
import type { Ranked } from './rank.js';
import { conditionsOf, isNarrow, type Scope } from './scope.js';

/** Maximum number of messages that one query finds. */
const mostFound = 50;

/** Maximum number of texts whose vectors a search requests because no worker has embedded them yet. */
const mostEmbedded = 256;

/** The messages that a search by meaning compares. */
interface Compared {
  scope: Scope;
  without: ReadonlySet<number>;
}

interface Found extends Ranked {
  /** Where the matching chunk begins in the message's text. */
  at: number;
}

/**
 * Returns the nearest messages first, and the range of messages that was searched. If the endpoint fails to embed the query,
 * returns no messages and the failure. If it fails to embed texts that have no vector yet, returns the messages found without
 * these texts, and the failure.
 */
export async function searchByMeaning(
  pool: Pool,
  ids: SessionIds,
  query: string,
  compared: Compared,
  embedder: Embedder,
): Promise<{ found: Found[]; meaning: SearchByMeaning }> {
  try {
    const signal = currentCaller()?.signal;
    const session = await loadSession(pool, ids);
    const redact = redactorOf(session, ids);
    const caller = `query/${randomUUID()}`;
    const [vector] = await embedWithin(pool, session, embedder, [redact(query)], caller, signal);
    const behind = await embedTexts(pool, ids, embedder, { most: mostEmbedded, signal }).then(
      () => null,
      (error: unknown) => failureOf(error),
    );
    const { found, vectors, fromSeq, throughSeq } = await nearest(pool, ids, vector!, compared, embedder);
    return { found, meaning: { failure: behind, vectors, fromSeq, throughSeq } };
  } catch (error) {
    const failure = failureOf(error);
    return { found: [], meaning: { failure, vectors: 0, fromSeq: null, throughSeq: null } };
  }
}

/** The failure of the endpoint, of a limit on its calls or of a `redact` pattern. Rethrows all other errors. */
function failureOf(error: unknown): string {
  if (isFailure(error) && (isModelFailureType(error.type) || error.type === 'Input.Invalid'))
    return `${error.type}: ${error.message}`;
  throw error;
}

interface Near {
  seq: number;
  slice: number;
  at: number;
  similarity: number;
}

interface Nearest {
  found: Found[];
  /** Number of compared vectors, and the range of their messages. */
  vectors: number;
  fromSeq: number | null;
  throughSeq: number | null;
}

async function nearest(
  pool: Pool,
  ids: SessionIds,
  query: Int8Array,
  { scope, without }: Compared,
  embedder: Embedder,
): Promise<Nearest> {
  const values: unknown[] = [ids.tenant, ids.session];
  const given = (value: unknown): string => `$${values.push(value)}`;
  const model = given(embedder.name);
  const of = isNarrow(scope)
    ? // A sub-select: the planner chooses badly for a join after the tables have just grown.
      `(select true from palimpsest.message_texts t
         where ${conditionsOf(scope, given).join(' and ')} and t.seq = v.seq and t.slice = v.slice)`
    : `v.seq between ${given(scope.fromSeq)} and ${given(scope.throughSeq)}`;
  const from = `from palimpsest.message_vectors v
    where v.tenant_id = $1 and v.session_id = $2 and v.model = ${model} and ${of}
      and v.seq <> all (${given([...without])}::int[])`;
  const extension = await extensionOf(pool);
  if (extension === null) return scanned(pool, ids, from, values, query, embedder.scan);
  const vector = `palimpsest.numbers_of(${given(Buffer.from(query.buffer))})::${extension}.vector`;
  const rows = await read<Near & Omit<Nearest, 'found'>>(
    pool,
    ids,
    `select v.seq, v.slice, v.char_offset as at, 1 - (v.embedding operator(${extension}.<=>) ${vector}) as similarity,
       count(*) over () as vectors, min(v.seq) over () as "fromSeq", max(v.seq) over () as "throughSeq"
     ${from} order by similarity desc, v.seq desc limit ${8 * mostFound}`,
    values,
  );
  const { vectors = 0, fromSeq = null, throughSeq = null } = rows[0] ?? {};
  return { found: bestOfEach(rows), vectors, fromSeq, throughSeq };
}

/** The quoted name of pgvector's schema; null if the table has no column for pgvector. */
async function extensionOf(pool: Pool): Promise<string | null> {
  const [row] = await read<{ schema: string }>(
    pool,
    'shared',
    `select quote_ident(n.nspname) as schema from pg_attribute a
     join pg_type t on t.oid = a.atttypid join pg_namespace n on n.oid = t.typnamespace
     where a.attrelid = 'palimpsest.message_vectors'::regclass and a.attname = 'embedding' and not a.attisdropped`,
  );
  return row?.schema ?? null;
}

/** Rows fetched at once: 2,000 rows of 1,536 dimensions take 3 MB. */
const rowsAtOnce = 2_000;

/** Compares the newest `most` vectors in this process, because a server without pgvector cannot do so fast. */
async function scanned(
  pool: Pool,
  ids: SessionIds,
  from: string,
  values: readonly unknown[],
  query: Int8Array,
  most: number,
): Promise<Nearest> {
  const near: Near[] = [];
  let last: { seq: number; chunk: number } | null = null;
  const [seq, chunk, limit] = [1, 2, 3].map((place) => `$${values.length + place}`);
  while (near.length < most) {
    const rows: { seq: number; chunk: number; slice: number; at: number; numbers: Buffer }[] = await read(
      pool,
      ids,
      `select v.seq, v.chunk, v.slice, v.char_offset as at, v.numbers ${from}
         and (v.seq, v.chunk) < (${seq}::int, ${chunk}::int) order by v.seq desc, v.chunk desc limit ${limit}`,
      [...values, last?.seq ?? 2 ** 31 - 1, last?.chunk ?? 0, Math.min(rowsAtOnce, most - near.length)],
    );
    for (const { numbers, ...row } of rows) near.push({ ...row, similarity: cosine(query, numbers) });
    last = rows.at(-1) ?? null;
    if (rows.length < rowsAtOnce) break;
  }
  const vectors = near.length;
  const [fromSeq, throughSeq] = [near.at(-1)?.seq ?? null, near[0]?.seq ?? null];
  near.sort((a, b) => b.similarity - a.similarity || b.seq - a.seq);
  return { found: bestOfEach(near), vectors, fromSeq, throughSeq };
}

/** Cosine between -1 and 1; 0 for vectors of different lengths. */
function cosine(query: Int8Array, bytes: Buffer): number {
  const numbers = new Int8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (numbers.length !== query.length) return 0;
  let [dot, own, others] = [0, 0, 0];
  for (let at = 0; at < numbers.length; at += 1) {
    const [one, other] = [query[at]!, numbers[at]!];
    dot += one * other;
    own += one * one;
    others += other * other;
  }
  return dot / Math.sqrt(own * others);
}

function bestOfEach(near: readonly Near[]): Found[] {
  const best = new Map<number, Found>();
  for (const { seq, slice, at, similarity } of near) {
    if (best.size >= mostFound) break;
    if (!best.has(seq)) best.set(seq, { seq, slice, at, rank: similarity, named: 0 });
  }
  return [...best.values()];
}

/**
 * The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009). The higher it is, the less the first
 * ranks count.
 */
const flatness = 60;

/**
 * Merges both rankings: each ranking that has a message adds 1 / (60 + place) to its rank. Messages that hold an
 * identifier verbatim stay before all others.
 */
export function fused(byWords: readonly Ranked[], byMeaning: readonly Found[]): (Ranked & { at?: number })[] {
  const merged = new Map<number, Ranked & { at?: number }>();
  const share = (place: number): number => 1 / (flatness + place + 1);
  for (const [place, one] of byWords.entries())
    merged.set(one.seq, { ...one, rank: share(place) + one.named });
  for (const [place, one] of byMeaning.entries()) {
    const known = merged.get(one.seq);
    if (known === undefined) merged.set(one.seq, { ...one, rank: share(place) });
    else known.rank += share(place);
  }
  return [...merged.values()].sort((a, b) => b.rank - a.rank || b.seq - a.seq);
}
