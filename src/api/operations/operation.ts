/** One operation: what it takes, what it answers, what it does. Routes and the OpenAPI document are made of these. */
import { z } from 'zod';
import type { Lane } from '../../store/connection/places.js';
import type { ApiClient } from '../settings.js';
import { invalid, type FailureType, type PalimpsestError } from '../../errors.js';
import { complain } from '../../policy/issues.js';
import { idText } from '../schemas/component.js';

export const nothing = z.strictObject({});
export const ofSession = z.strictObject({ session: idText.min(1).describe('Id of the session.') });
export const ofJob = z.strictObject({ job: idText.min(1).describe('Id of the backfill.') });

export const jsonMediaType = 'application/json; charset=utf-8';
export const linesMediaType = 'application/x-ndjson; charset=utf-8';
export const markdownMediaType = 'text/markdown; charset=utf-8';
export const fileMediaType = 'application/octet-stream';

type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';
type Headers = Readonly<Record<string, string | string[] | undefined>>;

interface Call<Params, Query, Body> {
  client: ApiClient;
  params: Params;
  query: Query;
  body: Body;
  headers: Headers;
}

/** Another answer than the JSON of the plain one. */
export class Reply {
  constructor(
    readonly status: number,
    readonly body?: unknown,
    readonly headers: Readonly<Record<string, string>> = {},
  ) {}
}

/** Texts that are sent as they come. A failure before the first is answered as a problem. */
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
  method: Method;
  /** As OpenAPI writes it: `/v1/sessions/{session}`. */
  path: string;
  /** In the document, and of the method of a generated client. */
  id: string;
  tag: string;
  summary: string;
  description?: string;
  params?: Params;
  query?: Query;
  body?: Body;
  /** Headers that it reads, with what they mean. */
  headers?: Readonly<Record<string, string>>;
  /** Beyond those that any operation can end with. */
  failures?: readonly FailureType[];
  /** Its body holds a turn, and may be as long as the settings allow; others are short. */
  takesTurns?: boolean;
  /** Of the connections to the database. @default 'hot' */
  lane?: Lane;
  /** Ends in the middle when its caller goes away; what is not abandoned is done all the same. @default true for GET */
  abandon?: boolean;
}

interface Specification<
  Params extends z.ZodObject,
  Query extends z.ZodObject,
  Body extends z.ZodType,
  Answer,
> extends Shape<Params, Query, Body> {
  /** Schema of the answer with status 200; null: 204 without a body. */
  answer: z.ZodType<Answer> | null;
  /** Further answers, and 200 where it is no JSON. */
  answers?: Readonly<Record<number, AnswerDocument>>;
  /** Whether the answer waits for something to happen in the session: few may at once. @default never */
  waits?: (query: z.output<Query>) => boolean;
  handle: (
    call: Call<z.output<Params>, z.output<Query>, z.output<Body>>,
  ) => Promise<(Answer extends undefined ? void : Answer) | Reply | Streamed>;
}

interface RawCall {
  client: ApiClient;
  params: unknown;
  query: unknown;
  body: unknown;
  headers: Headers;
  /** Counts the request among those that wait. Throws `Tenant.LimitReached`. */
  startWaiting(): void;
}

export interface Operation extends Shape<z.ZodObject, z.ZodObject, z.ZodType> {
  /** No body is the same as `{}`. */
  bodyOptional: boolean;
  answers: Readonly<Record<number, AnswerDocument>>;
  /** Checks everything before anything is done. Throws `Input.Invalid` with the path of the field. */
  run(call: RawCall): Promise<Reply | Streamed>;
}

export function operation<
  Params extends z.ZodObject = typeof nothing,
  Query extends z.ZodObject = typeof nothing,
  Body extends z.ZodType = typeof nothing,
  Answer = undefined,
>(specification: Specification<Params, Query, Body, Answer>): Operation {
  const { answer, answers = {}, handle, waits, ...shape } = specification;
  const { params = nothing, query = nothing, body = nothing } = shape;
  const plain = answer === null ? 204 : 200;
  const bodyOptional = body.safeParse({}).success;
  return {
    ...shape,
    bodyOptional,
    answers: { ...(answer === null && answers[200] ? {} : { [plain]: plainAnswer(answer) }), ...answers },
    async run(call) {
      const checked = {
        client: call.client,
        headers: call.headers,
        params: parsed(params, call.params) as z.output<Params>,
        query: parsed(query, call.query) as z.output<Query>,
        body: checkedBody(body, call.body, bodyOptional) as z.output<Body>,
      };
      if (waits?.(checked.query)) call.startWaiting();
      const made = await handle(checked);
      return made instanceof Reply || made instanceof Streamed ? made : new Reply(plain, made);
    },
  };
}

function plainAnswer(schema: z.ZodType | null): AnswerDocument {
  if (schema === null) return { description: 'Done.' };
  return { description: 'The answer.', content: { [jsonMediaType]: schema } };
}

function parsed(schema: z.ZodType, value: unknown): unknown {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  throw refused(read.error, schema, value);
}

/** A field that is not known first: the one that is missing is often the same, misspelt. */
function refused(error: z.ZodError, schema: z.ZodType, value: unknown): PalimpsestError {
  const isUnknownField = ({ code, path }: z.core.$ZodIssue) =>
    code === 'unrecognized_keys' && path.length === 0;
  const unknown = error.issues.find(isUnknownField);
  return complain(unknown ? new z.ZodError([unknown]) : error, schema, value, '');
}

/** The body itself, not zod's copy: what is stored is what came. */
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
  throw refused(read.error, schema, body);
}
