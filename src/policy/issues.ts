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

const list = (words: readonly unknown[]): string => words.map(String).join(', ');

const kindWords: Record<string, string> = {
  int: 'a whole number',
  number: 'a number',
  string: 'a string',
  boolean: 'true or false',
  object: 'an object',
  array: 'a list',
};
const kindInWords = (kind: string): string => kindWords[kind] ?? kind;

/** The kinds of value that a union offers at the place of the complaint, e.g. `a whole number or a list`. */
function expectedKinds(issue: z.core.$ZodIssueInvalidUnion): string {
  const kinds = issue.errors.flatMap((branch) =>
    branch.flatMap((inner) =>
      inner.code === 'invalid_type' && inner.path.length === 0 ? [inner.expected] : [],
    ),
  );
  return [...new Set(kinds.map(kindInWords))].join(' or ');
}

/** Of a union's branches, the one whose complaint lies inside the value: the shape its writer meant. */
function innermost(issue: Issue): Issue {
  if (issue.code !== 'invalid_union') return issue;
  const inside = issue.errors
    .map((branch) => branch[0])
    .find((first) => first !== undefined && first.path.length > 0);
  return inside === undefined ? issue : { ...inside, path: [...issue.path, ...inside.path] };
}

const branchesOf = (place: JsonSchema): JsonSchema[] => [place, ...((place.anyOf ?? []) as JsonSchema[])];

/** What the schema says about the value at a path: one entry, or one for each branch of a union. */
function placesAt(schema: z.ZodType, path: Path): JsonSchema[] {
  let places = branchesOf(z.toJSONSchema(schema) as JsonSchema);
  for (const key of path) {
    places = places.flatMap((place) => {
      const next = typeof key === 'number' ? place.items : place.properties?.[String(key)];
      return next !== undefined && typeof next === 'object' && !Array.isArray(next)
        ? branchesOf(next as JsonSchema)
        : [];
    });
  }
  return places;
}

/** What may stand there: the known fields, or what the schema tells about the value. */
function hintFor(issue: Issue, schema: z.ZodType): string | undefined {
  const places = placesAt(schema, issue.path);
  if (issue.code === 'unrecognized_keys') {
    return `Known fields: ${list(places.flatMap((place) => Object.keys(place.properties ?? {})))}.`;
  }
  const own: unknown = issue.code === 'custom' ? issue.params?.hint : undefined;
  return typeof own === 'string' ? own : places.find((place) => place.description !== undefined)?.description;
}

function messageOf(issue: Issue, value: unknown): string {
  switch (issue.code) {
    case 'invalid_type':
      return `must be ${kindInWords(issue.expected)}, not ${shown(value)}`;
    case 'invalid_union':
      return `must be ${expectedKinds(issue)}, not ${shown(value)}`;
    case 'too_big': {
      const bound = `${issue.inclusive ? 'at most' : 'below'} ${String(issue.maximum)}`;
      return `must be ${bound}${issue.origin === 'string' ? ' characters' : ''}, not ${shown(value)}`;
    }
    case 'too_small': {
      if (issue.origin === 'string') return 'must not be empty';
      return `must be ${issue.inclusive ? 'at least' : 'above'} ${String(issue.minimum)}, not ${shown(value)}`;
    }
    case 'invalid_value':
      return `must be one of ${list(issue.values)}, not ${shown(value)}`;
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

/**
 * zod's first complaint as a typed failure that names the field, what is wrong with it and what may stand there.
 * `root` names the checked value in paths: `policy`, or nothing.
 */
export function complain(
  error: z.ZodError,
  schema: z.ZodType,
  input: unknown,
  root: string,
): PalimpsestError {
  const first = error.issues[0];
  if (first === undefined) return invalid(error.message, root);
  const issue = innermost(first);
  const unknownKey = issue.code === 'unrecognized_keys' ? issue.keys[0] : undefined;
  const path = pathOf(root, unknownKey === undefined ? issue.path : [...issue.path, unknownKey]);
  return invalid(`${path} ${messageOf(issue, valueAt(input, issue.path))}.`, path, hintFor(issue, schema));
}
