/** Limits that all workers of a deployment hold together. */
import { doublePrecision, primaryKey, text } from 'drizzle-orm/pg-core';
import { moment, palimpsest } from './columns.js';

/** Token buckets. A provider's account is one for all tenants, so this is the one table without a tenant. */
export const rateBuckets = palimpsest.table(
  'rate_buckets',
  {
    name: text('name').notNull(),
    /** What may be drawn at `updated_at`; below zero after a call that took more than was thought. */
    level: doublePrecision('level').notNull(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (table) => [primaryKey({ name: 'rate_buckets_pk', columns: [table.name] })],
);
