/**
 * Finds the tenant of a caller by its bearer token. Without tokens, every caller on this machine is the tenant
 * `default`.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { Refused } from './problem.js';
import { isLoopback, type ApiToken } from './settings.js';

export type TenantOf = (headers: IncomingHttpHeaders) => string;

/** The response time reveals nothing about a token: every digest is compared, each in constant time. */
export function tenantsOf(tokens: readonly ApiToken[]): TenantOf {
  if (tokens.length === 0) return local;
  const known = tokens.map(({ tenant, sha256 }) => ({ tenant, digest: Buffer.from(sha256, 'hex') }));
  return ({ authorization }) => {
    const given = /^Bearer +([\x21-\x7e]+) *$/i.exec(authorization ?? '')?.[1];
    if (given === undefined) throw unauthorized('The header Authorization has no bearer token.');
    const digest = createHash('sha256').update(given).digest();
    let tenant: string | undefined;
    for (const one of known) if (timingSafeEqual(one.digest, digest)) tenant = one.tenant;
    if (tenant === undefined) throw unauthorized('The token is unknown.');
    return tenant;
  };
}

function unauthorized(problem: string): Refused {
  return new Refused(401, 'Api.Unauthorized', problem, {
    path: 'headers.authorization',
    hint: 'Send `Authorization: Bearer TOKEN` with a token of this API.',
  });
}

/**
 * Keeps out pages in a browser on this machine: requests by another name of this address, and requests from another
 * site.
 */
function local({ host, origin }: IncomingHttpHeaders): string {
  const name = nameOf(`http://${host ?? ''}`);
  const site = origin === undefined ? 'localhost' : nameOf(origin);
  if (isLoopback(name) && isLoopback(site)) return 'default';
  throw new Refused(403, 'Api.Unauthorized', 'Without tokens the API serves only callers on this machine.', {
    path: isLoopback(name) ? 'headers.origin' : 'headers.host',
    hint: 'Call 127.0.0.1 or localhost, or configure tokens for the API.',
  });
}

function nameOf(url: string): string {
  return URL.canParse(url) ? new URL(url).hostname : '';
}
