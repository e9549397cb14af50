/** Checks answers against the OpenAPI document. */
import addFormats from 'ajv-formats';
import { Ajv2020, type AnySchema } from 'ajv/dist/2020.js';
import { openApiDocument } from '../../src/api/openapi.js';
import { operations } from '../../src/api/operations/index.js';
import type { Answered } from './api.js';

export const document = openApiDocument(operations, { secured: true });

const schemas = new Ajv2020({ strict: false, allErrors: true });
addFormats.default(schemas);
schemas.addSchema(closed(document) as AnySchema, 'openapi');

/** Returns the document with `additionalProperties: false`, so that an answer may have only fields that the document names. */
function closed(part: unknown): unknown {
  if (Array.isArray(part)) return part.map(closed);
  if (typeof part !== 'object' || part === null) return part;
  const inner: Record<string, unknown> = Object.fromEntries(
    Object.entries(part).map(([key, value]) => [key, closed(value)]),
  );
  const open =
    inner.type === 'object' && inner.properties !== undefined && inner.additionalProperties === undefined;
  return open ? { ...inner, additionalProperties: false } : inner;
}

/** Returns the errors of a value by its schema in the document. */
export function errorsOf(reference: string, value: unknown): unknown[] {
  const check = schemas.compile({ $ref: `openapi${reference}` });
  return check(value) ? [] : (check.errors ?? []);
}

type Responses = Record<
  string,
  { content?: Record<string, { schema: { $ref?: string } }>; headers?: object }
>;

/** Returns the differences between an answer and the document's description of its operation, for any status. */
export function differences(
  operation: Record<string, unknown>,
  { status, headers, text, json }: Answered,
): unknown[] {
  const said = (operation.responses as Responses)[status];
  if (!said) return [`status ${status}: ${text}`];
  const missing = Object.keys(said.headers ?? {}).filter((name) => !headers.has(name));
  if (missing.length > 0) return missing;
  const mediaType = headers.get('content-type')?.split(';')[0];
  if (said.content === undefined) return mediaType === undefined && text === '' ? [] : [`a body: ${text}`];
  const schema = said.content[mediaType ?? '']?.schema;
  if (!schema) return [`media type ${mediaType}`];
  if (mediaType === 'application/x-ndjson')
    return text
      .trim()
      .split('\n')
      .flatMap((line) => errorsOf('#/components/schemas/LoggedMessage', JSON.parse(line)));
  if (!schema.$ref) return [];
  return errorsOf(schema.$ref, json);
}
