import type { Pool } from 'pg';
import { remade, type Commit, type Texts } from '../../compaction/replace/erased.js';
import { snapshotKey } from '../../compaction/plan/reading.js';
import type { SessionIds } from '../../contract/ids.js';
import type { HeadLayout } from '../../context/view/view.js';
import type { ChatMessage, LoggedMessage, Native } from '../../conversation/message.js';
import { textsIn, tombstoneOf } from '../../conversation/tombstone.js';
import { metaOf, nativeField, serializeMessage } from '../../conversation/validate.js';
import { invalid } from '../../errors.js';
import { maskedNative, rewrittenNative } from '../../formats/erased.js';
import { splitNative } from '../../formats/native.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import { redactorFor } from '../../summary/redaction/redact.js';
import { counterFor } from '../../tokens/counter.js';
import { countMessage } from '../../tokens/message.js';
import { eraserOf } from '../connection/pool.js';
import { read, withSession, type Query, type Transaction } from '../connection/transaction.js';
import { storable } from '../connection/values.js';
import { storeRuleLayer, linkDigests } from './digests.js';
import { messagePages, toHead, toLogged } from '../log/messages.js';
import { liveSizes } from '../sessions/recount.js';
import { factsOf, type SessionRow } from '../sessions/session-row.js';
import { lockSession, updateSession } from '../sessions/session-table.js';
import { limitsOfSession, settingsIfValid } from '../sessions/settings.js';

/** What the log keeps about an erased message. */
export interface Tombstone {
  [column: string]: unknown;
  seq: number;
  /** Hash of the body that was received, in lower-case hex. */
  sha256: string;
  erasedAt: Date;
  reason: string | null;
}

/** What one transaction replaced in one session. */
export interface ErasedMessages {
  /** The tombstones of the messages that were asked for. */
  messages: Tombstone[];
  /** Those that an earlier call had erased. */
  already: number[];
  /** Other messages whose original in the session's format was replaced, because it repeated an erased text. */
  originals: number[];
  /** Generations whose texts were replaced. */
  generations: number[];
  /** Numbers of deleted rows. */
  digests: number;
  reductions: number;
  texts: number;
  vectors: number;
  /** Digests of these generations that other sessions still use. */
  sharedDigests: number;
}

export interface Erasing {
  /** At least one. */
  seqs: readonly number[];
  reason: string | null;
  at: Date;
}

/** Thrown to roll a rehearsal back. */
class Rehearsed extends Error {
  constructor(readonly found: ErasedMessages) {
    super('rehearsed');
  }
}

/**
 * Replaces these messages by tombstones, and everything that was made when they were in the log, in one transaction. Digests,
 * reductions, search rows and vectors are deleted. Every generation that was committed since the oldest of them was stored gets
 * texts by rule from the messages that are left: a model that wrote one of them had read the notes before it, so that any of
 * them may repeat what was erased. The session gets a new incarnation, so that nothing is stored later of what was read before.
 * With `dryRun` everything is done and rolled back. Throws `Store.SessionNotFound`; `Input.Invalid` for a seq that is not in
 * the log; `Store.Busy`.
 */
export async function eraseMessagesOf(
  pool: Pool,
  ids: SessionIds,
  erasing: Erasing,
  dryRun = false,
): Promise<ErasedMessages> {
  try {
    return await withSession(eraserOf(pool), ids, async (tx) => {
      const done = await erase(tx, ids, erasing);
      if (dryRun) throw new Rehearsed(done);
      return done;
    });
  } catch (error) {
    if (error instanceof Rehearsed) return error.found;
    throw error;
  }
}

