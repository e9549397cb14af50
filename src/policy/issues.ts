import { z } from 'zod';
import { invalid, type PalimpsestError } from '../errors.js';

type Issue = z.core.$ZodIssue;
type JsonSchema = z.core.JSONSchema.BaseSchema;
type Path = readonly PropertyKey[];

/** `policy`, `['trigger', 0, 'fraction']` → `policy.trigger[0].fraction`. */
function pathOf(root: string, path: Path): string {
  return path.reduce<string>((joined, key) => {
    if (typeof key === 'number') return `${joined}[${key}]`;
    return joined === '' ? String(key) : `${joined}.${String(key)}`;
  }, root);
}

function valueAt(input: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (value, key) => (value !== null && typeof value === 'object' ? Reflect.get(value, key) : undefined),
    input,
  );
}

function shown(value: unknown): string {
  if (value === undefined) return 'nothing';
  const json = typeof value === 'number' ? String(value) : (JSON.stringify(value) ?? typeof value);
  return json.length > 60 ? `${json.slice(0, 57)}…` : json;
}

/** A value in words that do not repeat it. */
function kindOf(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  if (typeof value === 'number') return 'a number without quotes';
  return kindInWords(Array.isArray(value) ? 'array' : typeof value);
}

const list = (words: readonly unknown[]): string => words.map(String).join(', ');

const kindWords: Record<string, string> = {
  int: 'a whole number',
  number: 'a number',
  string: 'a string',
  boolean: 'true or false',
  object: 'an object',
  record: 'an object',
  array: 'a list',
};
const kindInWords = (kind: string): string => kindWords[kind] ?? kind;

/** `a number, a list or an object`. */
function either(words: readonly string[]): string {
  const distinct = [...new Set(words)];
  const last = distinct.pop() ?? 'something else';
  return distinct.length === 0 ? last : `${distinct.join(', ')} or ${last}`;
}

/** The kinds of value that a union accepts at the place of the issue. */
function expectedKinds(issue: z.core.$ZodIssueInvalidUnion): string[] {
  return issue.errors.flatMap((branch) =>
    branch.flatMap((inner): string[] => {
      if (inner.path.length > 0) return [];
      if (inner.code === 'invalid_type') return [kindInWords(inner.expected)];
      if (inner.code === 'invalid_value') return inner.values.map(String);
      return inner.code === 'invalid_union' ? expectedKinds(inner) : [];
    }),
  );
}

/** How far a value is from the shape that an issue describes. */
const distances = { none: 0, field: 2, kind: 100 };

function distance(issue: Issue, value: unknown): number {
  if (issue.code === 'unrecognized_keys') return distances.field * issue.keys.length;
  if (issue.path.length > 0)
    return valueAt(value, issue.path) === undefined ? distances.field : distances.none;
  const isKind = issue.code === 'invalid_type' || issue.code === 'invalid_union';
  const isLiteral = issue.code === 'invalid_value' && issue.values.length === 1;
  return isKind || isLiteral ? distances.kind : distances.none;
}

/** The issue of the union branch whose shape is nearest to the value; the union's own issue if no branch is near. */
function innermost(issue: Issue, value: unknown): Issue {
  if (issue.code !== 'invalid_union') return issue;
  const here = valueAt(value, issue.path);
  let nearest: { issue: Issue; distance: number } | undefined;
  for (const branch of issue.errors) {
    const inner = branch.map((one) => innermost(one, here));
    const [first] = inner;
    if (first === undefined) continue;
    const away = inner.reduce((sum, one) => sum + distance(one, here), 0);
    if (nearest === undefined || away < nearest.distance) nearest = { issue: first, distance: away };
  }
  if (nearest === undefined || nearest.distance >= distances.kind) return issue;
  return { ...nearest.issue, path: [...issue.path, ...nearest.issue.path] };
}

function branchesOf(place: JsonSchema): JsonSchema[] {
  return [place, ...(place.anyOf ?? []).flatMap(branchesOf)];
}

