/** The OpenAPI 3.1 document, made from the operations and the schemas that check their requests. */
import { z } from 'zod';
import type { FailureType } from '../errors.js';
import type { AnswerDocument, Operation } from './operations/operation.js';
import { problem } from '../contract/problem.js';
import type { Scope } from '../contract/routes.js';
import { problemMediaType, statusOf } from './problem.js';
import { components } from '../contract/schema.js';
import { packageVersion } from '../runtime/home.js';
import { serviceOperations } from './service.js';

type JsonObject = { [key: string]: unknown };

export interface OpenApiDocument extends JsonObject {
  openapi: string;
  paths: Record<string, Record<string, JsonObject>>;
  components: { schemas: Record<string, JsonObject>; securitySchemes: JsonObject };
}

const reference = (id: string) => `#/components/schemas/${id}`;

/** Failures of the check of a token. */
const ofAccess = ['Api.Unauthorized', 'Api.Forbidden', 'Store.Unavailable', 'Identity.Unavailable'] as const;

/** Failures that any operation may have. */
const always: readonly FailureType[] = [
  ...(['Input.Invalid', ...ofAccess, 'Api.Unavailable', 'Api.Overloaded'] as const),
  ...(['Tenant.LimitReached', 'Store.Busy', 'Api.Failed'] as const),
];

export function openApiDocument(
  operations: readonly Operation[],
  { secured }: { secured: boolean },
): OpenApiDocument {
  const paths: OpenApiDocument['paths'] = {};
  for (const operation of operations)
    (paths[operation.path] ??= {})[operation.method.toLowerCase()] = described(operation, secured);
  for (const { path, id, summary, scope, answers } of serviceOperations) {
    const refusals = scope === undefined ? {} : problemsOf(ofAccess);
    paths[path] = {
      get: {
        ...{ operationId: id, tags: ['Service'], summary },
        ...(scope === undefined
          ? { security: [] }
          : {
              description: `${needs(scope)} Callers on this machine need no token.`,
              ...security(scope, false),
            }),
        responses: { ...refusals, ...responsesOf(answers) },
      },
    };
  }
  return {
    openapi: '3.1.1',
    info: {
      title: 'Palimpsest',
      version: packageVersion(),
      summary: 'Durable conversation compaction for LLM agents.',
      description:
        'Stores turns and returns contexts that fit the budget; originals stay readable. Every failure is a problem (RFC 9457) whose ' +
        '`failure` is one of the types in docs/failures.md.',
      license: { name: 'MIT', identifier: 'MIT' },
    },
    servers: [{ url: '/' }],
    tags: [...new Set(operations.map(({ tag }) => tag)), 'Service'].map((name) => ({ name })),
    paths,
    components: {
      schemas: schemasOfComponents(),
      securitySchemes: {
        token: {
          type: 'http',
          scheme: 'bearer',
          description:
            'A token of one tenant, which gives access to that tenant only: one of the database, one of the configuration, or a ' +
            'JWT of the identity provider. Each operation names the scope that the token needs.',
        },
      },
    },
  };
}

const needs = (scope: Scope): string => `Needs the scope \`${scope}\`.`;

/**
 * Since OpenAPI 3.1 a requirement may name roles for any kind of scheme; here it names the scope. An empty requirement (`{}`)
 * beside it makes the token optional.
 */
function security(scope: Scope, secured: boolean): JsonObject {
  return { security: [...(secured ? [] : [{}]), { token: [scope] }] };
}

function described(operation: Operation, secured: boolean): JsonObject {
  const { id, tag, summary, description, scope, params, query, headers = {} } = operation;
  const { body, bodyOptional, failures = [] } = operation;
  const parameters = [
    ...parametersOf('path', params),
    ...parametersOf('query', query),
    ...Object.entries(headers).map(([name, meaning]) => ({
      ...{ name, in: 'header', required: false, description: meaning, schema: { type: 'string' } },
    })),
  ];
  return {
    ...{ operationId: id, tags: [tag], summary },
    description: [...(description === undefined ? [] : [description]), needs(scope)].join(' '),
    ...security(scope, secured),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === undefined
      ? {}
      : { requestBody: { required: !bodyOptional, content: contentOf({ 'application/json': body }) } }),
    responses: {
      ...responsesOf(operation.answers),
      ...problemsOf([...always, ...failures], operation),
    },
  };
}