async function erase(
  tx: Transaction,
  ids: SessionIds,
  { seqs, reason, at }: Erasing,
): Promise<ErasedMessages> {
  const { query } = tx;
  // Unlike a lock for an update, this one also excludes transactions that store a digest or search rows, or make a fork.
  await query('select from palimpsest.sessions where tenant_id = $1 and session_id = $2 for update', [
    ids.tenant,
    ids.session,
  ]);
  const session = await lockSession(tx, ids);
  const { fresh, already, since } = await wanted(query, session, seqs);
  const nothing = { digests: 0, reductions: 0, texts: 0, vectors: 0, sharedDigests: 0 };
  const messages = () => tombstonesOf(query, session, seqs);
  if (fresh.length === 0)
    return { messages: await messages(), already, originals: [], generations: [], ...nothing };
  await query('select palimpsest.rewrite_only($1, $2)', [session.tenant, session.session]);
  const originals = await replaceBodies(query, session, fresh, { at, reason });
  const deleted = await deleteRows(query, session, fresh);
  await clearNotes(query, session, fresh);
  const all = await generationsOf(query, session);
  const affected = affectedOf(all, since, Math.min(...fresh));
  const kept = await textsOfClean(query, session, all, affected);
  const reductions = await deleteReductions(query, session, affected, fresh);
  const digests = await deleteDigests(query, session, affected, since);
  await remakeGenerations(tx, session, all, affected, kept);
  await query(
    `update palimpsest.archive_parts p set tokens = now.tokens, bytes = now.bytes from (
       select part, sum(m.tokens) as tokens, sum(octet_length(body)) as bytes
       from palimpsest.archive_parts a join palimpsest.messages m
         on m.tenant_id = $1 and m.session_id = $2 and m.seq between a.from_seq and a.through_seq
       where a.tenant_id = $1 and a.session_id = $2
         and exists (select from unnest($3::int[]) changed where changed between a.from_seq and a.through_seq)
       group by part) now
     where p.tenant_id = $1 and p.session_id = $2 and p.part = now.part`,
    [session.tenant, session.session, [...fresh, ...originals]],
  );
  await settle(tx, session);
  return {
    ...{ messages: await messages(), already, originals, generations: affected, reductions },
    ...digests,
    ...deleted,
  };
}

function tombstonesOf(
  query: Query,
  { tenant, session }: SessionRow,
  seqs: readonly number[],
): Promise<Tombstone[]> {
  return query<Tombstone>(
    `select seq, encode(received_sha256, 'hex') as sha256, erased_at as "erasedAt", erased_reason as reason
     from palimpsest.messages
     where tenant_id = $1 and session_id = $2 and seq = any ($3) order by seq`,
    [tenant, session, seqs],
  );
}

/**
 * Clocks of a database that changes its server may differ by this much. What was made this long before a message was stored has
 * not seen it.
 */
const clocksDiffer = '10 minutes';

/** The messages that are not erased yet; `since`: what was made later may have seen one of them. */
async function wanted(
  query: Query,
  { tenant, session, nextSeq }: SessionRow,
  seqs: readonly number[],
): Promise<{ fresh: number[]; already: number[]; since: Date }> {
  const rows = await query<{ seq: number; erased: boolean; since: Date }>(
    `select seq, erased_at is not null as erased, created_at - interval '${clocksDiffer}' as since
     from palimpsest.messages where tenant_id = $1 and session_id = $2 and seq = any ($3) order by seq`,
    [tenant, session, seqs],
  );
  const found = new Set(rows.map(({ seq }) => seq));
  const missing = seqs.find((seq) => !found.has(seq));
  if (missing !== undefined)
    throw invalid(
      `session ${session} has no message ${missing}`,
      'seqs',
      `Its log has messages 1 to ${nextSeq - 1}. Nothing was erased.`,
    );
  const fresh = rows.filter(({ erased }) => !erased);
  return {
    fresh: fresh.map(({ seq }) => seq),
    already: rows.flatMap(({ seq, erased }) => (erased ? [seq] : [])),
    since: new Date(Math.min(...fresh.map((row) => row.since.getTime()))),
  };
}

interface NewBody {
  body: string;
  tokens: number;
  isErased: boolean;
}

