/** The vectors of a session's texts, computed from the rows of `message_texts`. */
import type { Pool } from 'pg';
import type { SessionIds } from '../../contract/ids.js';
import { invalid, PalimpsestError } from '../../errors.js';
import { mostTexts, type Embedder } from '../../llm/embedder.js';
import { policyOf } from '../../policy/layers.js';
import { redactorFor, type Redact } from '../../summary/redaction/redact.js';
import { read, withTransaction } from '../connection/transaction.js';
import { admitCall } from '../tenants/admission.js';
import type { SessionRow } from '../sessions/session-row.js';
import { keepSession } from '../sessions/session-table.js';
import { loadSession } from '../sessions/sessions.js';
import { splitsPair } from './words.js';

/** Length of a chunk, and the overlap of two neighbours, in UTF-16 code units. */
const chunkLength = 2_000;
const chunkOverlap = 200;

/** Length of the beginning of a message that is embedded, in UTF-16 code units. */
const longestEmbedded = 64_000;

/** Number of slices of `message_texts` that contain this beginning, and the text after it that redaction must read. */
const mostSlices = 3;

/** Messages read with one query. */
const messagesAtOnce = 64;

interface Chunk {
  seq: number;
  chunk: number;
  slice: number;
  /** Where the chunk begins in the message's text, in UTF-16 code units. */
  offset: number;
  /** The text that is sent. */
  text: string;
}

export interface Embedding {
  /** Stops once this many texts were sent. @default all */
  most?: number;
  signal?: AbortSignal;
}

/**
 * Requests the vectors that a session's texts lack, oldest first, and stores them. The policy's `redact` patterns
 * apply first. The rows of a message are stored together and in order, so that the next call continues where an
 * aborted one ended. Two concurrent calls may request the same vectors; they are stored once. Returns true when no
 * vector is missing.
 * Throws `Llm.*` failures, `Store.SessionNotFound`, `Store.StaleGeneration` if the session is erased meanwhile.
 */
export async function embedTexts(
  pool: Pool,
  ids: SessionIds,
  embedder: Embedder,
  { most = Infinity, signal }: Embedding = {},
): Promise<boolean> {
  const session = await loadSession(pool, ids);
  const redact = redactorOf(session, ids);
  for (let sent = 0; ;) {
    const chunks = await lacking(pool, ids, embedder.name, redact);
    if (chunks.length === 0) return true;
    for (const batch of batchesOf(chunks)) {
      if (sent >= most) return false;
      const vectors = await vectorsFor(pool, session, embedder, batch, signal);
      await store(pool, session, embedder.name, batch, vectors);
      sent += batch.length;
    }
  }
}

export function redactorOf({ policy }: Pick<SessionRow, 'policy'>, { tenant }: SessionIds): Redact {
  return redactorFor(policyOf(policy).redact, tenant) ?? ((text) => text);
}

/**
 * Requests the vectors of a query or of texts, within the rates of the deployment and the operator's limits of the tenant.
 * Throws `Llm.RateLimited` when a rate is used up, `Tenant.BeyondLimit` when the spend is.
 */
export async function embedWithin(
  pool: Pool,
  { tenant, policy: { limits } }: Pick<SessionRow, 'tenant' | 'policy'>,
  embedder: Embedder,
  texts: readonly string[],
  caller: string,
  signal?: AbortSignal,
): Promise<Int8Array[]> {
  const inputTokens = Math.ceil(texts.reduce((sum, text) => sum + text.length, 0) / 3);
  const admission = await admitCall(pool, {
    ...{ tenant, limits, caller, model: embedder.name, perMinute: embedder.tokensPerMinute },
    ...{ backfill: false, most: () => ({ inputTokens, outputTokens: 0 }) },
  });
  if ('refused' in admission) throw admission.refused;
  if ('waitMs' in admission)
    throw new PalimpsestError(
      'Llm.RateLimited',
      `This minute has too few tokens or calls left for ${inputTokens} tokens of texts.`,
      {
        hint: "Raise PALIMPSEST_TOKENS_PER_MINUTE if the provider allows more, or the tenant's limits with `palimpsest limits set`.",
        details: { retryAfterMs: admission.waitMs },
      },
    );
  try {
    return (await embedder.embed(texts, signal)).map(quantized);
  } finally {
    // The endpoint's usage is not known here: the estimate counts.
    await admission.settle(null);
  }
}

async function vectorsFor(
  pool: Pool,
  owner: SessionRow,
  embedder: Embedder,
  batch: readonly Chunk[],
  signal: AbortSignal | undefined,
): Promise<Int8Array[]> {
  const vectors: Int8Array[] = [];
  const [first] = batch;
  const { tenant, session } = owner;
  for (let from = 0; from < batch.length; from += mostTexts) {
    const texts = batch.slice(from, from + mostTexts).map(({ text }) => text);
    const caller = `embed/${tenant}/${session}/${first?.seq}/${from}`;
    vectors.push(...(await embedWithin(pool, owner, embedder, texts, caller, signal)));
  }
  return vectors;
}

