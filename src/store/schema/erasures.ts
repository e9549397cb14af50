/** Sessions that are erased here, and of which Temporal may still hold something. */
import { integer, primaryKey } from 'drizzle-orm/pg-core';
import { moment, palimpsest, sessionId, tenantId } from './columns.js';

/** Ids alone, and only until their executions are deleted. */
export const erasures = palimpsest.table(
  'erasures',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    /** Executions that began earlier are the erased session's. */
    erasedAt: moment('erased_at').notNull(),
    /** The last generation that a compaction of it may have prepared. */
    generation: integer('generation').notNull(),
    /** When Temporal was last told to delete all that was found of it; null: never yet. */
    toldAt: moment('told_at'),
  },
  (table) => [primaryKey({ name: 'erasures_pk', columns: [table.tenantId, table.sessionId] })],
);
