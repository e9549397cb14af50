/** Building blocks of the contract: its zod schemas check requests, make the OpenAPI document, and give the types. */
import { z } from 'zod';
import type { PalimpsestError } from '../errors.js';
import { complain } from '../policy/issues.js';
import { idFault } from './ids.js';

/** Schemas that have a name in the document. */
export const components = z.registry<{ id: string }>();

/** Gives a schema its name in the document. */
export function component<Schema extends z.ZodType>(
  id: string,
  schema: Schema,
  { description, example }: { description: string; example: z.input<Schema> },
): Schema {
  const named = schema.meta({ description, examples: [example] });
  components.add(named, { id });
  return named;
}

/** A value that is checked elsewhere, with its schema in the document. */
export function opaque<Type>(
  document: Readonly<Record<string, unknown>>,
  { is = () => true, otherwise = 'is wrong' }: { is?: (value: unknown) => boolean; otherwise?: string } = {},
): z.ZodType<Type, unknown> {
  return z.custom<Type>(is, { error: otherwise }).meta(document);
}

export const moment = z.iso.datetime();

const { $schema: _dialect, ...momentInJson } = z.toJSONSchema(moment);
/** A time that the library returns as a `Date`. `JSON.stringify` writes it in the form of `moment`. */
export const date = opaque<Date>(momentInJson);

export const failure = z.object({ type: z.string(), message: z.string() });

export function id(place?: 'part' | 'stored') {
  return z
    .string()
    .min(1)
    .superRefine((given, context) => {
      const fault = idFault(given, place);
      if (fault) context.addIssue({ code: 'custom', message: fault.problem, params: { hint: fault.hint } });
    });
}

/** Parses the request with its schema. Throws `Input.Invalid` naming the field. */
export function checked<Request>(schema: z.ZodType<Request>, request: unknown): Request {
  const read = schema.safeParse(request);
  if (read.success) return read.data;
  throw complaint(read.error, schema, request);
}

/** Reports an unknown field first, because it is often the misspelt name of a missing one. */
export function complaint(error: z.ZodError, schema: z.ZodType, request: unknown): PalimpsestError {
  const isUnknownField = ({ code, path }: z.core.$ZodIssue) =>
    code === 'unrecognized_keys' && path.length === 0;
  const unknown = error.issues.find(isUnknownField);
  return complain(unknown ? new z.ZodError([unknown]) : error, schema, request, '');
}
