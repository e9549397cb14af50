/** Limits that all workers of a deployment share. */
import { doublePrecision, primaryKey, text } from 'drizzle-orm/pg-core';
import { moment, palimpsest } from './columns.js';

/** Token buckets. All tenants share the provider's account, so this is the only table without a tenant. */
export const rateBuckets = palimpsest.table(
  'rate_buckets',
  {
    name: text('name').notNull(),
    /** Tokens that may be taken at `updated_at`; negative after a call that used more than estimated. */
    level: doublePrecision('level').notNull(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (table) => [primaryKey({ name: 'rate_buckets_pk', columns: [table.name] })],
);
