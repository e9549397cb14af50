/** Digests by content key; the compactions that refer to them or hold them; and the leases of running requests. */
import { sql } from 'drizzle-orm';
import { check, foreignKey, index, integer, jsonb, primaryKey, text } from 'drizzle-orm/pg-core';
import { count, createdAt, moment, palimpsest, sessionId, tenantId } from './columns.js';
import { compactions } from './compactions.js';

export const digests = palimpsest.table(
  'digests',
  {
    tenantId: tenantId(),
    /** Content key (hex sha256) of tenant, inputs (hashes of messages, keys of digests), prompt, model and limits. */
    key: text('key').notNull(),
    text: text('text').notNull(),
    tokens: integer('tokens').notNull(),
    calls: integer('calls').notNull(),
    inputTokens: count('input_tokens').notNull(),
    outputTokens: count('output_tokens').notNull(),
    /**
     * The session that paid, and the generation that it was preparing. Generation 0: the payer was erased, and `payerSession`
     * is another session that refers to the digest.
     */
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
 * Digests that a running compaction has read. They do not expire, and an erasure of the session that paid for them
 * keeps them.
 */
export const digestHolds = palimpsest.table(
  'digest_holds',
  {
    tenantId: tenantId(),
    key: text('key').notNull(),
    /** The compaction that holds the digest: its session, and the run of its workflow. */
    sessionId: sessionId(),
    runId: text('run_id').notNull(),
    heldUntil: moment('held_until').notNull(),
  },
  (table) => [
    primaryKey({
      name: 'digest_holds_pk',
      columns: [table.tenantId, table.sessionId, table.runId, table.key],
    }),
    index('digest_holds_by_key').on(table.tenantId, table.key),
    index('digest_holds_by_end').on(table.tenantId, table.heldUntil),
    foreignKey({
      name: 'digest_holds_of_digest',
      columns: [table.tenantId, table.key],
      foreignColumns: [digests.tenantId, digests.key],
    }).onDelete('cascade'),
  ],
);

/** Leases of running model requests, one for each content key. */
export const digestFlights = palimpsest.table(
  'digest_flights',
  {
    tenantId: tenantId(),
    key: text('key').notNull(),
    /** The step that sends the request, and the attempt number of that step. */
    step: text('step').notNull(),
    attempt: integer('attempt').notNull(),
    expiresAt: moment('expires_at').notNull(),
    /** The failure of the request, for steps that waited for it; null while it runs. */
    failure: jsonb('failure').$type<{ type: string; retryAfterMs: number | null }>(),
  },
  (table) => [primaryKey({ name: 'digest_flights_pk', columns: [table.tenantId, table.key] })],
);
