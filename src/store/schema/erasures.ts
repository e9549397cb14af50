/** Erased sessions of which Temporal may still hold executions. */
import { integer, primaryKey } from 'drizzle-orm/pg-core';
import { moment, ofOneTenant, palimpsest, sessionId, tenantId } from './columns.js';

/** The rows hold ids only, and only until the executions are deleted. */
export const erasures = palimpsest.table(
  'erasures',
  {
    tenantId: tenantId(),
    sessionId: sessionId(),
    /** Executions that began earlier belong to the erased session. */
    erasedAt: moment('erased_at').notNull(),
    /** The last generation that a compaction of the session may have prepared. */
    generation: integer('generation').notNull(),
    /** When Temporal was last told to delete all executions found; null: never. */
    toldAt: moment('told_at'),
  },
  (table) => [ofOneTenant(), primaryKey({ name: 'erasures_pk', columns: [table.tenantId, table.sessionId] })],
);
