/** Tokens of an identity provider: JWTs, checked against the keys that the provider publishes. */
import { createRemoteJWKSet, errors, type JWTPayload, jwtVerify } from 'jose';
import { idFault } from '../contract/ids.js';
import { type Scope, scopes } from '../contract/routes.js';
import { networkReason, PalimpsestError } from '../errors.js';
import type { TokenAccess, TokenMaker } from '../store/tokens/tokens.js';
import { unauthorized } from './problem.js';

export interface IdentitySettings {
  /** Exact value of the claim `iss`. */
  issuer: string;
  /** A value of the claim `aud`. */
  audience: string;
  /** URL of the provider's public keys. */
  jwksUrl: string;
  /** Claim with the tenant. */
  tenantClaim: string;
  /** Claim with the scopes: a list, or a text with blanks between them. Other scopes in it are ignored. */
  scopesClaim: string;
  /** Difference of the clocks that is tolerated. */
  clockToleranceMs: number;
}

/** Only algorithms that sign with a private key: anybody could sign with none, or with an HMAC whose key is published. */
const algorithms = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'],
];

/** Failures of the request for the keys; every other failure of the library is a fault of the token. */
const ofKeys: ReadonlySet<string> = new Set(['ERR_JWKS_TIMEOUT', 'ERR_JWKS_INVALID', 'ERR_JOSE_GENERIC']);

/**
 * Returns a function that checks a token. It requests the provider's keys when the first token arrives and again when they are
 * ten minutes old. For a token that was signed with an unknown key, it requests them at most once in 30 s. It throws
 * `Api.Unauthorized`, and `Identity.Unavailable` if the keys cannot be read.
 */
export function identityProvider({
  issuer,
  audience,
  jwksUrl,
  tenantClaim,
  scopesClaim,
  clockToleranceMs,
}: IdentitySettings): (token: string) => Promise<TokenAccess> {
  const keys = createRemoteJWKSet(new URL(jwksUrl));
  const rules = {
    ...{ issuer, audience, algorithms, clockTolerance: clockToleranceMs / 1_000 },
    requiredClaims: ['exp', tenantClaim],
  };
  return async (token) => {
    const payload = await verified(token);
    const tenant = payload[tenantClaim];
    if (typeof tenant !== 'string' || idFault(tenant) !== null)
      throw unauthorized(undefined, new Error(`the claim ${tenantClaim} is not the id of a tenant`));
    return { tenant, scopes: scopesIn(payload[scopesClaim]), maker: makerOf(payload) };
  };

  async function verified(token: string): Promise<JWTPayload> {
    try {
      return (await jwtVerify(token, keys, rules)).payload;
    } catch (error) {
      if (error instanceof errors.JOSEError && !ofKeys.has(error.code)) throw unauthorized(undefined, error);
      const reason = networkReason(error) ?? (error instanceof Error ? error.message : String(error));
      throw new PalimpsestError('Identity.Unavailable', "The identity provider's keys cannot be read.", {
        hint: 'Repeat the request after a moment. The log of the server has the reason.',
        cause: new Error(`${jwksUrl}: ${reason}`, { cause: error }),
      });
    }
  }
}

/** Milliseconds; a provider may give a time that no date reaches. */
const latestEnd = Date.UTC(9999, 0);

function makerOf({ sub, exp = 0 }: JWTPayload): TokenMaker {
  const subject = typeof sub === 'string' ? sub.replace(/\p{Cc}/gu, '').slice(0, 100) : '';
  return { name: `identity:${subject}`, expiresAt: new Date(Math.min(exp * 1_000, latestEnd)) };
}

function scopesIn(claim: unknown): Scope[] {
  const given: unknown[] = Array.isArray(claim) ? claim : typeof claim === 'string' ? claim.split(/\s+/) : [];
  return scopes.filter((scope) => given.includes(scope));
}
