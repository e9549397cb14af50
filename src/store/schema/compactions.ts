import { sql } from 'drizzle-orm';
import {
  boolean,
  check,
  doublePrecision,
  foreignKey,
  integer,
  jsonb,
  primaryKey,
  text,
  unique,
} from 'drizzle-orm/pg-core';
import type { HeadLayout, Reduction } from '../../context/view/view.js';
import type { Coverage } from '../../summary/coverage.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import { count, createdAt, hash, ofOneTenant, palimpsest, sessionId, tenantId } from './columns.js';
import { messages, sessions } from './log.js';

/** The results of compactions: generations with their heads, archive parts and reductions. */
export const compactions = palimpsest.table(
  'compactions',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    /** 0 is the genesis, written with the session. It has no parent and replaces nothing. */
    generation: integer('generation').notNull(),
    parentGeneration: integer('parent_generation'),
    parentThroughSeq: integer('parent_through_seq'),
    /** The range that this compaction evicted; empty (`through < from`) if it only reduced messages. */
    fromSeq: integer('from_seq').notNull(),
    throughSeq: integer('through_seq').notNull(),
    reason: text('reason').notNull(),
    method: text('method').$type<'model' | 'extractive' | 'none'>().notNull(),
    /** The fallback wrote the summary because the model failed. A model must rewrite the summary from the archive. */
    fallback: boolean('fallback').notNull().default(false),
    /** `journal` mode: the entries that the snapshot consists of, oldest first; null in other modes. */
    layers: jsonb('layers').$type<KeptLayer[]>(),
    /** `journal` mode: rules, requests and open questions in force, and the next step. */
    state: text('state'),
    stateTokens: integer('state_tokens').notNull().default(0),
    snapshot: text('snapshot'),
    snapshotTokens: integer('snapshot_tokens').notNull().default(0),
    ledger: text('ledger'),
    /** Texts that the policy's patterns have pinned so far. */
    pinned: jsonb('pinned').$type<string[]>().notNull().default([]),
    carriedSeq: integer('carried_seq'),
    /** JSON array of the head's messages, as text; null if there is no head. */
    head: text('head'),
    /** Tokens of each message of the head, by the session's present tokenizer. */
    headTokens: integer('head_tokens').array().notNull().default([]),
    /** The composition of the head's first message; null without a head, and for heads of earlier versions. */
    layout: jsonb('layout').$type<HeadLayout>(),
    /** Identifies the redaction of these texts (`redactionOf`); '' without one, and for texts of earlier versions. */
    redaction: text('redaction').notNull().default(''),
    /** The requests that read each evicted message, for an audit of the summary. */
    coverage: jsonb('coverage').$type<Coverage[]>().notNull().default([]),
    tokensBefore: count('tokens_before').notNull().default(0),
    tokensAfter: count('tokens_after').notNull().default(0),
    /**
     * Tokens at the beginning of `tokensAfter` that the context before the compaction had as well; null for restores
     * and earlier versions.
     */
    cachedTokens: count('cached_tokens'),
    evicted: integer('evicted').notNull().default(0),
    chunks: integer('chunks').notNull().default(0),
    /** Texts (digests of chunks, merged digests, summaries of messages) that the rules wrote because the model failed at them. */
    chunksByRule: integer('chunks_by_rule').notNull().default(0),
    modelCalls: integer('model_calls').notNull().default(0),
    modelInputTokens: count('model_input_tokens').notNull().default(0),
    modelOutputTokens: count('model_output_tokens').notNull().default(0),
    modelMs: integer('model_ms').notNull().default(0),
    overheadMs: integer('overhead_ms').notNull().default(0),
    /** Cost of the summarizer by the policy's prices; null without prices. */
    cost: doublePrecision('cost'),
    currency: text('currency'),
    /** Number of later context reads after which the compaction has paid for itself; null: never. */
    paysBackAfter: integer('pays_back_after'),
    archivePart: integer('archive_part'),
    /** Archive parts along the chain of parents, including the part of this compaction. */
    parts: integer('parts').notNull().default(0),
    /** The workflow run that committed the compaction; empty for the genesis. */
    workflowId: text('workflow_id').notNull().default(''),
    runId: text('run_id').notNull().default(''),
    createdAt: createdAt(),
  },
  (table) => [
    ofOneTenant(),
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
    /** Hash of the 32-byte sha256 hashes of the part's messages, in order. */
    sha256: hash('sha256').notNull(),
    createdAt: createdAt(),
  },
  (table) => [
    ofOneTenant(),
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
    /** 0: committed with the generation. Otherwise the budget, in tokens, of the read that made the reduction. */
    budget: integer('budget').notNull(),
    /** Order in which the reductions were made; a later reduction may replace an earlier one. */
    position: integer('position').notNull(),
    fromSeq: integer('from_seq').notNull(),
    throughSeq: integer('through_seq').notNull(),
    kind: text('kind').$type<Reduction['kind']>().notNull(),
    /** JSON of the message that replaces the original. */
    body: text('body').notNull(),
    tokens: integer('tokens').notNull(),
  },
  (table) => [
    ofOneTenant(),
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