/** Returns the seqs of messages that only lost their original in another format. */
async function replaceBodies(
  query: Query,
  session: SessionRow,
  seqs: readonly number[],
  { at, reason }: { at: Date; reason: string | null },
): Promise<number[]> {
  const erased = new Set(seqs);
  const counter = counterFor(session.tokenizer);
  const texts = await textsOfErased(query, session, erased);
  const bodies = new Map<number, NewBody>();
  let unit: {
    seq: number;
    native: Native;
    members: { seq: number; message: ChatMessage; tokens: number }[];
  } | null = null;
  const endUnit = (): void => {
    if (unit === null) return;
    const { seq: first, native, members } = unit;
    unit = null;
    const isHit = members.some(({ seq }) => erased.has(seq));
    const messages = members.map(({ message }) => message);
    const left = isHit ? rewrittenNative(native, messages, texts) : maskedNative(native, messages, texts);
    const [head] = members;
    if (!head || left === native) return;
    const message = left === null ? head.message : { ...head.message, [nativeField]: left };
    bodies.set(first, { ...serializeMessage(message), tokens: head.tokens, isErased: erased.has(first) });
  };
  for await (const page of messagePages(query, session, 1, session.nextSeq - 1)) {
    for (const { seq, body, tokens } of page) {
      const mayHaveNative = body.includes(nativeField);
      if (unit === null && !erased.has(seq) && !mayHaveNative) continue;
      const { message, native } = splitNative(JSON.parse(body) as ChatMessage);
      const shown = erased.has(seq) ? tombstoneOf(message, at) : message;
      if (erased.has(seq)) refuseOtherLinks(seq, message, shown);
      const member = { seq, message: shown, tokens: erased.has(seq) ? countMessage(shown, counter) : tokens };
      if (native) {
        endUnit();
        unit = { seq, native, members: [] };
      } else if (erased.has(seq)) {
        bodies.set(seq, { ...serializeMessage(shown), tokens: member.tokens, isErased: true });
      }
      if (unit === null) continue;
      unit.members.push(member);
      if (unit.members.length >= unit.native.messages) endUnit();
    }
  }
  endUnit();
  const entries = [...bodies];
  await query(
    `update palimpsest.messages m set body = new.body, sha256 = sha256(convert_to(new.body, 'UTF8')), tokens = new.tokens,
       received_sha256 = coalesce(m.received_sha256, m.sha256),
       erased_at = case when new.is_erased then $7::timestamptz else m.erased_at end,
       erased_reason = case when new.is_erased then $8 else m.erased_reason end
     from unnest($3::int[], $4::text[], $5::int[], $6::boolean[]) as new (seq, body, tokens, is_erased)
     where m.tenant_id = $1 and m.session_id = $2 and m.seq = new.seq`,
    [
      ...[session.tenant, session.session],
      entries.map(([seq]) => seq),
      entries.map(([, { body }]) => body),
      entries.map(([, { tokens }]) => tokens),
      entries.map(([, { isErased }]) => isErased),
      ...[at, reason === null ? null : storable(reason)],
    ],
  );
  return entries.flatMap(([seq, { isErased }]) => (isErased ? [] : [seq])).sort((a, b) => a - b);
}

/** The texts of the erased messages that are long enough to be recognized in originals of other messages. */
async function textsOfErased(query: Query, ids: SessionIds, seqs: ReadonlySet<number>): Promise<string[]> {
  const rows = await query<{ body: string }>(
    'select body from palimpsest.messages where tenant_id = $1 and session_id = $2 and seq = any ($3)',
    [ids.tenant, ids.session, [...seqs]],
  );
  const texts = rows.flatMap(({ body }) => {
    const {
      content,
      refusal,
      audio,
      tool_calls: calls,
      function_call: call,
    } = JSON.parse(body) as ChatMessage;
    const inputs = (calls ?? []).map(({ function: called, custom }) => [called?.arguments, custom]);
    return textsIn([content, refusal, audio, inputs, call?.arguments]);
  });
  return [...new Set(texts)];
}

/** The columns for links are not written again, so the tombstone must have the same. */
function refuseOtherLinks(seq: number, message: ChatMessage, tombstone: ChatMessage): void {
  if (JSON.stringify(metaOf(message)) !== JSON.stringify(metaOf(tombstone)))
    throw new Error(`the tombstone of message ${seq} has other links than the message`);
}

