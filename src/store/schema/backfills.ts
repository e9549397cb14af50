/** Backfills: jobs that compact many sessions, and the outcome of each session. */
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
} from 'drizzle-orm/pg-core';
import type { BackfillItemState, BackfillRequest, BackfillState } from '../../contract/backfills.js';
import { count, createdAt, moment, palimpsest, sessionId, tenantId } from './columns.js';

export const backfills = palimpsest.table(
  'backfills',
  {
    tenantId: tenantId(),
    job: text('job').notNull(),
    /** The request with its defaults filled in. */
    request: jsonb('request').$type<BackfillRequest>().notNull(),
    state: text('state').$type<BackfillState>().notNull().default('running'),
    /** Why the job stopped, if it did not complete. */
    reason: text('reason'),
    /** Last session id that was selected; null before the first. Sessions are selected in the order of their ids. */
    cursor: text('cursor'),
    /** More sessions may follow the cursor. */
    selecting: boolean('selecting').notNull().default(true),
    /** The present concurrency. The request has the initial one. */
    concurrency: integer('concurrency').notNull().default(16),
    spendLimit: doublePrecision('spend_limit'),
    createdAt: createdAt(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
    endedAt: moment('ended_at'),
  },
  (table) => [primaryKey({ name: 'backfills_pk', columns: [table.tenantId, table.job] })],
);

export const backfillItems = palimpsest.table(
  'backfill_items',
  {
    tenantId: tenantId(),
    job: text('job').notNull(),
    sessionId: sessionId(),
    state: text('state').$type<BackfillItemState>().notNull().default('pending'),
    attempts: integer('attempts').notNull().default(0),
    /** Failure type and message of the latest attempt. */
    errorType: text('error_type'),
    errorMessage: text('error_message'),
    /** The generation that this job committed. */
    generation: integer('generation'),
    tokensBefore: count('tokens_before'),
    tokensAfter: count('tokens_after'),
    modelCalls: integer('model_calls').notNull().default(0),
    modelInputTokens: count('model_input_tokens').notNull().default(0),
    modelOutputTokens: count('model_output_tokens').notNull().default(0),
    /** Null if the policy has no prices. */
    cost: doublePrecision('cost'),
    /**
     * The part of `cost` that failed attempts at `unsettledGeneration` cost. A commit of that generation includes it
     * in its own cost.
     */
    unsettledCost: doublePrecision('unsettled_cost').notNull().default(0),
    unsettledGeneration: integer('unsettled_generation'),
    startedAt: moment('started_at'),
    endedAt: moment('ended_at'),
  },
  (table) => [
    primaryKey({ name: 'backfill_items_pk', columns: [table.tenantId, table.job, table.sessionId] }),
    foreignKey({
      name: 'backfill_items_of_job',
      columns: [table.tenantId, table.job],
      foreignColumns: [backfills.tenantId, backfills.job],
    }),
    index('backfill_items_by_state').on(table.tenantId, table.job, table.state, table.sessionId),
    check('backfill_items_attempts', sql`attempts >= 0`),
  ],
);
