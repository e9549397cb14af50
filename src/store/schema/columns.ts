/**
 * What the tables have in common. All are in the schema `palimpsest`. `tenant_id` leads every key, so that tables can be partitioned by it.
 * What drizzle cannot say (deferred foreign keys, the check of each body's hash, triggers that refuse to change the
 * log) stands in migrations/0001_guards.sql. Seqs, generations and parts are 32-bit: two thousand million messages a
 * session; sums are 64-bit.
 */
import { bigint, customType, pgSchema, text, timestamp } from 'drizzle-orm/pg-core';

export const palimpsest = pgSchema('palimpsest');

/** 32 bytes in the database, lower-case hex in code. */
export const hash = customType<{ data: string; driverData: Buffer }>({
  dataType: () => 'bytea',
  toDriver: (hex) => Buffer.from(hex, 'hex'),
  fromDriver: (bytes) => bytes.toString('hex'),
});

export const bytes = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

export const words = customType<{ data: string }>({ dataType: () => 'tsvector' });

export const tenantId = () => text('tenant_id').notNull();
export const sessionId = () => text('session_id').notNull();
export const count = (name: string) => bigint(name, { mode: 'number' });
export const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
export const createdAt = () => moment('created_at').notNull().defaultNow();
