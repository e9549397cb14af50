/** Failures as HTTP answers: `application/problem+json` (RFC 9457) with the failure's type, path and hint. */
import { PalimpsestError, type FailureDetails, type FailureType } from '../errors.js';
import type { Problem } from '../contract/problem.js';
import type { Scope } from '../contract/routes.js';

export const problemMediaType = 'application/problem+json';

const statuses: Partial<Record<FailureType, number>> = {
  'Input.Invalid': 400,
  'Input.TooLarge': 413,
  'Api.Unauthorized': 401,
  'Api.Forbidden': 403,
  'Store.SessionNotFound': 404,
  'Store.BackfillNotFound': 404,
  'Store.TokenNotFound': 404,
  'Store.TurnConflict': 409,
  'Store.ListEdited': 409,
  'Store.StaleAppend': 409,
  'Store.StaleGeneration': 409,
  'Budget.Unreachable': 422,
  'Llm.RateLimited': 429,
  'Store.Busy': 409,
  'Tenant.LimitReached': 429,
  'Tenant.BeyondLimit': 403,
  'Store.Unavailable': 503,
  'Temporal.Unavailable': 503,
  'Identity.Unavailable': 503,
  'Api.Unavailable': 503,
  'Api.Overloaded': 503,
};

const titles: Record<number, string> = {
  400: 'The request is invalid',
  401: 'A token is required',
  403: 'Access is denied',
  404: 'Not found',
  405: 'The path does not support this method',
  408: 'The request took too long to arrive',
  409: 'The request conflicts with another change',
  413: 'The body is too large',
  415: 'The media type of the body is not supported',
  422: 'The context does not fit the budget',
  429: 'A limit was reached',
  431: 'The headers are too large',
  500: 'The request failed',
  503: 'Try again later',
};

export function statusOf(type: FailureType): number {
  return statuses[type] ?? 500;
}

/** A refusal by HTTP's own rules; its status differs from the status of its failure type. */
export class Refused extends PalimpsestError {
  constructor(
    readonly status: number,
    type: FailureType,
    message: string,
    details: FailureDetails = {},
    readonly headers: Readonly<Record<string, string>> = {},
  ) {
    super(type, message, details);
  }
}

/** The same message for every invalid token, so that it tells nothing about tokens or tenants. */
export function unauthorized(
  problem = 'The token is not valid: it is unknown, revoked or expired.',
  cause?: Error,
): Refused {
  return new Refused(401, 'Api.Unauthorized', problem, {
    path: 'headers.authorization',
    hint: 'Send `Authorization: Bearer TOKEN` with a token of this API.',
    cause,
  });
}

/** Nothing of the request was done. Its connection ends here, so that a repeated one reaches a process that runs. */
export function stopping(server: 'API' | 'gateway'): Refused {
  const hint = `Repeat the request: another process of the ${server} can take it.`;
  const headers = { connection: 'close' };
  return new Refused(503, 'Api.Unavailable', `The ${server} is shutting down.`, { hint }, headers);
}

/** Throws `Api.Forbidden`, which names the scope. */
export function needScope(given: { scopes: readonly Scope[] }, scope: Scope): void {
  if (given.scopes.includes(scope)) return;
  throw new PalimpsestError('Api.Forbidden', `The token lacks the scope \`${scope}\`.`, {
    path: 'headers.authorization',
    hint: `Use a token with this scope: \`palimpsest token create --scope ${scope}\` makes one.`,
    details: { scope },
  });
}

export function problemOf(error: PalimpsestError, requestId?: string): Problem {
  const status = error instanceof Refused ? error.status : statusOf(error.type);
  return {
    type: `urn:palimpsest:failure:${error.type}`,
    title: titles[status] ?? 'The request failed',
    status,
    detail: error.message,
    failure: error.type,
    ...(error.path === undefined ? {} : { path: error.path }),
    ...(error.hint === undefined ? {} : { hint: error.hint }),
    ...(error.details === undefined ? {} : { details: error.details }),
    ...(requestId === undefined ? {} : { requestId }),
  };
}

/** Headers that complement the status. */
export function headersOf(error: PalimpsestError, status: number): Record<string, string> {
  return {
    ...(status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
    ...(status === 503 || status === 429 || error.type === 'Store.Busy' ? { 'retry-after': '1' } : {}),
    ...(error instanceof Refused ? error.headers : {}),
  };
}
