/**
 * The tables, all in the schema `palimpsest`. `tenant_id` leads every key, so that tables can be partitioned by it.
 * What drizzle cannot say (deferred foreign keys, the check of each body's hash, triggers that refuse to change the
 * log) stands in migrations/0001_guards.sql. Seqs, generations and parts are 32-bit: two thousand million messages a
 * session; sums are 64-bit.
 */
import { sql } from 'drizzle-orm';
import {
  bigint,
  boolean,
  check,
  customType,
  doublePrecision,
  foreignKey,
  index,
  integer,
  jsonb,
  pgSchema,
  primaryKey,
  text,
  timestamp,
  unique,
} from 'drizzle-orm/pg-core';
import type { Reduction } from '../conversation/context.js';
import type { Coverage } from '../summary/chunk.js';
import type { Layer } from '../summary/layers.js';
import type { Calibration, ReportedUsage } from '../tokens/calibration.js';
import type { TokenizerName } from '../tokens/counter.js';

export const palimpsest = pgSchema('palimpsest');

/** 32 bytes in the database, lower-case hex in code. */
const hash = customType<{ data: string; driverData: Buffer }>({
  dataType: () => 'bytea',
  toDriver: (hex) => Buffer.from(hex, 'hex'),
  fromDriver: (bytes) => bytes.toString('hex'),
});

const words = customType<{ data: string }>({ dataType: () => 'tsvector' });

const tenantId = () => text('tenant_id').notNull();
const sessionId = () => text('session_id').notNull();
const count = (name: string) => bigint(name, { mode: 'number' });
const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
const createdAt = () => moment('created_at').notNull().defaultNow();

/** Why the latest attempt failed. `fallback`: the model's part did, and compactions go on without it until it may be asked again. */
export interface LastError {
  type: string;
  message: string;
  fallback?: boolean;
}

