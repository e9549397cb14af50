/** Generates tables of `docs` from the sources. `npm run docs` writes them; a test fails if a file is stale. */
import { z } from 'zod';
import { operations } from '../../src/api/operations/index.js';
import { policyVariables } from '../../src/config/policy-sources.js';
import { settings, type Setting } from '../../src/config/schema.js';
import { describePolicy } from '../../src/policy/describe.js';
import { effectivePolicy } from '../../src/policy/layers.js';
import { policySchema } from '../../src/policy/schema.js';
import { tenantLimitsSchema } from '../../src/policy/tenant-limits.js';

/** Files that contain such a table, between `<!-- table: policy -->` and `<!-- end of table -->`. */
export const documentsWithTables = [
  'docs/configuration.md',
  'docs/http-api.md',
  'docs/operating.md',
  'docs/policy.md',
];

/** The recovery tools, as the examples in Python read them. */
export const pythonDefinitions = 'examples/python/recovery_tools.json';

const tables: Readonly<Record<string, () => string[]>> = {
  configuration: configurationTable,
  limits: () => [
    '| limit | value | meaning |',
    '|---|---|---|',
    ...Object.entries(tenantLimitsSchema.shape).map(
      ([name, field]) => `| \`${name}\` | ${limitValue(name, field)} | ${field.description ?? ''} |`,
    ),
  ],
  operations: () => [
    '| operation | what it does | scope |',
    '|---|---|---|',
    ...operations.map(
      ({ method, path, summary, scope }) => `| \`${method} ${path}\` | ${summary} | \`${scope}\` |`,
    ),
  ],
  policy: () => [
    '| field | value | default | meaning |',
    '|---|---|---|---|',
    ...policyFields().map(
      ({ path, value, otherwise, meaning }) => `| \`${path}\` | ${value} | ${otherwise} | ${meaning} |`,
    ),
  ],
};

/** Returns the document with every table generated from the sources. Throws if the document names an unknown table. */
export function withTables(document: string): string {
  return document.replaceAll(
    /(<!-- table: (\w+) -->\n)[^]*?(<!-- end of table -->)/g,
    (_, begin: string, name: string, end: string) => {
      const table = tables[name];
      if (table === undefined) throw new Error(`There is no table ${name}.`);
      return `${begin}\n${table().join('\n')}\n\n${end}`;
    },
  );
}

function limitValue(name: string, field: z.ZodType): string {
  return name === 'prices' ? 'object' : valuesOf(z.toJSONSchema(field, { io: 'input' }) as Schema);
}

interface PolicyField {
  path: string;
  value: string;
  otherwise: string;
  meaning: string;
}

interface Schema {
  description?: string;
  type?: string;
  const?: unknown;
  enum?: unknown[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
}

/** Returns every described field of a policy, in the order of the schema. */
export function policyFields(): PolicyField[] {
  const schema = z.toJSONSchema(policySchema, { io: 'input', unrepresentable: 'any' }) as Schema;
  const defaults = new Map(
    describePolicy(effectivePolicy({})).map(({ path, value }) => [path, value === null ? '' : shown(value)]),
  );
  const fields = new Map<string, PolicyField>();
  const walk = (at: Schema, path: string): void => {
    if (at.description !== undefined && !fields.has(path)) {
      const [meaning, otherwise] = divided(at.description);
      const value = valuesOf(at);
      fields.set(path, { path, value, otherwise: otherwise || defaults.get(path) || '–', meaning });
    }
    for (const [name, field] of Object.entries(at.properties ?? {}))
      walk(field, path ? `${path}.${name}` : name);
    for (const one of [...(at.anyOf ?? []), ...(at.items ? [at.items] : [])]) walk(one, path);
  };
  walk(schema, '');
  return [...fields.values()];
}

/** Splits a description into meaning and default. Most descriptions end with the default. */
function divided(description: string): [meaning: string, otherwise: string] {
  const [, meaning = description, otherwise = ''] = /^(.*?)\s*\bDefault:? (.+)\.$/s.exec(description) ?? [];
  return [cell(meaning), cell(otherwise)];
}

function valuesOf({ type, const: only, enum: names, anyOf, items, ...limits }: Schema): string {
  if (only !== undefined) return shown(only);
  if (names !== undefined) return names.map(shown).join(', ');
  if (anyOf !== undefined) return [...new Set(anyOf.map(valuesOf))].join(' or ');
  if (type === 'integer' || type === 'number') return numbersOf(type, limits);
  if (type === 'array') return items?.type === 'string' ? 'texts' : 'list';
  return type === 'string' ? 'text' : (type ?? 'any');
}

function numbersOf(type: string, { minimum, maximum, exclusiveMinimum, exclusiveMaximum }: Schema): string {
  const known = (limit: number | undefined) =>
    limit !== undefined && Math.abs(limit) < Number.MAX_SAFE_INTEGER ? shown(limit) : undefined;
  const [least, above] = [known(minimum), known(exclusiveMinimum)];
  const [most, below] = [known(maximum), known(exclusiveMaximum)];
  const limits = [
    ...(least === undefined ? [] : [`≥ ${least}`]),
    ...(above === undefined ? [] : [`> ${above}`]),
    ...(most === undefined ? [] : [`≤ ${most}`]),
    ...(below === undefined ? [] : [`< ${below}`]),
  ];
  return [type, ...(limits.length > 0 ? [limits.join(', ')] : [])].join(' ');
}

function configurationTable(): string[] {
  return [
    '| in the file | variable | meaning | default |',
    '|---|---|---|---|',
    '| – | `PALIMPSEST_CONFIG` | the configuration file, YAML or JSON | `palimpsest.yaml`, `.yml` or `.json` in the current folder, where there is one |',
    ...settings().flatMap((one) => (one.path[0] === 'policy' ? [row(one), ...policyRows()] : [row(one)])),
  ];
}

function row({ path, variable, description, schema, otherwise }: Setting): string {
  const value = schema.parse(undefined);
  return `| \`${path.join('.')}\` | \`${variable}\` | ${description} | ${otherwise ?? (shown(value) || 'none')} |`;
}

/** Returns the rows of single policy fields, whose variables override `policy`. */
function policyRows(): string[] {
  return Object.entries(policyVariables).map(([variable, { path }]) => {
    const place = path.join('.');
    return `| \`policy.${place}\` | \`${variable}\` | only [\`${place}\`](policy.md#fields); overrides \`PALIMPSEST_POLICY\` | none |`;
  });
}

/** Returns a value in the form of the table; '' for undefined. */
function shown(value: unknown): string {
  if (value === undefined) return '';
  if (typeof value === 'number') return value.toLocaleString('en', { maximumFractionDigits: 6 });
  if (typeof value === 'boolean') return String(value);
  if (typeof value === 'string') return `\`${cell(value)}\``;
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return value.join(', ');
  return `\`${cell(JSON.stringify(value))}\``;
}

const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ');