async function deleteRows(
  query: Query,
  { tenant, session }: SessionRow,
  seqs: readonly number[],
): Promise<Pick<ErasedMessages, 'texts' | 'vectors'>> {
  const gone = async (table: string): Promise<number> => {
    const rows = await query(
      `delete from palimpsest.${table} where tenant_id = $1 and session_id = $2 and seq = any ($3) returning 1`,
      [tenant, session, seqs],
    );
    return rows.length;
  };
  const vectors = await gone('message_vectors');
  return { vectors, texts: await gone('message_texts') };
}

/** Failures and reports of providers may quote what was sent. */
async function clearNotes(
  query: Query,
  { tenant, session }: SessionRow,
  seqs: readonly number[],
): Promise<void> {
  await query(
    `update palimpsest.backfill_items set error_message = null
     where tenant_id = $1 and session_id = $2 and error_message is not null`,
    [tenant, session],
  );
  // Only earlier versions wrote this column, and a later schema may not have it.
  const [old] = await query(
    `select from pg_attribute where attrelid = 'palimpsest.turns'::regclass and attname = 'usage' and not attisdropped`,
  );
  if (old)
    await query(
      `update palimpsest.turns set usage = null where tenant_id = $1 and session_id = $2 and usage is not null
         and exists (select from unnest($3::int[]) seq where seq between from_seq and through_seq)`,
      [tenant, session, seqs],
    );
}

/** A committed generation with its texts. */
interface Generation extends Commit {
  [column: string]: unknown;
  generation: number;
  createdAt: Date;
  headText: string | null;
  headTokens: number[];
  layout: HeadLayout | null;
  snapshot: string | null;
  ledger: string | null;
  state: string | null;
  layers: KeptLayer[] | null;
  pinned: string[];
  fallback: boolean;
  method: Texts['method'];
}

function generationsOf(query: Query, { tenant, session }: SessionRow): Promise<Generation[]> {
  return query<Generation>(
    `select generation, coalesce(parent_generation, 0) as parent, from_seq as "fromSeq", through_seq as "throughSeq",
       created_at as "createdAt", head as "headText", head_tokens as "headTokens", layout, snapshot, ledger, state, layers,
       layers is not null as "isJournal", pinned, fallback, method,
       case when exists (select from palimpsest.messages m where m.tenant_id = $1 and m.session_id = $2
         and m.seq = c.carried_seq and m.erased_at is null) then carried_seq end as "carriedSeq"
     from palimpsest.compactions c where tenant_id = $1 and session_id = $2 order by generation`,
    [tenant, session],
  );
}

/** Generations that may repeat an erased message. The genesis has no text. */
function affectedOf(all: readonly Generation[], since: Date, firstSeq: number): number[] {
  const affected = new Set<number>();
  for (const { generation, parent, createdAt, throughSeq } of all)
    if (generation > 0 && (createdAt >= since || throughSeq >= firstSeq || affected.has(parent)))
      affected.add(generation);
  return [...affected];
}

/** The texts of the generations that stay, read before their digests may be deleted. */
async function textsOfClean(
  query: Query,
  { tenant }: SessionRow,
  all: readonly Generation[],
  affected: readonly number[],
): Promise<Map<number, Texts>> {
  const clean = all.filter(({ generation }) => !affected.includes(generation));
  const keys = new Set(clean.flatMap(({ layers }) => (layers ?? []).map(({ key }) => key)));
  const rows = await query<{ key: string; text: string }>(
    'select key, text from palimpsest.digests where tenant_id = $1 and key = any ($2)',
    [tenant, [...keys]],
  );
  const texts = new Map(rows.map(({ key, text }) => [key, text]));
  for (const { generation, snapshot } of clean)
    if (snapshot !== null) texts.set(`${snapshotKey}${generation}`, snapshot);
  return new Map(
    clean.map(({ generation, headText, headTokens, layout, ...row }): [number, Texts] => [
      generation,
      {
        ...row,
        head: toHead(headText, { tokens: headTokens, carriedSeq: row.carriedSeq, layout }),
        entries: new Map(
          (row.layers ?? []).flatMap(({ key }) => {
            const text = texts.get(key);
            return text === undefined ? [] : [[key, text] as const];
          }),
        ),
      },
    ]),
  );
}

