/** Failures as HTTP answers: `application/problem+json` (RFC 9457) with the failure's type, path and hint. */
import { z } from 'zod';
import { failureTypes, PalimpsestError, type FailureDetails, type FailureType } from '../errors.js';
import { component } from './schemas/component.js';

export const problemMediaType = 'application/problem+json';

const statuses: Partial<Record<FailureType, number>> = {
  'Input.Invalid': 400,
  'Input.TooLarge': 413,
  'Api.Unauthorized': 401,
  'Store.SessionNotFound': 404,
  'Store.BackfillNotFound': 404,
  'Store.TurnConflict': 409,
  'Store.StaleAppend': 409,
  'Store.StaleGeneration': 409,
  'Budget.Unreachable': 422,
  'Llm.RateLimited': 429,
  'Store.Busy': 409,
  'Tenant.LimitReached': 429,
  'Store.Unavailable': 503,
  'Temporal.Unavailable': 503,
  'Api.Overloaded': 503,
};

const titles: Record<number, string> = {
  400: 'The request is wrong',
  401: 'A token is needed',
  403: 'This caller is not served',
  404: 'There is no such thing',
  405: 'The path has other methods',
  408: 'The request took too long to arrive',
  409: 'Somebody else was first',
  413: 'The body is too large',
  415: 'The body has another media type than is read here',
  422: 'It does not fit',
  429: 'A limit is reached',
  431: 'The headers are too large',
  500: 'It failed',
  503: 'Try again later',
};

export function statusOf(type: FailureType): number {
  return statuses[type] ?? 500;
}

/** A failure of HTTP's own, with another status than its type has elsewhere. */
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

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  failure: FailureType;
  path?: string;
  hint?: string;
  details?: Record<string, string | number | boolean | null>;
  requestId?: string;
}

export const problem = component<Problem>()(
  'Problem',
  z.object({
    type: z.string().describe('`urn:palimpsest:failure:` and the failure type.'),
    title: z.string().describe('The same for every failure of this status.'),
    status: z.int().describe('Of this answer.'),
    detail: z.string().describe('What is wrong, for people.'),
    failure: z.enum(failureTypes).describe('Failure type, as everywhere in this product.'),
    path: z
      .string()
      .optional()
      .describe('Offending field of body, query or path, e.g. `messages[3].tool_calls[0].id`.'),
    hint: z.string().optional().describe('What can be done next.'),
    details: z
      .record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]))
      .optional()
      .describe('Numbers and names that explain the failure.'),
    requestId: z
      .string()
      .optional()
      .describe('The same as the header `x-request-id` and in the log of the API.'),
  }),
  {
    description: 'Why a request was refused or failed (RFC 9457). Nothing was stored.',
    example: {
      type: 'urn:palimpsest:failure:Input.Invalid',
      title: 'The request is wrong',
      status: 400,
      detail: 'messages[0].role "robot" is not known.',
      failure: 'Input.Invalid',
      path: 'messages[0].role',
      hint: 'Known roles: system, developer, user, assistant, tool, function.',
      requestId: 'b7f0c6e2-6a3d-4d0e-9d1c-0f8f1f6f3c11',
    },
  },
);

export function problemOf(error: PalimpsestError, requestId?: string): Problem {
  const status = error instanceof Refused ? error.status : statusOf(error.type);
  return {
    type: `urn:palimpsest:failure:${error.type}`,
    title: titles[status] ?? 'It failed',
    status,
    detail: error.message,
    failure: error.type,
    ...(error.path === undefined ? {} : { path: error.path }),
    ...(error.hint === undefined ? {} : { hint: error.hint }),
    ...(error.details === undefined ? {} : { details: error.details }),
    ...(requestId === undefined ? {} : { requestId }),
  };
}

/** Headers that say what the status alone does not. */
export function headersOf(error: PalimpsestError, status: number): Record<string, string> {
  return {
    ...(status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
    ...(status === 503 || status === 429 || error.type === 'Store.Busy' ? { 'retry-after': '1' } : {}),
    ...(error instanceof Refused ? error.headers : {}),
  };
}
