/** Tokens of the API. */
import { sql } from 'drizzle-orm';
import { check, primaryKey, text, uniqueIndex } from 'drizzle-orm/pg-core';
import type { Scope } from '../../contract/routes.js';
import { createdAt, hash, moment, ofOneTenant, palimpsest, tenantId } from './columns.js';

/** A revoked token keeps its row, so that lists show it. */
export const apiTokens = palimpsest.table(
  'api_tokens',
  {
    tenantId: tenantId(),
    id: text('id').notNull(),
    name: text('name').notNull(),
    /** Hash of the token's UTF-8 bytes. The token itself is not stored. */
    sha256: hash('sha256').notNull(),
    scopes: text('scopes').array().$type<Scope[]>().notNull(),
    createdAt: createdAt(),
    expiresAt: moment('expires_at'),
    revokedAt: moment('revoked_at'),
    /** Id of the token that made it, or another name of its maker; null for the command line and callers without a token. */
    createdBy: text('created_by'),
  },
  (table) => [
    ofOneTenant(),
    primaryKey({ name: 'api_tokens_pk', columns: [table.tenantId, table.id] }),
    // A request shows its token before the tenant is known, so the tenant does not lead this index.
    uniqueIndex('api_tokens_by_hash').on(table.sha256),
    check('api_tokens_sha256', sql`octet_length(sha256) = 32`),
  ],
);
