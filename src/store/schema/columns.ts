/**
 * Definitions that the tables share. All tables are in the schema `palimpsest`. `tenant_id` leads every key, so that
 * tables can be partitioned by it. migrations/0001_guards.sql has what drizzle cannot express: deferred foreign keys,
 * the check of each body's hash, and triggers that refuse to change the log. Seqs, generations and parts have 32
 * bits, enough for two thousand million messages in a session. Sums have 64 bits.
 */
import { sql } from 'drizzle-orm';
import { bigint, customType, pgPolicy, pgSchema, text, timestamp } from 'drizzle-orm/pg-core';

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
/**
 * Row-level security: a transaction sees and writes the rows of the one tenant that it has named. Each table with a tenant has
 * this policy; migrations/0023_row_level_security.sql has what drizzle cannot express.
 */
export const ofOneTenant = () => pgPolicy('one_tenant', { using: named, withCheck: named });
const named = sql`tenant_id = nullif(current_setting('palimpsest.tenant', true), '')`;

export const createdAt = () => moment('created_at').notNull().defaultNow();

/** `nextSeq` → `next_seq`. */
type SnakeCase<Name extends string> = Name extends `${infer First}${infer Rest}`
  ? `${First extends Uppercase<First> ? '_' : ''}${Lowercase<First>}${SnakeCase<Rest>}`
  : '';

/** A row as the driver returns it, keyed by column names. `Moment` is the type of its timestamps. */
export type InSnakeCase<Row extends Record<string, unknown>, Moment = Date> = {
  [Key in keyof Row & string as SnakeCase<Key>]: Date extends Row[Key]
    ? Exclude<Row[Key], Date> | Moment
    : Row[Key];
};
