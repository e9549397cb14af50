import { sql } from 'drizzle-orm';
import {
  boolean,
  check,
  doublePrecision,
  foreignKey,
  index,
  integer,
  jsonb,
  primaryKey,
  text,
  unique,
  uuid,
} from 'drizzle-orm/pg-core';
import type { FormatName } from '../../conversation/format-names.js';
import type { Calibration } from '../../tokens/calibration.js';
import type { TokenizerName } from '../../tokens/counter.js';
import { bytes, count, createdAt, hash, moment, palimpsest, sessionId, tenantId, words } from './columns.js';
import type { Exhausted, LastError } from '../../contract/sessions.js';

/** The policy of all sessions of a tenant that say nothing else. */
export const tenants = palimpsest.table(
  'tenants',
  {
    tenantId: tenantId(),
    policy: text('policy').notNull(),
    policyVersion: integer('policy_version').notNull(),
  },
  (table) => [primaryKey({ name: 'tenants_pk', columns: [table.tenantId] })],
);

/** Tenants, sessions, and the log: turns, messages, and their text for search. */
export const sessions = palimpsest.table(
  'sessions',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    /** Of this session alone: another one begun under the same id after an erasure has another. */
    incarnation: uuid('incarnation').notNull().defaultRandom(),
    /** JSON of the policy's layers as given (`PolicyLayers`), as text: pins may hold what jsonb refuses. */
    policy: text('policy').notNull(),
    /** `summary.mode` of a session begun under a version with another default; null once its policy was stored since. */
    begunMode: text('begun_mode').$type<'incremental'>(),
    policyVersion: integer('policy_version').notNull(),
    /** Version of the tenant's policy within `policy`; 0: none. */
    tenantPolicyVersion: integer('tenant_policy_version').notNull().default(0),
    /** What reported usage says of our counts, by model and tokenizer. */
    calibration: jsonb('calibration').$type<Calibration>().notNull().default({}),
    /** What budget and marks of this row were worked out with; moved only when the budget is off by more than 5 %, or too large. */
    appliedFactor: doublePrecision('applied_factor').notNull().default(1),
    appliedOverhead: integer('applied_overhead').notNull().default(0),
    /** Turns appended, and a running mean of their tokens. */
    turns: integer('turns').notNull().default(0),
    meanTurnTokens: doublePrecision('mean_turn_tokens').notNull().default(0),
    /** Last seq whose text the search table holds. */
    indexedThroughSeq: integer('indexed_through_seq').notNull().default(0),
    /** Where a fork comes from. */
    forkOf: jsonb('fork_of').$type<{ session: string; throughSeq: number }>(),
    /** In which its turns come in and its contexts go out; fixed by the first turn. */
    format: text('format').$type<FormatName>().notNull().default('openai-chat'),
    /** What the stored token counts of this session were made with. */
    tokenizer: text('tokenizer').$type<TokenizerName>().notNull(),
    /** Context tokens the policy allows: the key of this session's own emergency reductions. */
    budget: integer('budget').notNull(),
    nextSeq: integer('next_seq').notNull().default(1),
    systemThroughSeq: integer('system_through_seq').notNull().default(0),
    /** The head: the newest compaction, and the last seq it replaces. */
    generation: integer('generation').notNull().default(0),
    throughSeq: integer('through_seq').notNull().default(0),
    /** Stored tokens and messages of system + head + tail, reductions committed with the head applied. */
    liveTokens: count('live_tokens').notNull().default(0),
    liveMessages: count('live_messages').notNull().default(0),
    /** Sizes at which `measure` wants to be asked again; null: never. */
    measureAtTokens: count('measure_at_tokens'),
    measureAtMessages: count('measure_at_messages'),
    exhausted: jsonb('exhausted').$type<Exhausted>(),
    failures: integer('failures').notNull().default(0),
    retryAt: moment('retry_at'),
    lastError: jsonb('last_error').$type<LastError>(),
    /** Since when no compaction may begin. */
    pausedAt: moment('paused_at'),
    /**
     * From when on nobody may be at work on what the session asks for: it has reached one of its marks, and no workflow
     * has measured it since. In the future: a workflow has it in hand until then. Null: it asks for nothing. The trigger
     * `sessions_overdue` holds both columns to that.
     */
    overdueAt: moment('overdue_at'),
    /** When the sweep looks at it next: `overdueAt`, later where it has been signalled since. */
    sweepAt: moment('sweep_at'),
    closedAt: moment('closed_at'),
    createdAt: createdAt(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ name: 'sessions_pk', columns: [table.tenantId, table.sessionId] }),
    // In the order of the ids' code points, whatever the database's collation: lists and prefixes.
    index('sessions_in_order').on(table.tenantId, sql`session_id collate "C"`),
    index('sessions_by_origin')
      .on(table.tenantId, sql`(fork_of->>'session')`)
      .where(sql`fork_of is not null`),
    // Only sessions that ask for something; never of columns that a quiet turn changes, so that its update stays in place.
    index('sessions_to_sweep')
      .on(table.tenantId, table.sweepAt, table.overdueAt)
      .where(sql`sweep_at is not null`),
    check('sessions_counters', sql`live_tokens >= 0 and live_messages >= 0 and next_seq >= 1`),
    check('sessions_head_within_log', sql`through_seq < next_seq and system_through_seq < next_seq`),
  ],
);

