/** Tokens of the API that are kept in the database. */
import { z } from 'zod';
import { list } from '../policy/list.js';
import { scopes } from './routes.js';
import { component, id, moment } from './schema.js';

export type TokenRequest = z.infer<typeof tokenRequest>;
export const tokenRequest = component(
  'TokenRequest',
  z.strictObject({
    name: id('stored').describe(
      'Name for people, such as the program that uses the token. It need not be unique.',
    ),
    scopes: list(z.enum(scopes), { min: 1, max: 100 }).describe(
      'What the token may do. No scope includes another one.',
    ),
    expiresAt: z.iso
      .datetime({ offset: true, error: 'is not an ISO 8601 time with a time zone' })
      .optional()
      .describe(
        'End of its validity, ISO 8601 with a time zone, such as 2027-01-31T00:00:00Z. Default: it is valid until it is revoked. A token ends with its maker at the latest.',
      ),
  }),
  { description: 'A new token.', example: { name: 'support agent', scopes: ['append', 'read'] } },
);

const fields = {
  id: z.string().describe('Identifies the token in lists and revocations. It is not secret.'),
  name: z.string(),
  scopes: z.array(z.enum(scopes)),
  createdAt: moment,
  expiresAt: moment.nullable(),
  revokedAt: moment.nullable(),
  createdBy: z
    .string()
    .nullable()
    .describe(
      'Id of the token that made it; `identity:` and the subject for a JWT, `configuration` for a token of the configuration; null for the command line and for callers without a token.',
    ),
};

const example = {
  ...{ id: '6f0d3c0e-6a3d-4d0e-9d1c-0f8f1f6f3c11', name: 'support agent', expiresAt: null, revokedAt: null },
  createdBy: null,
  ...{ scopes: ['append' as const, 'read' as const], createdAt: '2026-03-02T09:00:00.000Z' },
};

export type ApiToken = z.infer<typeof apiToken>;
export const apiToken = component('ApiToken', z.object(fields), {
  description: 'A token of the tenant, without the secret itself.',
  example,
});

export type CreatedToken = z.infer<typeof createdToken>;
export const createdToken = component(
  'CreatedToken',
  z.object({ ...fields, token: z.string().describe('The token itself. No later answer contains it.') }),
  {
    description: 'A new token.',
    example: { ...example, token: 'plm_J2z3Yw0c9yq0Zc2c4s8b1b6h5s1k7d3m9q0f2a4x6vE' },
  },
);

export const apiTokenList = component('ApiTokenList', z.object({ tokens: z.array(apiToken) }), {
  description: 'All tokens of the tenant, including expired and revoked ones.',
  example: { tokens: [] },
});