/** Deprecated parameters are read, but not described. */
function parametersOf(place: 'path' | 'query', schema: z.ZodObject | undefined): JsonObject[] {
  return Object.entries<z.ZodType>(schema?.shape ?? {})
    .filter(([, field]) => field.meta()?.deprecated !== true)
    .map(([name, field]) => {
      const { description, ...json } = inline(field);
      const required = place === 'path' || !field.safeParse(undefined).success;
      return {
        name,
        in: place,
        required,
        ...(description === undefined ? {} : { description }),
        schema: json,
      };
    });
}

function responsesOf(answers: Operation['answers']): JsonObject {
  return Object.fromEntries(Object.entries(answers).map(([status, answer]) => [status, answerOf(answer)]));
}

function answerOf({ description, content, headers }: AnswerDocument): JsonObject {
  return {
    description,
    ...(headers === undefined ? {} : { headers: headersDocument(headers) }),
    ...(content === undefined ? {} : { content: contentOf(content) }),
  };
}

function headersDocument(headers: Readonly<Record<string, string>>): JsonObject {
  return Object.fromEntries(
    Object.entries(headers).map(([name, description]) => [name, { description, schema: { type: 'string' } }]),
  );
}

function contentOf(content: Readonly<Record<string, z.ZodType>>): JsonObject {
  return Object.fromEntries(
    Object.entries(content).map(([mediaType, schema]) => [
      mediaType.split(';', 1)[0] ?? mediaType,
      { schema: referenceTo(schema) },
    ]),
  );
}

/** One response for each status, with the failure types that it may have. */
function problemsOf(
  failures: readonly FailureType[],
  { body, params }: Partial<Pick<Operation, 'body' | 'params'>> = {},
): JsonObject {
  const byStatus = new Map<number, string[]>();
  const add = (status: number, type: string) => byStatus.set(status, [...(byStatus.get(status) ?? []), type]);
  for (const type of new Set(failures)) add(statusOf(type), type);
  if (body !== undefined) {
    add(413, 'Input.TooLarge');
    add(415, 'Input.Invalid');
  }
  if (params?.shape.session !== undefined && !byStatus.has(404)) add(404, 'Store.SessionNotFound');
  return Object.fromEntries(
    [...byStatus].map(([status, types]) => [
      status,
      {
        description: types.map(named).join(', '),
        ...(status === 429 || status === 503
          ? { headers: headersDocument({ 'Retry-After': 'Seconds.' }) }
          : {}),
        ...(status === 401 ? { headers: headersDocument({ 'WWW-Authenticate': '`Bearer`' }) } : {}),
        content: { [problemMediaType]: { schema: referenceTo(problem) } },
      },
    ]),
  );
}

/** Names a failure type in the description of a status. Of the types with status 409, only `Store.Busy` has `Retry-After`. */
function named(type: string): string {
  return type === 'Store.Busy' ? `\`${type}\` (with \`Retry-After\`)` : `\`${type}\``;
}

function referenceTo(schema: z.ZodType): JsonObject {
  const id = components.get(schema)?.id;
  return id === undefined ? inline(schema) : { $ref: reference(id) };
}

/** The schema of the parsed value: a number in a query is described as a number, although it is sent as text. */
function inline(schema: z.ZodType): JsonObject {
  return plain(z.toJSONSchema(schema, written));
}

/**
 * The schemas of bodies as they are sent (`io: 'input'`): they allow unknown fields in answers, so that later versions may add
 * some, and forbid them in requests (`strictObject`).
 */
function schemasOfComponents(): Record<string, JsonObject> {
  const { schemas } = z.toJSONSchema(components, { ...written, uri: reference, io: 'input' });
  return Object.fromEntries(
    Object.entries(schemas).map(([id, schema]) => [id, { title: id, ...plain(schema) }]),
  );
}

/** Omits the bounds that zod adds to integers without their own (safe integers), and says that numbers have double precision. */
const written = {
  unrepresentable: 'any',
  override: ({ jsonSchema }: { jsonSchema: z.core.JSONSchema.BaseSchema }) => {
    if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
    if (jsonSchema.minimum === Number.MIN_SAFE_INTEGER) delete jsonSchema.minimum;
    if (jsonSchema.type === 'number') jsonSchema.format = 'double';
  },
} as const;

/** Removes the fields of a stand-alone document. */
function plain({ $schema, $id, ...schema }: JsonObject): JsonObject {
  return schema;
}
