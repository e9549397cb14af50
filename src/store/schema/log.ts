/** Tenants, sessions and the log: turns, messages, and the text of messages for search. */
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
import {
  bytes,
  count,
  createdAt,
  hash,
  moment,
  ofOneTenant,
  palimpsest,
  sessionId,
  tenantId,
  words,
} from './columns.js';
import type { Exhausted, LastError } from '../../contract/sessions.js';

/** The policy of a tenant. It applies to all sessions that set nothing else. */
export const tenants = palimpsest.table(
  'tenants',
  {
    tenantId: tenantId(),
    policy: text('policy').notNull(),
    /** 0: the tenant has no policy. */
    policyVersion: integer('policy_version').notNull(),
    /** False: sessions of this tenant begin without redaction, as under an earlier version; null once its policy was replaced. */
    begunRedact: boolean('begun_redact'),
  },
  (table) => [ofOneTenant(), primaryKey({ name: 'tenants_pk', columns: [table.tenantId] })],
);

/** Sessions: settings, head, sizes and state. */
export const sessions = palimpsest.table(
  'sessions',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    /**
     * Unique to this session as it is. A session begun under the same id after an erasure has another value, and so has a
     * session of which a message was erased: what was made of it before is refused.
     */
    incarnation: uuid('incarnation').notNull().defaultRandom(),
    /** The values before each erasure of messages, oldest first. */
    formerIncarnations: uuid('former_incarnations').array().notNull().default([]),
    /**
     * JSON of the policy's layers as given (`PolicyLayers`). Stored as text, because pins may hold characters that
     * jsonb refuses.
     */
    policy: text('policy').notNull(),
    /**
     * `summary.mode` of a session begun under a version with another default; null once its policy has been stored
     * again.
     */
    begunMode: text('begun_mode').$type<'incremental'>(),
    /** False as long as the session keeps the earlier default of `redact`. */
    begunRedact: boolean('begun_redact'),
    policyVersion: integer('policy_version').notNull(),
    /** Version of the tenant's policy in `policy`; 0 for none. */
    tenantPolicyVersion: integer('tenant_policy_version').notNull().default(0),
    /** The ratio of reported usage to the stored counts, by model and tokenizer. */
    calibration: jsonb('calibration').$type<Calibration>().notNull().default({}),
    /**
     * The factor and overhead from which this row's `budget` and `measureAt…` were computed. They change only when the budget
     * is off by more than 5 %, or when a context that fills it would exceed the window.
     */
    appliedFactor: doublePrecision('applied_factor').notNull().default(1),
    appliedOverhead: integer('applied_overhead').notNull().default(0),
    /** Number of turns appended, and a running mean of their tokens. */
    turns: integer('turns').notNull().default(0),
    meanTurnTokens: doublePrecision('mean_turn_tokens').notNull().default(0),
    /** Last seq whose text is in the search table. */
    indexedThroughSeq: integer('indexed_through_seq').notNull().default(0),
    /** The session that a fork was made from, and its last shared seq. */
    forkOf: jsonb('fork_of').$type<{ session: string; throughSeq: number }>(),
    /** The fork in which `sync` continues this session after its list was edited; null: this session itself. */
    continuedIn: text('continued_in'),
    /** Format of its turns and contexts. The first turn fixes it. */
    format: text('format').$type<FormatName>().notNull().default('openai-chat'),
    /** The tokenizer that made the stored token counts of this session. */
    tokenizer: text('tokenizer').$type<TokenizerName>().notNull(),
    /**
     * Context tokens that the policy allows. The emergency reductions of reads with this budget are stored under this number
     * (`reductions.budget`).
     */
    budget: integer('budget').notNull(),
    nextSeq: integer('next_seq').notNull().default(1),
    systemThroughSeq: integer('system_through_seq').notNull().default(0),
    /** The head: the newest compaction, and the last seq it replaces. */
    generation: integer('generation').notNull().default(0),
    throughSeq: integer('through_seq').notNull().default(0),
    /**
     * Stored tokens and messages of leading system messages, head and tail, after the reductions that were committed with the
     * head.
     */
    liveTokens: count('live_tokens').notNull().default(0),
    liveMessages: count('live_messages').notNull().default(0),
    /** Bytes of the bodies of all its messages. */
    storedBytes: count('stored_bytes').notNull().default(0),
    /** Sizes at which the session asks to be measured again; null: never. */
    measureAtTokens: count('measure_at_tokens'),
    measureAtMessages: count('measure_at_messages'),
    exhausted: jsonb('exhausted').$type<Exhausted>(),
    failures: integer('failures').notNull().default(0),
    retryAt: moment('retry_at'),
    lastError: jsonb('last_error').$type<LastError>(),
    /** When compaction was paused; null while it may begin. */
    pausedAt: moment('paused_at'),
    /**
     * Set while the session has reached one of its marks (`measureAt…`) and has not been measured since: until this time a
     * workflow is responsible for the session; afterwards there may be none. Null if the session needs nothing. The database
     * trigger `sessions_overdue` keeps `overdueAt` and `sweepAt` consistent.
     */
    overdueAt: moment('overdue_at'),
    /** When the sweep next looks at the session: `overdueAt`, or later if the session has been signalled since. */
    sweepAt: moment('sweep_at'),
    closedAt: moment('closed_at'),
    createdAt: createdAt(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (table) => [
    ofOneTenant(),
    primaryKey({ name: 'sessions_pk', columns: [table.tenantId, table.sessionId] }),
    // Lists and prefixes follow the order of the ids' code points, whatever the database's collation.
    index('sessions_in_order').on(table.tenantId, sql`session_id collate "C"`),
    index('sessions_by_origin')
      .on(table.tenantId, sql`(fork_of->>'session')`)
      .where(sql`fork_of is not null`),
    // Covers only sessions that need something. It has no column that a quiet turn changes, so that the row's update
    // stays heap-only.
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
    /** Hash of the JSON array of the serialized messages. The same turn id with other content is a conflict. */
    sha256: hash('sha256').notNull(),
    createdAt: createdAt(),
  },
  (table) => [
    ofOneTenant(),
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

/**
 * Lists of messages that callers hold: what they sent to `sync`, and the contexts that it answered. Each stands for the log
 * through one message.
 */
export const knownLists = palimpsest.table(
  'known_lists',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    /** Chained hash of the items: see `beginningDigests`. */
    digest: hash('digest').notNull(),
    items: integer('items').notNull(),
    throughSeq: integer('through_seq').notNull(),
    createdAt: createdAt(),
  },
  (table) => [
    ofOneTenant(),
    primaryKey({ name: 'known_lists_pk', columns: [table.tenantId, table.sessionId, table.digest] }),
    foreignKey({
      name: 'known_lists_of_session',
      columns: [table.tenantId, table.sessionId],
      foreignColumns: [sessions.tenantId, sessions.sessionId],
    }),
    check(
      'known_lists_values',
      sql`octet_length(digest) = 32 and items >= 1 and through_seq >= 0 and isfinite(created_at)`,
    ),
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
    /**
     * JSON of the calls `[{id, name}]`; null for none. Stored as text, because the platform's ids may hold any
     * character.
     */
    calls: text('calls'),
    /** JSON string of the call id (role `tool`) or name (role `function`) that this message answers. */
    answers: text('answers'),
    empty: boolean('empty').notNull(),
    tokens: integer('tokens').notNull(),
    sha256: hash('sha256').notNull(),
    /** The message as JSON.stringify wrote it; after its erasure, a tombstone. */
    body: text('body').notNull(),
    /**
     * Hash of the body that was received, where an erasure has replaced it: of this message, or of another one whose original
     * form this body contained. Null for all other messages.
     */
    receivedSha256: hash('received_sha256'),
    /** When this message was erased, and the reason given; null otherwise. */
    erasedAt: moment('erased_at'),
    erasedReason: text('erased_reason'),
    /** When the message was said, according to its turn or to the imported log; null if neither gives the time. */
    at: moment('at'),
    createdAt: createdAt(),
  },
  (table) => [
    ofOneTenant(),
    primaryKey({ name: 'messages_pk', columns: [table.tenantId, table.sessionId, table.seq] }),
    foreignKey({
      name: 'messages_of_turn',
      columns: [table.tenantId, table.sessionId, table.turnId],
      foreignColumns: [turns.tenantId, turns.sessionId, turns.turnId],
    }),
    index('messages_answers')
      .on(table.tenantId, table.sessionId, table.answers)
      .where(sql`length(answers) <= 256`),
    check('messages_seq', sql`seq >= 1`),
    check('messages_tokens', sql`tokens >= 0`),
    check(
      'messages_erased',
      sql`(erased_at is null or received_sha256 is not null) and (erased_reason is null or erased_at is not null)`,
    ),
  ],
);

/**
 * The rows that search reads: the text of each message in slices, without NUL. Filled from the log after a commit and
 * before a search, up to the session's `indexedThroughSeq`. The key is the only index: see search.ts.
 */
export const messageTexts = palimpsest.table(
  'message_texts',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    seq: integer('seq').notNull(),
    slice: integer('slice').notNull(),
    role: text('role').notNull(),
    /** The tool that a result answers, or the tools that an assistant message calls, one per line; null for none. */
    tool: text('tool'),
    /** The message's `name`; null for none. */
    speaker: text('speaker'),
    /** Offset of the slice in the message's text, UTF-16. */
    offset: integer('char_offset').notNull(),
    body: text('body').notNull(),
    /** The words of `body` by the rules of words.ts: identifiers whole and in parts, in lower case. */
    words: words('words').notNull(),
  },
  (table) => [
    ofOneTenant(),
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
 * The vectors that search by meaning compares: one for each chunk of a text and each model. If the server has pgvector,
 * `palimpsest.use_pgvector()` adds them in pgvector's form as a generated column, `embedding`.
 */
export const messageVectors = palimpsest.table(
  'message_vectors',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    model: text('model').notNull(),
    seq: integer('seq').notNull(),
    chunk: integer('chunk').notNull(),
    /** The slice of `message_texts` that the chunk begins in. */
    slice: integer('slice').notNull(),
    /** Offset of the chunk in the message's text, UTF-16. */
    offset: integer('char_offset').notNull(),
    /** One signed byte for each dimension. */
    numbers: bytes('numbers').notNull(),
  },
  (table) => [
    ofOneTenant(),
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
