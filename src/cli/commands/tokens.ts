import { type Scope, scopes } from '../../contract/routes.js';
import type { ApiToken } from '../../contract/tokens.js';
import type { PalimpsestClient } from '../../contract/client.js';
import { argument, type CommandGroup } from '../command/command.js';
import type { Run } from '../command/run.js';
import { ago, deadline, oneOf, span } from '../terminal/numbers.js';

const collect = (value: string, before: string[] = []): string[] => [...before, value];

export function addTokenCommands(parent: CommandGroup): void {
  const group = parent.below({
    name: 'token',
    summary: 'make, list and revoke tokens of the HTTP API',
    description:
      'Tokens of a tenant, kept in PostgreSQL as hashes. Each has scopes, may expire, and can be revoked at once. These ' +
      'commands need PostgreSQL alone or, with --url, the API and a token that has the scope admin.',
    examples: [
      ['palimpsest token create support-agent --tenant acme --scope append --scope read', 'for an agent'],
      ['palimpsest token list --tenant acme', 'all tokens of the tenant'],
    ],
  });
  addCreate(group);
  addList(group);
  addRevoke(group);
}

function addCreate(group: CommandGroup): void {
  group
    .add<{ scope?: string[]; expires?: string }>(
      {
        name: 'create',
        arguments: '<name>',
        summary: 'make a token and print it once',
        description: 'Stores the hash of a new random token of the tenant and prints the token itself.',
        examples: [
          [
            'palimpsest token create support-agent --scope append --scope read',
            'appends turns, reads contexts',
          ],
          [
            'palimpsest token create nightly --scope backfill --expires 30d --json | jq -r .token',
            'for a month',
          ],
        ],
        notes: scopeNotes,
      },
      async (run, args, { scope: given = [], expires }) => {
        const wanted = given.map((scope): Scope => oneOf(scope, '--scope', scopes));
        const created = await (
          await clientOf(run)
        ).createToken({
          ...{ name: argument(args, 0, 'name'), scopes: wanted },
          ...(expires === undefined ? {} : { expiresAt: deadline(expires, '--expires') }),
        });
        if (run.json) return run.out.value(created);
        await run.out.line(created.token);
        run.out.note(`${created.id} has ${created.scopes.join(', ')}. The token is not shown again.`);
      },
    )
    .requiredOption('--scope <scope>', `${scopes.join(', ')}; repeat for several`, collect)
    .option('--expires <time>', 'end of its validity: 30d, 12h, 2027-01-31T12:00Z (default: none)');
}

const scopeNotes = `append    append turns, close, compact, resummarize, fork
read      contexts, originals, search, status, policies
policy    change policies and pins, pause, resume, restore
erase     erase sessions
backfill  run backfills and see their progress
admin     the tenant's tokens, and /metrics and /readyz from elsewhere`;

function addList(group: CommandGroup): void {
  group.add(
    {
      name: 'list',
      summary: 'list the tokens of the tenant',
      description:
        'Lists id, state, age, scopes, name and maker of each token, oldest first. The tokens themselves are not stored.',
      examples: [['palimpsest token list --tenant acme', 'the expired and revoked ones included']],
    },
    async (run) => {
      const tokens = await (await clientOf(run)).tokens();
      if (run.json) {
        for (const token of tokens) await run.out.value(token);
        return;
      }
      if (tokens.length === 0) return run.out.note('The tenant has no tokens in the database.');
      await run.out.table<ApiToken>(
        [
          { head: 'id', value: ({ id }) => id },
          { head: 'state', value: stateOf },
          { head: 'age', value: ({ createdAt }) => ago(createdAt), align: 'right', dispensable: 1 },
          { head: 'scopes', value: ({ scopes: own }) => own.join(' '), least: 12, shorten: 'end' },
          { head: 'name', value: ({ name }) => name, least: 10, shorten: 'end' },
          {
            head: 'made by',
            value: ({ createdBy }) => createdBy ?? '',
            least: 8,
            shorten: 'end',
            dispensable: 2,
          },
        ],
        tokens,
      );
    },
  );
}

function stateOf({ expiresAt, revokedAt }: ApiToken): string {
  if (revokedAt !== null) return 'revoked';
  if (expiresAt === null) return 'valid';
  const left = Date.parse(expiresAt) - Date.now();
  return left <= 0 ? 'expired' : `valid for ${span(left)}`;
}

function addRevoke(group: CommandGroup): void {
  group.add(
    {
      name: 'revoke',
      arguments: '<id>',
      summary: 'end a token at once',
      description: 'Every API process refuses the token from its next request on.',
      examples: [
        ['palimpsest token revoke 6f0d3c0e-6a3d-4d0e-9d1c-0f8f1f6f3c11', 'the id is in `token list`'],
      ],
    },
    async (run, args) => {
      const revoked = await (await clientOf(run)).revokeToken({ id: argument(args, 0, 'id') });
      if (run.json) return run.out.value(revoked);
      await run.out.line(`${revoked.name} (${revoked.id}) is revoked.`);
    },
  );
}

/** The client for these commands needs PostgreSQL alone, so Temporal need not run. */
async function clientOf(run: Run): Promise<Pick<PalimpsestClient, 'createToken' | 'tokens' | 'revokeToken'>> {
  if (run.overHttp) return run.client();
  const pool = await run.pool();
  const { assertMigrated } = await import('../../store/connection/migrate.js');
  await assertMigrated(pool);
  const { createToken, listTokens, revokeToken } = await import('../../store/tokens/tokens.js');
  return {
    createToken: (request) => createToken(pool, run.tenant, request),
    tokens: () => listTokens(pool, run.tenant),
    revokeToken: ({ id }) => revokeToken(pool, run.tenant, id),
  };
}
