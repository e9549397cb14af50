/** Determines the permissions of a caller: by its bearer token or, if no token is required, because it is on this machine. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { scopes } from '../contract/routes.js';
import { isLoopbackAddress } from '../process/readiness.js';
import { isStoredToken, storedMaker, type TokenAccess } from '../store/tokens/tokens.js';
import { identityProvider } from './identity.js';
import { Refused, unauthorized } from './problem.js';
import { type ApiService, type CompleteSettings, type ConfiguredToken, isLoopback } from './settings.js';

/** Throws `Api.Unauthorized`, and `Store.Unavailable` or `Identity.Unavailable` if the token cannot be checked now. */
export type AccessOf = (request: Asking) => Promise<TokenAccess>;

type Asking = Pick<IncomingMessage, 'headers' | 'socket'>;

export function accessOf(
  settings: Pick<CompleteSettings, 'tokens' | 'identity' | 'requireToken'>,
  service: Pick<ApiService, 'accessByToken'>,
): AccessOf {
  const configured = configuredTokens(settings.tokens);
  const identity = settings.identity && identityProvider(settings.identity);
  return async (request) => {
    const { authorization } = request.headers;
    if (authorization === undefined && !settings.requireToken) return local(request);
    const token = /^Bearer +([\x21-\x7e]+) *$/i.exec(authorization ?? '')?.[1];
    if (token === undefined) throw unauthorized('The request has no token of Palimpsest.');
    const known = configured(token);
    if (known) return known;
    if (!isStoredToken(token)) {
      if (identity) return identity(token);
      throw unauthorized();
    }
    const stored = await service.accessByToken(token);
    if (stored) return { ...stored, maker: storedMaker(token) };
    throw unauthorized();
  };
}

/** The response time reveals nothing about a token: every digest is compared, each in constant time. */
function configuredTokens(tokens: readonly ConfiguredToken[]): (token: string) => TokenAccess | undefined {
  const known = tokens.map(({ tenant, sha256 }) => ({ tenant, digest: Buffer.from(sha256, 'hex') }));
  return (token) => {
    const digest = createHash('sha256').update(token).digest();
    let tenant: string | undefined;
    for (const one of known) if (timingSafeEqual(one.digest, digest)) tenant = one.tenant;
    return tenant === undefined ? undefined : { tenant, scopes, maker: { name: 'configuration' } };
  };
}

function local(request: Asking): TokenAccess {
  const path = foreignPart(request);
  if (path === null) return { tenant: 'default', scopes };
  throw new Refused(
    403,
    'Api.Unauthorized',
    'Without tokens this server serves only callers on this machine.',
    {
      path,
      hint: 'Call 127.0.0.1 or localhost directly, or send a token.',
    },
  );
}

/** Whether the caller is a program on this machine. */
export function isLocal(request: Asking): boolean {
  return foreignPart(request) === null;
}

/**
 * Returns the part of a request that shows that its caller is not on this machine; null if no part does. A request through a
 * proxy on this machine, to another name of this address, or from a page of another site also has such a part.
 */
function foreignPart({ headers, socket }: Asking): string | null {
  const forwarded = ['forwarded', 'x-forwarded-for', 'x-real-ip', 'via'].find((name) => name in headers);
  if (forwarded !== undefined) return `headers.${forwarded}`;
  if (!isLoopbackAddress(socket.remoteAddress)) return 'address';
  if (!isLoopback(nameOf(`http://${headers.host ?? ''}`))) return 'headers.host';
  return headers.origin === undefined || isLoopback(nameOf(headers.origin)) ? null : 'headers.origin';
}

function nameOf(url: string): string {
  try {
    return new URL(url).hostname;
  } catch {
    return '';
  }
}