export const turns = palimpsest.table(
  'turns',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    turnId: text('turn_id').notNull(),
    fromSeq: integer('from_seq').notNull(),
    throughSeq: integer('through_seq').notNull(),
    /** Of the JSON array of the serialized messages: the same turn id with other content is a conflict. */
    sha256: hash('sha256').notNull(),
    createdAt: createdAt(),
  },
  (table) => [
    primaryKey({ name: 'turns_pk', columns: [table.tenantId, table.sessionId, table.turnId] }),
    unique('turns_from_seq').on(table.tenantId, table.sessionId, table.fromSeq),
    foreignKey({
      name: 'turns_of_session',
      columns: [table.tenantId, table.sessionId],
      foreignColumns: [sessions.tenantId, sessions.sessionId],
    }),
    check('turns_range', sql`from_seq >= 1 and through_seq >= from_seq`),
  ],
);

export const messages = palimpsest.table(
  'messages',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    seq: integer('seq').notNull(),
    turnId: text('turn_id').notNull(),
    role: text('role').notNull(),
    /** JSON of the calls `[{id, name}]`, null for none; text, because ids are the platform's and may hold anything. */
    calls: text('calls'),
    /** JSON string of the call id (role tool) or name (role function) that this message answers. */
    answers: text('answers'),
    empty: boolean('empty').notNull(),
    tokens: integer('tokens').notNull(),
    sha256: hash('sha256').notNull(),
    /** What JSON.stringify made of the message. */
    body: text('body').notNull(),
    /** When it was said, as its turn or its log tells; null: nobody told. */
    at: moment('at'),
    createdAt: createdAt(),
  },
  (table) => [
    primaryKey({ name: 'messages_pk', columns: [table.tenantId, table.sessionId, table.seq] }),
    foreignKey({
      name: 'messages_of_turn',
      columns: [table.tenantId, table.sessionId, table.turnId],
      foreignColumns: [turns.tenantId, turns.sessionId, turns.turnId],
    }),
    index('messages_answers')
      .on(table.tenantId, table.sessionId, sql`md5(answers)`)
      .where(sql`answers is not null`),
    check('messages_seq', sql`seq >= 1`),
    check('messages_tokens', sql`tokens >= 0`),
  ],
);

/**
 * What search reads: the text of each message in slices, without NUL. Filled from the log after a commit and before a
 * search, up to the session's `indexedThroughSeq`. No index but the key: see search.ts.
 */
export const messageTexts = palimpsest.table(
  'message_texts',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    seq: integer('seq').notNull(),
    slice: integer('slice').notNull(),
    role: text('role').notNull(),
    /** Tool that a result answers, or those that an assistant message calls, one a line; null for none. */
    tool: text('tool'),
    /** The message's `name`; null for none. */
    speaker: text('speaker'),
    /** Offset of the slice in the message's text, UTF-16. */
    offset: integer('char_offset').notNull(),
    body: text('body').notNull(),
    /** Of `body`, by the rules of search-text.ts: identifiers whole and in parts, in lower case. */
    words: words('words').notNull(),
  },
  (table) => [
    primaryKey({
      name: 'message_texts_pk',
      columns: [table.tenantId, table.sessionId, table.seq, table.slice],
    }),
    foreignKey({
      name: 'message_texts_of_message',
      columns: [table.tenantId, table.sessionId, table.seq],
      foreignColumns: [messages.tenantId, messages.sessionId, messages.seq],
    }),
  ],
);

/**
 * What search by meaning compares: a vector for each stretch of a text, by the model that made it. Where the server has
 * pgvector, `palimpsest.use_pgvector()` adds them in its own form as a generated column, `embedding`.
 */
export const messageVectors = palimpsest.table(
  'message_vectors',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    model: text('model').notNull(),
    seq: integer('seq').notNull(),
    chunk: integer('chunk').notNull(),
    /** Slice of `message_texts` that it is of. */
    slice: integer('slice').notNull(),
    /** Offset of the stretch in the message's text, UTF-16. */
    offset: integer('char_offset').notNull(),
    /** A signed byte a dimension. */
    numbers: bytes('numbers').notNull(),
  },
  (table) => [
    primaryKey({
      name: 'message_vectors_pk',
      columns: [table.tenantId, table.sessionId, table.model, table.seq, table.chunk],
    }),
    foreignKey({
      name: 'message_vectors_of_message',
      columns: [table.tenantId, table.sessionId, table.seq],
      foreignColumns: [messages.tenantId, messages.sessionId, messages.seq],
    }),
  ],
);
