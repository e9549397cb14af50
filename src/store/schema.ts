/**
 * The tables, all in the schema `palimpsest`. `tenant_id` leads every key, so that tables can be partitioned by it.
 * What drizzle cannot say (deferred foreign keys, the check of each body's hash, triggers that refuse to change the
 * log) stands in migrations/0001_guards.sql. Seqs, generations and parts are 32-bit: two thousand million messages a
 * session; sums are 64-bit.
 */
export * from './schema/backfills.js';
export * from './schema/columns.js';
export * from './schema/compactions.js';
export * from './schema/digests.js';
export * from './schema/erasures.js';
export * from './schema/limits.js';
export * from './schema/log.js';