/**
 * Quantizes to eight bits for each dimension, scaled so that the largest number of a vector uses all eight: only directions are
 * compared.
 * @internal A test compares it with what the database makes of its bytes.
 */
export function quantized(vector: readonly number[]): Int8Array {
  const largest = vector.reduce((most, number) => Math.max(most, Math.abs(number)), 0);
  if (!(largest > 0)) throw invalid('A vector of zeros has no direction.');
  return Int8Array.from(vector, (number) => Math.round((127 * number) / largest));
}

interface TextRow extends Record<string, unknown> {
  seq: number;
  slice: number;
  speaker: string | null;
  char_offset: number;
  body: string;
}

/** The next texts that have no vectors. */
async function lacking(pool: Pool, ids: SessionIds, model: string, redact: Redact): Promise<Chunk[]> {
  const key = [ids.tenant, ids.session];
  const seqOf = async (text: string, ...values: unknown[]): Promise<number | undefined> =>
    (await read<{ seq: number }>(pool, ids, text, [...key, ...values]))[0]?.seq;
  // One query after the other: the planner chooses badly for a joined statement after the tables have just grown.
  const last = await seqOf(
    `select seq from palimpsest.message_vectors
     where tenant_id = $1 and session_id = $2 and model = $3 order by seq desc limit 1`,
    model,
  );
  const first = await seqOf(
    `select seq from palimpsest.message_texts
     where tenant_id = $1 and session_id = $2 and seq > $3 order by seq limit 1`,
    last ?? 0,
  );
  if (first === undefined) return [];
  const rows = await read<TextRow>(
    pool,
    ids,
    `select seq, slice, speaker, char_offset, body from palimpsest.message_texts
     where tenant_id = $1 and session_id = $2 and seq between $3 and $4 and slice < ${mostSlices}
     order by seq, slice`,
    [...key, first, first + messagesAtOnce - 1],
  );
  const messages = new Map<number, TextRow[]>();
  for (const row of rows) messages.set(row.seq, [...(messages.get(row.seq) ?? []), row]);
  return [...messages.values()].flatMap((slices) => chunksOf(slices, redact));
}

/** The chunks of one message. The replacement of a secret moves the offsets after it. */
function chunksOf(slices: readonly TextRow[], redact: Redact): Chunk[] {
  const whole = slices.reduce((text, { char_offset: at, body }) => text.slice(0, at) + body, '');
  const text = redact(whole).slice(0, longestEmbedded);
  const chunks: Chunk[] = [];
  for (let offset = 0; ;) {
    const end = edgeAt(text, Math.min(text.length, offset + chunkLength));
    const { seq, slice, speaker } = slices.findLast(({ char_offset: at }) => at <= offset) ?? slices[0]!;
    // Endpoints refuse an empty text, but its vector must keep its place.
    const said = text.slice(offset, end).trim() || '-';
    chunks.push({
      ...{ seq, slice, chunk: chunks.length, offset: Math.min(offset, whole.length) },
      text: speaker === null ? said : `${speaker}: ${said}`,
    });
    if (end >= text.length) return chunks;
    offset = edgeAt(text, end - chunkOverlap);
  }
}

const edgeAt = (text: string, at: number): number => (splitsPair(text, at) ? at - 1 : at);

/** Batches of whole messages, each with about as many chunks as one request takes. */
function* batchesOf(chunks: readonly Chunk[]): Generator<Chunk[]> {
  let batch: Chunk[] = [];
  for (const [index, chunk] of chunks.entries()) {
    batch.push(chunk);
    const next = chunks[index + 1];
    if (next !== undefined && (next.seq === chunk.seq || batch.length < mostTexts / 2)) continue;
    yield batch;
    batch = [];
  }
}

async function store(
  pool: Pool,
  session: SessionRow,
  model: string,
  chunks: readonly Chunk[],
  vectors: readonly Int8Array[],
): Promise<void> {
  await withTransaction(pool, session, async (tx) => {
    await keepSession(tx, session);
    await tx.query(
      `insert into palimpsest.message_vectors (tenant_id, session_id, model, seq, chunk, slice, char_offset, numbers)
       select $1, $2, $3, seq, chunk, slice, char_offset, numbers
       from unnest($4::int[], $5::int[], $6::int[], $7::int[], $8::bytea[])
         as new (seq, chunk, slice, char_offset, numbers)
       on conflict do nothing`,
      [
        ...[session.tenant, session.session, model],
        chunks.map(({ seq }) => seq),
        chunks.map(({ chunk }) => chunk),
        chunks.map(({ slice }) => slice),
        chunks.map(({ offset }) => offset),
        vectors.map((vector) => Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength)),
      ],
    );
  });
}
