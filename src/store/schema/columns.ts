/** What columns of several tables have in common. */
import { bigint, customType, pgSchema, text, timestamp } from 'drizzle-orm/pg-core';

export const palimpsest = pgSchema('palimpsest');

/** 32 bytes in the database, lower-case hex in code. */
export const hash = customType<{ data: string; driverData: Buffer }>({
  dataType: () => 'bytea',
  toDriver: (hex) => Buffer.from(hex, 'hex'),
  fromDriver: (bytes) => bytes.toString('hex'),
});

export const words = customType<{ data: string }>({ dataType: () => 'tsvector' });

export const tenantId = () => text('tenant_id').notNull();
export const sessionId = () => text('session_id').notNull();
export const count = (name: string) => bigint(name, { mode: 'number' });
export const moment = (name: string) => timestamp(name, { withTimezone: true, mode: 'date' });
export const createdAt = () => moment('created_at').notNull().defaultNow();
