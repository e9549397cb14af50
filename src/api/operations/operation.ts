/**
 * The definition of an operation: its input, its answers and its effect. Routes and the OpenAPI document are made from
 * these definitions.
 */
import { z } from 'zod';
import type { TokenAccess } from '../../store/tokens/tokens.js';
import type { Lane } from '../../store/connection/places.js';
import type { ApiClient } from '../settings.js';
import { invalid, type FailureType } from '../../errors.js';
import { type OperationId, type Route, routeOf, type Scope } from '../../contract/routes.js';
import { checked, complaint, id } from '../../contract/schema.js';
import { needScope } from '../problem.js';

export const nothing = z.strictObject({});
export const ofSession = z.strictObject({ session: id().describe('Id of the session.') });
export const ofToken = z.strictObject({
  id: id('stored').describe('Id of the token, not the token itself.'),
});
export const ofJob = z.strictObject({ job: id().describe('Id of the backfill.') });

export const jsonMediaType = 'application/json; charset=utf-8';
export const linesMediaType = 'application/x-ndjson; charset=utf-8';
export const markdownMediaType = 'text/markdown; charset=utf-8';
export const fileMediaType = 'application/octet-stream';

type Headers = Readonly<Record<string, string | string[] | undefined>>;

interface Call<Params, Query, Body> {
  client: ApiClient;
  /** The tenant and the scopes of the caller. */
  access: TokenAccess;
  params: Params;
  query: Query;
  body: Body;
  headers: Headers;
}

/** A JSON value that has been written already, in pieces. */
export class JsonPieces {
  constructor(readonly pieces: readonly string[]) {}
}

/** An answer other than the usual JSON. `body` is a value to be written as JSON, or `JsonPieces`. */
export class Reply {
  constructor(
    readonly status: number,
    readonly body?: unknown,
    readonly headers: Readonly<Record<string, string>> = {},
  ) {}
}

/** Texts that are sent as soon as they are made. A failure before the first text is answered as a problem. */
export class Streamed {
  constructor(
    readonly mediaType: typeof linesMediaType | typeof markdownMediaType | typeof fileMediaType,
    readonly texts: AsyncGenerator<string>,
  ) {}
}

export interface AnswerDocument {
  description: string;
  /** By media type. */
  content?: Readonly<Record<string, z.ZodType>>;
  headers?: Readonly<Record<string, string>>;
}

interface Shape<Params, Query, Body> {
  /** Name in the table of routes and in the document, and of the method of a generated client. */
  id: OperationId;
  tag: string;
  summary: string;
  description?: string;
  params?: Params;
  query?: Query;
  body?: Body;
  /** Headers that the operation reads, with descriptions. */
  headers?: Readonly<Record<string, string>>;
  /** Failures in addition to those that any operation may have. */
  failures?: readonly FailureType[];
  /** The request's body contains a turn and may be as long as the settings allow. */
  takesTurns?: boolean;
  /** The request's body may have 1 MiB. Other bodies without a turn are limited to 64 KiB. */
  longBody?: boolean;
  /** Fields of the body that need a further scope, which is checked before the body. */
  fieldScopes?: Readonly<Record<string, Scope>>;
  /** Lane of its database connections. @default 'hot' */
  lane?: Lane;
  /** Whether the operation stops when its caller has gone; if not, it always runs to its end. @default true for GET */
  abandon?: boolean;
}

interface Specification<
  Params extends z.ZodObject,
  Query extends z.ZodObject,
  Body extends z.ZodType,
  Answer,
> extends Shape<Params, Query, Body> {
  /** Schema of the answer with status 200. Null: status 204 without a body. */
  answer: z.ZodType<Answer> | null;
  /** Further answers, and the answer with status 200 if it is not JSON. */
  answers?: Readonly<Record<number, AnswerDocument>>;
  /** Whether the answer waits for an event in the session. The number of such requests is limited. @default never */
  waits?: (query: z.output<Query>) => boolean;
  handle: (
    call: Call<z.output<Params>, z.output<Query>, z.output<Body>>,
  ) => Promise<(Answer extends undefined ? void : Answer) | Reply | Streamed>;
}

interface RawCall {
  client: ApiClient;
  access: TokenAccess;
  params: unknown;
  query: unknown;
  body: unknown;
  headers: Headers;
  /** Counts the request among those that wait. Throws `Tenant.LimitReached`. */
  startWaiting(): void;
}

export interface Operation extends Shape<z.ZodObject, z.ZodObject, z.ZodType> {
  method: Route['method'];
  path: string;
  /** The scope that the caller's token needs. */
  scope: Scope;
  /** A missing body means `{}`. */
  bodyOptional: boolean;
  answers: Readonly<Record<number, AnswerDocument>>;
  /** Checks all input before it does anything. Throws `Input.Invalid` with the path of the field. */
  run(call: RawCall): Promise<Reply | Streamed>;
}

export function operation<
  Params extends z.ZodObject = typeof nothing,
  Query extends z.ZodObject = typeof nothing,
  Body extends z.ZodType = typeof nothing,
  Answer = undefined,
>(specification: Specification<Params, Query, Body, Answer>): Operation {
  const { answer, answers = {}, handle, waits, ...shape } = specification;
  const { params = nothing, query = nothing, body = nothing, fieldScopes = {} } = shape;
  const plain = answer === null ? 204 : 200;
  const bodyOptional = body.safeParse({}).success;
  const { method, path, scope } = routeOf(shape.id);
  return {
    ...shape,
    ...{ method, path, scope, bodyOptional },
    answers: { ...(answer === null && answers[200] ? {} : { [plain]: plainAnswer(answer) }), ...answers },
    async run(call) {
      for (const [field, needed] of Object.entries(fieldScopes))
        if (hasField(call.body, field)) needScope(call.access, needed);
      const request = {
        client: call.client,
        access: call.access,
        headers: call.headers,
        params: checked(params, call.params) as z.output<Params>,
        query: checked(query, call.query) as z.output<Query>,
        body: checkedBody(body, call.body, bodyOptional) as z.output<Body>,
      };
      if (waits?.(request.query)) call.startWaiting();
      const made = await handle(request);
      return made instanceof Reply || made instanceof Streamed ? made : new Reply(plain, made);
    },
  };
}

function hasField(body: unknown, field: string): boolean {
  return typeof body === 'object' && body !== null && Object.hasOwn(body, field);
}

function plainAnswer(schema: z.ZodType | null): AnswerDocument {
  if (schema === null) return { description: 'Done.' };
  return { description: 'The answer.', content: { [jsonMediaType]: schema } };
}

/** Returns the body itself instead of zod's copy, so that it is stored unchanged. */
function checkedBody(schema: z.ZodType, body: unknown, mayBeAbsent: boolean): unknown {
  if (body === undefined && mayBeAbsent) return {};
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    throw invalid(
      'The body must be a JSON object.',
      'body',
      'Send {"field": …}; /openapi.json lists the fields.',
    );
  const read = schema.safeParse(body);
  if (read.success) return body;
  throw complaint(read.error, schema, body);
}
