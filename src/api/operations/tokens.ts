import { needScope } from '../problem.js';
import { ofToken, operation, Reply } from './operation.js';
import { apiToken, apiTokenList, createdToken, tokenRequest } from '../../contract/tokens.js';

const tag = 'Tokens';

export const tokens = [
  operation({
    id: 'createToken',
    tag,
    summary: 'Make a token of the tenant',
    description:
      "The answer contains the token itself, which no later answer does. The caller can give only scopes that its own token has, and the token ends with the caller's at the latest.",
    body: tokenRequest,
    answer: createdToken,
    handle: async ({ client, access, body }) => {
      for (const scope of body.scopes) needScope(access, scope);
      return new Reply(200, await client.createTokenBy(access.maker, body), { 'cache-control': 'no-store' });
    },
  }),
  operation({
    id: 'tokens',
    tag,
    lane: 'heavy',
    summary: 'List the tokens of the tenant in the database',
    answer: apiTokenList,
    handle: async ({ client }) => ({ tokens: await client.tokens() }),
  }),
  operation({
    id: 'revokeToken',
    tag,
    summary: 'Revoke a token of the tenant at once',
    params: ofToken,
    answer: apiToken,
    failures: ['Store.TokenNotFound'],
    handle: ({ client, params }) => client.revokeToken(params),
  }),
];
