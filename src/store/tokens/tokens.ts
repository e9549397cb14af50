/**
 * The tokens of the API in the database. Only a hash of each token is stored. The role of the application cannot write them: with
 * its password alone, nobody makes a token.
 */
import { createHash, randomBytes, randomUUID } from 'node:crypto';
import type { Pool } from 'pg';
import { checkId } from '../../contract/ids.js';
import { type Scope, scopes } from '../../contract/routes.js';
import { checked } from '../../contract/schema.js';
import { type ApiToken, type CreatedToken, type TokenRequest, tokenRequest } from '../../contract/tokens.js';
import { invalid, PalimpsestError } from '../../errors.js';
import { eraserOf } from '../connection/pool.js';
import { read } from '../connection/transaction.js';

/** The tenant of a token, and its permissions there. */
export interface TokenAccess {
  tenant: string;
  scopes: readonly Scope[];
  /** The maker of the tokens that the caller makes. Absent: a caller without a token. */
  maker?: TokenMaker;
}

/** A token of the database by its hash, or another token by a name and its end. */
export type TokenMaker = { sha256: Buffer } | { name: string; expiresAt?: Date };

const prefix = 'plm_';
const secretBytes = 32;

/** Whether a text has the form of a token of the database. */
export function isStoredToken(text: string): boolean {
  return /^plm_[\w-]{43}$/.test(text);
}

/** A token of the database as the maker of others. */
export function storedMaker(token: string): TokenMaker {
  return { sha256: sha256Of(token) };
}

/**
 * The access that a token gives now; null for an unknown, expired or revoked one. The tenant is not known before this read, so
 * only this read finds a token by its hash alone. Throws `Store.Unavailable`.
 */
export async function accessByToken(pool: Pool, token: string): Promise<TokenAccess | null> {
  const [found] = await read<{ tenant: string; scopes: string[] }>(
    pool,
    'shared',
    'select tenant, scopes from palimpsest.token_of($1)',
    [sha256Of(token)],
  );
  return found ? { tenant: found.tenant, scopes: knownScopes(found.scopes) } : null;
}

/** The token ends with its maker at the latest. Throws `Input.Invalid`, `Api.Unauthorized` if the maker has ended. */
export async function createToken(
  pool: Pool,
  tenant: string,
  request: TokenRequest,
  maker?: TokenMaker,
): Promise<CreatedToken> {
  checkId(tenant, 'tenant');
  const { name, scopes, expiresAt } = checked(tokenRequest, request);
  const ends = expiresAt === undefined ? null : new Date(expiresAt);
  if (ends && ends.getUTCFullYear() > 9_999)
    throw invalid(
      `expiresAt ${expiresAt} is after the year 9999`,
      'expiresAt',
      'Give an earlier time, or leave it out.',
    );
  if (ends && ends.getTime() <= Date.now())
    throw invalid(
      `expiresAt ${expiresAt} is in the past`,
      'expiresAt',
      'Give a later time, or leave it out.',
    );
  const token = prefix + randomBytes(secretBytes).toString('base64url');
  const [row] = await read<TokenRow>(
    eraserOf(pool),
    { tenant },
    `with maker as (
       select id, expires_at from palimpsest.api_tokens
       where tenant_id = $1 and sha256 = $7 and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
       union all
       select $8::text, $9::timestamptz where $7::bytea is null)
     insert into palimpsest.api_tokens (tenant_id, id, name, sha256, scopes, expires_at, created_by)
     select $1, $2, $3, $4, $5, least($6::timestamptz, maker.expires_at), maker.id from maker returning ${columns}`,
    [
      ...[tenant, randomUUID(), name, sha256Of(token), knownScopes(scopes), ends],
      ...(maker && 'sha256' in maker
        ? [maker.sha256, null, null]
        : [null, maker?.name ?? null, maker?.expiresAt ?? null]),
    ],
  );
  if (row === undefined)
    throw new PalimpsestError(
      'Api.Unauthorized',
      'The token that makes this one was revoked or has expired.',
      {
        path: 'headers.authorization',
        hint: 'Use a valid token with the scope `admin`.',
      },
    );
  return { ...tokenOf(row), token };
}

/** Oldest first. */
export async function listTokens(pool: Pool, tenant: string): Promise<ApiToken[]> {
  const rows = await read<TokenRow>(
    pool,
    { tenant },
    `select ${columns} from palimpsest.api_tokens where tenant_id = $1 order by created_at, id`,
    [tenant],
  );
  return rows.map(tokenOf);
}

/** If the token is already revoked, the time of its first revocation stays. Throws `Store.TokenNotFound`, `Input.Invalid`. */
export async function revokeToken(pool: Pool, tenant: string, id: string): Promise<ApiToken> {
  checkId(id, 'id', 'stored');
  const [row] = await read<TokenRow>(
    eraserOf(pool),
    { tenant },
    `update palimpsest.api_tokens set revoked_at = coalesce(revoked_at, clock_timestamp())
     where tenant_id = $1 and id = $2 returning ${columns}`,
    [tenant, id],
  );
  if (row) return tokenOf(row);
  throw new PalimpsestError('Store.TokenNotFound', `the tenant has no token with the id ${id}`, {
    path: 'id',
    hint: 'The list of tokens has the ids; the token itself is not its id.',
  });
}

const columns = `id, name, scopes, created_at as "createdAt", expires_at as "expiresAt", revoked_at as "revokedAt",
  created_by as "createdBy"`;

type TokenRow = {
  id: string;
  name: string;
  scopes: string[];
  createdAt: Date;
  expiresAt: Date | null;
  revokedAt: Date | null;
  createdBy: string | null;
};

function tokenOf({ id, name, scopes, createdAt, expiresAt, revokedAt, createdBy }: TokenRow): ApiToken {
  return {
    ...{ id, name, scopes: knownScopes(scopes), createdAt: createdAt.toISOString() },
    expiresAt: expiresAt?.toISOString() ?? null,
    revokedAt: revokedAt?.toISOString() ?? null,
    createdBy,
  };
}

/** The known scopes among `given`, each once, in the order of `scopes`. A newer version may have stored others. */
function knownScopes(given: readonly string[]): Scope[] {
  return scopes.filter((scope) => given.includes(scope));
}

function sha256Of(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