async function deleteReductions(
  query: Query,
  { tenant, session }: SessionRow,
  affected: readonly number[],
  seqs: readonly number[],
): Promise<number> {
  const gone = await query(
    `delete from palimpsest.reductions where tenant_id = $1 and session_id = $2 and (generation = any ($3)
       or exists (select from unnest($4::int[]) seq where seq between from_seq and through_seq)) returning 1`,
    [tenant, session, affected, seqs],
  );
  return gone.length;
}

/**
 * Deletes the digests that these generations use, that running compactions hold, and that this session paid for since, except
 * those that another session uses as well: such a session has the same messages.
 */
async function deleteDigests(
  query: Query,
  { tenant, session }: SessionRow,
  affected: readonly number[],
  since: Date,
): Promise<Pick<ErasedMessages, 'digests' | 'sharedDigests'>> {
  const rows = await query<{ key: string }>(
    `select key from palimpsest.digests where tenant_id = $1 and created_at >= $3 and (payer_session = $2
       or key in (select key from palimpsest.digest_holds where tenant_id = $1 and session_id = $2)
       or key in (select key from palimpsest.compaction_digests
                  where tenant_id = $1 and session_id = $2 and generation = any ($4)))
     order by key for update`,
    [tenant, session, since, affected],
  );
  const keys = rows.map(({ key }) => key);
  await query('delete from palimpsest.digest_holds where tenant_id = $1 and session_id = $2', [
    tenant,
    session,
  ]);
  await query(
    'delete from palimpsest.compaction_digests where tenant_id = $1 and session_id = $2 and generation = any ($3)',
    [tenant, session, affected],
  );
  const gone = await query(
    `delete from palimpsest.digests d where tenant_id = $1 and key = any ($2)
       and not exists (select from palimpsest.compaction_digests used where used.tenant_id = $1 and used.key = d.key)
       and not exists (select from palimpsest.digest_holds held where held.tenant_id = $1 and held.key = d.key
         and held.held_until > now())
     returning 1`,
    [tenant, keys],
  );
  return { digests: gone.length, sharedDigests: keys.length - gone.length };
}

/** Makes the affected generations again, parents first. */
async function remakeGenerations(
  tx: Transaction,
  session: SessionRow,
  all: readonly Generation[],
  affected: readonly number[],
  made: Map<number, Texts>,
): Promise<void> {
  const { policy, limits } = limitsOfSession(session);
  const counter = counterFor(session.tokenizer);
  const left = (from: number, through: number) => leftIn(tx.query, session, from, through);
  const how = {
    ...{ policy, limits, counter },
    redact: redactorFor(policy.redact, session.tenant) ?? ((text: string) => text),
    system: await left(1, session.systemThroughSeq),
    messageAt: async (seq: number) => (await left(seq, seq))[0] ?? null,
  };
  for (const one of all) {
    if (!affected.includes(one.generation)) continue;
    const parent = made.get(one.parent);
    if (!parent) throw new Error(`generation ${one.parent} is missing`);
    const evicted = await left(Math.max(one.fromSeq, session.systemThroughSeq + 1), one.throughSeq);
    const texts = await remade(one, parent, evicted, how);
    made.set(one.generation, texts);
    await store(tx, session, one.generation, texts);
  }
}

async function leftIn(
  query: Query,
  session: SessionRow,
  fromSeq: number,
  throughSeq: number,
): Promise<LoggedMessage[]> {
  const messages: LoggedMessage[] = [];
  for await (const page of messagePages(query, session, fromSeq, throughSeq))
    messages.push(...page.filter(({ erasedAt }) => erasedAt === null).map(toLogged));
  return messages;
}

