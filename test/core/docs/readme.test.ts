/** README's tables are the documentation of schema and failures: they say what the code says. */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { z } from 'zod';
import { configTable } from '../../support/config-table.js';
import { operations } from '../../../src/api/operations/index.js';
import { failureTypes } from '../../../src/errors.js';
import {
  memorySchema,
  policySchema,
  pricesSchema,
  retentionSchema,
  spendSchema,
} from '../../../src/policy/schema.js';
import { argumentsSchema, reduceSchema, toolResultsSchema } from '../../../src/policy/reduce-schema.js';
import { summarySchema } from '../../../src/policy/summary-schema.js';

const readme = readFileSync(new URL('../../../README.md', import.meta.url), 'utf8');

function rows(shape: Record<string, z.ZodType>, prefix = ''): string[] {
  return Object.entries(shape).flatMap(([name, field]) =>
    field.description === undefined ? [] : [`| \`${prefix}${name}\` | ${field.description} |`],
  );
}

test('every knob of the policy has its row', () => {
  const wanted = [
    ...rows(policySchema.shape),
    ...rows(reduceSchema.shape, 'reduce.'),
    ...rows(argumentsSchema.shape, 'reduce.arguments.'),
    ...rows(toolResultsSchema.shape, 'reduce.toolResults.'),
    ...rows(summarySchema.shape, 'summary.'),
    ...rows(pricesSchema.shape, 'prices.'),
    ...rows(spendSchema.shape, 'spend.'),
    ...rows(memorySchema.shape, 'memory.'),
    ...rows(retentionSchema.shape, 'retention.'),
  ];
  expect(wanted.length).toBeGreaterThan(60);
  for (const row of wanted) expect(readme).toContain(row);
});

test('the configuration table is that of the schema', () => {
  const wanted = configTable();
  expect(wanted.length).toBeGreaterThan(30);
  expect(readme).toContain(wanted.join('\n'));
});

test('every failure type has its row', () => {
  for (const type of failureTypes) expect(readme).toContain(`| \`${type}\` |`);
});

test('every operation of the HTTP API has its row', () => {
  const api = readFileSync(new URL('../../../docs/http-api.md', import.meta.url), 'utf8');
  for (const { method, path, summary } of operations)
    expect(api).toContain(`| \`${method} ${path}\` | ${summary} |`);
});

const documents = readdirSync(new URL('../../../docs', import.meta.url)).map((name) =>
  readFileSync(new URL(`../../../docs/${name}`, import.meta.url), 'utf8'),
);

test('every test file that the documentation names exists', () => {
  const named = [...[readme, ...documents].join('\n').matchAll(/`(test\/[\w./-]+\.test\.ts)`/g)].map(
    ([, file]) => file ?? '',
  );
  expect(named.length).toBeGreaterThan(5);
  for (const file of named)
    expect(() => readFileSync(new URL(`../../../${file}`, import.meta.url))).not.toThrow();
});