/** The policy of all sessions of a tenant that say nothing else. */
export const tenants = palimpsest.table(
  'tenants',
  {
    tenantId: tenantId(),
    policy: text('policy').notNull(),
    policyVersion: integer('policy_version').notNull(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (table) => [primaryKey({ name: 'tenants_pk', columns: [table.tenantId] })],
);

export const sessions = palimpsest.table(
  'sessions',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    /** JSON of the policy's layers as given (`PolicyLayers`), as text: pins may hold what jsonb refuses. */
    policy: text('policy').notNull(),
    policyVersion: integer('policy_version').notNull(),
    /** Version of the tenant's policy within `policy`; 0: none. */
    tenantPolicyVersion: integer('tenant_policy_version').notNull().default(0),
    /** What reported usage says of our counts, by model and tokenizer. */
    calibration: jsonb('calibration').$type<Calibration>().notNull().default({}),
    /** The factor that budget and marks of this row were worked out with; moved only when it is off by more than 5 %. */
    appliedFactor: doublePrecision('applied_factor').notNull().default(1),
    /** Turns appended, and a running mean of their tokens. */
    turns: integer('turns').notNull().default(0),
    meanTurnTokens: doublePrecision('mean_turn_tokens').notNull().default(0),
    /** Last seq whose text the search table holds. */
    indexedThroughSeq: integer('indexed_through_seq').notNull().default(0),
    /** Where a fork comes from. */
    forkOf: jsonb('fork_of').$type<{ session: string; throughSeq: number }>(),
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
    exhausted: jsonb('exhausted').$type<{ atSeq: number; tokens: number; reason: string }>(),
    failures: integer('failures').notNull().default(0),
    retryAt: moment('retry_at'),
    lastError: jsonb('last_error').$type<LastError>(),
    closedAt: moment('closed_at'),
    createdAt: createdAt(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (table) => [
    primaryKey({ name: 'sessions_pk', columns: [table.tenantId, table.sessionId] }),
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
    usage: jsonb('usage').$type<ReportedUsage>(),
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

export const compactions = palimpsest.table(
  'compactions',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    /** 0 is the genesis, written with the session: no parent, nothing replaced. */
    generation: integer('generation').notNull(),
    parentGeneration: integer('parent_generation'),
    parentThroughSeq: integer('parent_through_seq'),
    /** What this compaction took out of the context; empty (`through < from`) where it holds reductions only. */
    fromSeq: integer('from_seq').notNull(),
    throughSeq: integer('through_seq').notNull(),
    reason: text('reason').notNull(),
    method: text('method').$type<'model' | 'extractive' | 'none'>().notNull(),
    /** The extractive summarizer served because the model could not: to be redone from the archive. */
    fallback: boolean('fallback').notNull().default(false),
    /** `layered` mode: what the snapshot consists of, oldest first; null in other modes. */
    layers: jsonb('layers').$type<Layer[]>(),
    /** Generation restored by this one; null for all other reasons. */
    restored: integer('restored'),
    snapshot: text('snapshot'),
    snapshotTokens: integer('snapshot_tokens').notNull().default(0),
    ledger: text('ledger'),
    /** Texts that patterns of the policy pinned so far. */
    pinned: jsonb('pinned').$type<string[]>().notNull().default([]),
    carriedSeq: integer('carried_seq'),
    /** JSON array of the head's messages, as text; null where no head stands before the tail. */
    head: text('head'),
    /** Tokens of each message of the head, by the session's present tokenizer. */
    headTokens: integer('head_tokens').array().notNull().default([]),
    coverage: jsonb('coverage').$type<Coverage[]>().notNull().default([]),
    tokensBefore: count('tokens_before').notNull().default(0),
    tokensAfter: count('tokens_after').notNull().default(0),
    evicted: integer('evicted').notNull().default(0),
    chunks: integer('chunks').notNull().default(0),
    model: text('model'),
    promptVersion: integer('prompt_version'),
    modelCalls: integer('model_calls').notNull().default(0),
    modelInputTokens: count('model_input_tokens').notNull().default(0),
    modelOutputTokens: count('model_output_tokens').notNull().default(0),
    modelMs: integer('model_ms').notNull().default(0),
    overheadMs: integer('overhead_ms').notNull().default(0),
    /** Money for the summarizer by the policy's prices; null without prices. */
    cost: doublePrecision('cost'),
    currency: text('currency'),
    /** Later context reads after which the compaction has paid for itself; null: never. */
    paysBackAfter: integer('pays_back_after'),
    archivePart: integer('archive_part'),
    /** Archive parts along the chain of parents, this one's included. */
    parts: integer('parts').notNull().default(0),
    /** The run that committed it; empty for the genesis. */
    workflowId: text('workflow_id').notNull().default(''),
    runId: text('run_id').notNull().default(''),
    createdAt: createdAt(),
  },
  (table) => [
    primaryKey({ name: 'compactions_pk', columns: [table.tenantId, table.sessionId, table.generation] }),
    unique('compactions_through').on(table.tenantId, table.sessionId, table.generation, table.throughSeq),
    unique('compactions_range').on(
      table.tenantId,
      table.sessionId,
      table.generation,
      table.fromSeq,
      table.throughSeq,
    ),
    unique('compactions_run').on(table.tenantId, table.sessionId, table.runId),
    foreignKey({
      name: 'compactions_of_session',
      columns: [table.tenantId, table.sessionId],
      foreignColumns: [sessions.tenantId, sessions.sessionId],
    }),
    foreignKey({
      name: 'compactions_parent',
      columns: [table.tenantId, table.sessionId, table.parentGeneration, table.parentThroughSeq],
      foreignColumns: [table.tenantId, table.sessionId, table.generation, table.throughSeq],
    }),
    foreignKey({
      name: 'compactions_carried',
      columns: [table.tenantId, table.sessionId, table.carriedSeq],
      foreignColumns: [messages.tenantId, messages.sessionId, messages.seq],
    }),
    check(
      'compactions_follow_parent',
      sql`case when generation = 0
        then parent_generation is null and parent_through_seq is null and from_seq = 1 and through_seq = 0
        else parent_generation is not null and parent_through_seq is not null
          and generation > parent_generation and from_seq = parent_through_seq + 1 and through_seq >= parent_through_seq
        end`,
    ),
    check('compactions_archive_what_they_evict', sql`(archive_part is null) = (through_seq < from_seq)`),
    check('compactions_snapshot_not_empty', sql`snapshot is null or snapshot ~ '[^[:space:]]'`),
    check(
      'compactions_evict_by_summary',
      sql`through_seq < from_seq or (snapshot is not null and head is not null)`,
    ),
  ],
);

export const archiveParts = palimpsest.table(
  'archive_parts',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    part: integer('part').notNull(),
    generation: integer('generation').notNull(),
    fromSeq: integer('from_seq').notNull(),
    throughSeq: integer('through_seq').notNull(),
    messages: integer('messages').notNull(),
    tokens: count('tokens').notNull(),
    /** Bytes of the bodies in UTF-8. */
    bytes: count('bytes').notNull(),
    /** Over the 32-byte sha256 of each member, in order. */
    sha256: hash('sha256').notNull(),
    createdAt: createdAt(),
  },
  (table) => [
    primaryKey({ name: 'archive_parts_pk', columns: [table.tenantId, table.sessionId, table.part] }),
    unique('archive_parts_generation').on(table.tenantId, table.sessionId, table.generation),
    foreignKey({
      name: 'archive_parts_of_compaction',
      columns: [table.tenantId, table.sessionId, table.generation, table.fromSeq, table.throughSeq],
      foreignColumns: [
        compactions.tenantId,
        compactions.sessionId,
        compactions.generation,
        compactions.fromSeq,
        compactions.throughSeq,
      ],
    }),
    foreignKey({
      name: 'archive_parts_last_message',
      columns: [table.tenantId, table.sessionId, table.throughSeq],
      foreignColumns: [messages.tenantId, messages.sessionId, messages.seq],
    }),
    check('archive_parts_whole', sql`through_seq >= from_seq and messages = through_seq - from_seq + 1`),
  ],
);

export const reductions = palimpsest.table(
  'reductions',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    generation: integer('generation').notNull(),
    /** 0: committed with the generation. Otherwise made while reading a context for this many tokens. */
    budget: integer('budget').notNull(),
    /** Order in which they were made; a later one may replace an earlier one. */
    position: integer('position').notNull(),
    fromSeq: integer('from_seq').notNull(),
    throughSeq: integer('through_seq').notNull(),
    kind: text('kind').$type<Reduction['kind']>().notNull(),
    /** JSON of the stand-in message. */
    body: text('body').notNull(),
    tokens: integer('tokens').notNull(),
    createdAt: createdAt(),
  },
  (table) => [
    primaryKey({
      name: 'reductions_pk',
      columns: [table.tenantId, table.sessionId, table.generation, table.budget, table.position],
    }),
    foreignKey({
      name: 'reductions_of_compaction',
      columns: [table.tenantId, table.sessionId, table.generation],
      foreignColumns: [compactions.tenantId, compactions.sessionId, compactions.generation],
    }),
    check('reductions_range', sql`from_seq >= 1 and through_seq >= from_seq`),
  ],
);

/** `repair`: a snapshot asked for once more; `extractive`: a layer made by rule, without a call. */
export type DigestKind = 'chunk' | 'fold' | 'merge' | 'repair' | 'extractive';

export const digests = palimpsest.table(
  'digests',
  {
    tenantId: tenantId(),
    /** Content key (hex sha256) over tenant, members, prompt, model and limits. */
    key: text('key').notNull(),
    kind: text('kind').$type<DigestKind>().notNull(),
    text: text('text').notNull(),
    tokens: integer('tokens').notNull(),
    model: text('model').notNull(),
    promptVersion: integer('prompt_version').notNull(),
    calls: integer('calls').notNull(),
    inputTokens: count('input_tokens').notNull(),
    outputTokens: count('output_tokens').notNull(),
    ms: integer('ms').notNull(),
    /** Who paid: the session and the generation that was being prepared. */
    payerSession: text('payer_session').notNull(),
    payerGeneration: integer('payer_generation').notNull(),
    createdAt: createdAt(),
  },
  (table) => [
    primaryKey({ name: 'digests_pk', columns: [table.tenantId, table.key] }),
    index('digests_by_age').on(table.tenantId, table.createdAt),
    check('digests_not_empty', sql`text ~ '[^[:space:]]'`),
  ],
);

export const compactionDigests = palimpsest.table(
  'compaction_digests',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    generation: integer('generation').notNull(),
    position: integer('position').notNull(),
    key: text('key').notNull(),
  },
  (table) => [
    primaryKey({
      name: 'compaction_digests_pk',
      columns: [table.tenantId, table.sessionId, table.generation, table.position],
    }),
    index('compaction_digests_by_key').on(table.tenantId, table.key),
    foreignKey({
      name: 'compaction_digests_of_compaction',
      columns: [table.tenantId, table.sessionId, table.generation],
      foreignColumns: [compactions.tenantId, compactions.sessionId, compactions.generation],
    }),
    foreignKey({
      name: 'compaction_digests_referenced',
      columns: [table.tenantId, table.key],
      foreignColumns: [digests.tenantId, digests.key],
    }),
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