async function store(tx: Transaction, session: SessionRow, generation: number, texts: Texts): Promise<void> {
  const { head, layers, entries } = texts;
  const counter = counterFor(session.tokenizer);
  const written = (text: string | null) => (text === null ? null : storable(text));
  const tokensOf = (text: string | null) => (text === null ? 0 : counter.count(text));
  await tx.query(
    `update palimpsest.compactions set method = $4, fallback = $5, layers = $6, state = $7, state_tokens = $8, snapshot = $9,
       snapshot_tokens = $10, ledger = $11, pinned = $12, carried_seq = $13, head = $14, head_tokens = $15, layout = $16
     where tenant_id = $1 and session_id = $2 and generation = $3`,
    [
      ...[session.tenant, session.session, generation, texts.method, texts.fallback],
      layers && JSON.stringify(layers),
      ...[texts.state === '' ? null : written(texts.state), tokensOf(texts.state)],
      ...[written(texts.snapshot), tokensOf(texts.snapshot), written(texts.ledger)],
      JSON.stringify(texts.pinned),
      texts.carriedSeq,
      ...[head && JSON.stringify(head.messages), head?.tokens ?? []],
      head?.layout ? JSON.stringify(head.layout) : null,
    ],
  );
  const keys = [...new Set((layers ?? []).map(({ key }) => key))].filter(
    (key) => !key.startsWith(snapshotKey),
  );
  for (const layer of layers ?? []) {
    const text = entries.get(layer.key);
    if (text !== undefined && keys.includes(layer.key))
      await storeRuleLayer(tx, session, generation, { layer, text });
  }
  await linkDigests(tx, session, generation, keys);
}

/** New sizes, and a new incarnation: whoever has read the session before writes nothing of it any more. */
async function settle(tx: Transaction, session: SessionRow): Promise<void> {
  const { tenant, session: name } = session;
  const live = await liveSizes(tx.query, session);
  const settings = settingsIfValid(session.policy, factsOf(session), live.liveTokens);
  await updateSession(tx, session, {
    ...live,
    exhausted: null,
    ...(settings && {
      measureAtTokens: settings.measureAtTokens,
      measureAtMessages: settings.measureAtMessages,
    }),
    ...(session.lastError && { lastError: { ...session.lastError, message: 'removed by an erasure' } }),
  });
  await tx.query(
    `update palimpsest.sessions set incarnation = gen_random_uuid(), overdue_at = now(),
       former_incarnations = former_incarnations || incarnation,
       stored_bytes = (select sum(octet_length(body)) from palimpsest.messages where tenant_id = $1 and session_id = $2)
     where tenant_id = $1 and session_id = $2`,
    [tenant, name],
  );
}

/** A session that was forked from this one, or that this one was forked from, and the messages that it still has. */
export interface Holder {
  [column: string]: unknown;
  session: string;
  seqs: number[];
}

/** The sessions with the same origin that still have one of these messages. */
export async function holdersOf(
  pool: Pool,
  { tenant, session }: SessionIds,
  messages: readonly Pick<Tombstone, 'seq' | 'sha256'>[],
): Promise<Holder[]> {
  return read<Holder>(
    pool,
    { tenant },
    `with recursive family as (
       select session_id, fork_of->>'session' as origin from palimpsest.sessions
       where tenant_id = $1 and session_id = $2
       union
       select s.session_id, s.fork_of->>'session' from family join palimpsest.sessions s on s.tenant_id = $1
         and (s.session_id = family.origin or (s.fork_of is not null and s.fork_of->>'session' = family.session_id))
     )
     select family.session_id as session, array_agg(m.seq order by m.seq) as seqs from family
     join unnest($3::int[], $4::text[]) as sought (seq, sha256) on true
     join palimpsest.messages m on m.tenant_id = $1 and m.session_id = family.session_id and m.seq = sought.seq
       and coalesce(m.received_sha256, m.sha256) = decode(sought.sha256, 'hex') and m.erased_at is null
     where family.session_id <> $2 group by 1 order by 1`,
    [tenant, session, messages.map(({ seq }) => seq), messages.map(({ sha256 }) => sha256)],
  );
}