/** The schema of the value at a path: one entry, or one per branch of a union. */
function placesAt(schema: z.ZodType, path: Path): JsonSchema[] {
  let places = branchesOf(z.toJSONSchema(schema, { unrepresentable: 'any' }));
  for (const key of path) {
    places = places.flatMap((place) => {
      const next = typeof key === 'number' ? place.items : place.properties?.[String(key)];
      return next !== undefined && typeof next === 'object' && !Array.isArray(next) ? branchesOf(next) : [];
    });
  }
  return places;
}

/** Describes the accepted value: the known fields, or the schema's description. */
function hintFor(issue: Issue, schema: z.ZodType): string | undefined {
  const places = placesAt(schema, issue.path);
  if (issue.code === 'unrecognized_keys') {
    const forms = places.flatMap(({ properties }) => (properties ? [Object.keys(properties)] : []));
    const known = [...new Set(forms.flat())];
    if (known.length === 0) return 'This object takes no fields: remove it.';
    if (!isKnownElsewhere(issue, places)) return `Known fields: ${list(known)}.`;
    return `Give only fields that belong together: ${forms.map(list).join('; or ')}.`;
  }
  const own: unknown = issue.code === 'custom' ? issue.params?.hint : undefined;
  return typeof own === 'string' ? own : places.find((place) => place.description !== undefined)?.description;
}

/** Whether some form of the object has the field. If so, the field does not fit the other fields, or its value is wrong. */
function isKnownElsewhere(issue: Issue, places: readonly JsonSchema[]): boolean {
  const [key] = issue.code === 'unrecognized_keys' ? issue.keys : [];
  return key !== undefined && places.some(({ properties }) => Object.hasOwn(properties ?? {}, key));
}

function messageOf(issue: Issue, given: string): string {
  switch (issue.code) {
    case 'invalid_type':
      return `must be ${kindInWords(issue.expected)}, not ${given}`;
    case 'invalid_union':
      return `must be ${either(expectedKinds(issue))}, not ${given}`;
    case 'too_big': {
      const bound = `${issue.inclusive ? 'at most' : 'below'} ${String(issue.maximum)}`;
      return `must be ${bound}${issue.origin === 'string' ? ' characters' : ''}, not ${given}`;
    }
    case 'too_small': {
      const isText = issue.origin === 'string';
      if (isText && issue.minimum > 1) return `must have at least ${String(issue.minimum)} characters`;
      if (isText) return 'must not be empty';
      return `must be ${issue.inclusive ? 'at least' : 'above'} ${String(issue.minimum)}, not ${given}`;
    }
    case 'invalid_value':
      return `must be one of ${list(issue.values)}, not ${given}`;
    case 'unrecognized_keys':
      return 'is not a known field';
    case 'custom':
    case 'invalid_element':
    case 'invalid_format':
    case 'invalid_key':
    case 'not_multiple_of':
      return issue.message;
  }
}

const isWithin = (path: string, outer: string): boolean =>
  path.startsWith(outer) && /^(?:[.[]|$)/.test(path.slice(outer.length));

/**
 * Turns zod's first issue into a typed failure that names the field, the error and the accepted values.
 * `root` is the first part of the paths: `policy`, or an empty string. The failure repeats no value at, in or around one of the
 * `secrets`.
 */
export function complain(
  error: z.ZodError,
  schema: z.ZodType,
  input: unknown,
  root: string,
  secrets: readonly string[] = [],
): PalimpsestError {
  const first = error.issues[0];
  if (first === undefined) return invalid(error.message, root);
  const issue = innermost(first, input);
  const unknownKey = issue.code === 'unrecognized_keys' ? issue.keys[0] : undefined;
  const path = pathOf(root, unknownKey === undefined ? issue.path : [...issue.path, unknownKey]);
  const isSecret = secrets.some((secret) => isWithin(path, secret) || isWithin(secret, path));
  const told = isSecret ? kindOf : shown;
  const message =
    unknownKey !== undefined && isKnownElsewhere(issue, placesAt(schema, issue.path))
      ? `cannot be ${told(valueAt(input, [...issue.path, unknownKey]))} here`
      : messageOf(issue, told(valueAt(input, issue.path)));
  return invalid(`${path} ${message}.`, path, hintFor(issue, schema));
}
