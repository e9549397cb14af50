import { failure, invalidAt, type Case } from './case.js';

const noToken = { type: 'Store.TokenNotFound', path: 'id' };

export const tokens: Case[] = [
  {
    name: 'a token is made, listed without its secret, and revoked once',
    async run(client) {
      const expiresAt = '2999-01-31T12:00:00+02:00';
      const made = await client.createToken({ name: 'agent', scopes: ['read', 'append', 'read'], expiresAt });
      const { token, ...listed } = made;
      const before = await client.tokens();
      const revoked = await client.revokeToken({ id: made.id });
      const again = await client.revokeToken({ id: made.id });
      const after = await client.tokens();
      return [
        /^plm_[\w-]{43}$/.test(token),
        {
          ...listed,
          id: typeof listed.id,
          createdBy: 'createdBy' in listed,
          expiresAt: listed.expiresAt === '2999-01-31T10:00:00.000Z',
        },
        JSON.stringify(before) === JSON.stringify([listed]),
        revoked.revokedAt !== null && revoked.revokedAt === again.revokedAt,
        JSON.stringify(after) === JSON.stringify([revoked]),
        JSON.stringify([before, after]).includes(token),
      ];
    },
    expected: [
      true,
      {
        id: 'string',
        name: 'agent',
        scopes: ['append', 'read'],
        expiresAt: true,
        revokedAt: null,
        createdBy: true,
      },
      true,
      true,
      true,
      false,
    ],
  },
  {
    name: 'an invalid token request is refused with the path',
    async run(client) {
      const request = { name: 'x', scopes: ['read' as const] };
      return [
        await failure(client.createToken({ ...request, name: '' })),
        await failure(client.createToken({ ...request, name: 'NUL \u0000' })),
        await failure(client.createToken({ ...request, scopes: [] })),
        await failure(client.createToken({ ...request, scopes: ['write' as 'read'] })),
        await failure(client.createToken({ ...request, expiresAt: '2026-01-31' })),
        await failure(client.createToken({ ...request, expiresAt: '2001-01-31T00:00:00Z' })),
        await failure(client.createToken({ ...request, tenant: 'other' } as never)),
        await failure(client.revokeToken({ id: 'nobody' })),
        await failure(client.revokeToken({ id: '' })),
      ];
    },
    expected: [
      invalidAt('name'),
      invalidAt('name'),
      invalidAt('scopes'),
      invalidAt('scopes[0]'),
      invalidAt('expiresAt'),
      invalidAt('expiresAt'),
      invalidAt('tenant'),
      noToken,
      invalidAt('id'),
    ],
  },
];
