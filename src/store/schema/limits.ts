/** Limits of the deployment and of tenants, and what tenants have used. */
import { date, doublePrecision, jsonb, primaryKey, text } from 'drizzle-orm/pg-core';
import type { TenantOverrides } from '../../policy/tenant-limits.js';
import { count, moment, ofOneTenant, palimpsest, tenantId } from './columns.js';

/** Token buckets of the deployment and of tenants. All tenants share the provider's account, so this is the only table without a tenant. */
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

/** The operator's limits of one tenant, where they differ from the defaults. The role of the application may only read them. */
export const tenantLimits = palimpsest.table(
  'tenant_limits',
  {
    tenantId: tenantId(),
    limits: jsonb('limits').$type<TenantOverrides>().notNull(),
    updatedAt: moment('updated_at').notNull().defaultNow(),
  },
  (table) => [ofOneTenant(), primaryKey({ name: 'tenant_limits_pk', columns: [table.tenantId] })],
);

/** Model calls of a tenant on one day (UTC), those in flight included with the most that they may use. */
export const tenantSpend = palimpsest.table(
  'tenant_spend',
  {
    tenantId: tenantId(),
    day: date('day').notNull(),
    /** USD by the operator's prices; 0 for models without a price. */
    cost: doublePrecision('cost').notNull(),
    /** Prompt and answer. */
    tokens: count('tokens').notNull(),
  },
  (table) => [ofOneTenant(), primaryKey({ name: 'tenant_spend_pk', columns: [table.tenantId, table.day] })],
);
