/** The documentation of policy, configuration, operations, failures and tests agrees with the sources. */
import { existsSync, readdirSync } from 'node:fs';
import { expect, test } from 'vitest';
import { failureTypes } from '../../../src/errors.js';
import { recoveryTools } from '../../../src/contract/recovery-tools.js';
import { describePolicy } from '../../../src/policy/describe.js';
import { effectivePolicy } from '../../../src/policy/layers.js';
import { document, documents } from '../../support/documents.js';
import { documentsWithTables, policyFields, pythonDefinitions, withTables } from '../../support/reference.js';

test.each(documentsWithTables)('the tables of %s are those of the sources (else: npm run docs)', (file) => {
  const text = document(file);
  expect(text).toMatch(/<!-- table: \w+ -->/);
  expect(text).toBe(withTables(text));
});

test('the examples in Python offer the recovery tools (else: npm run docs)', () =>
  expect(JSON.parse(document(pythonDefinitions))).toEqual(recoveryTools));

test('the table shows the default of each policy field', () => {
  const told = new Map(policyFields().map(({ path, otherwise }) => [path, otherwise]));
  let compared = 0;
  for (const { path, value } of describePolicy(effectivePolicy({}))) {
    // Prices follow from one another; the table says how.
    if (typeof value === 'object' || value === undefined || path.startsWith('prices.')) continue;
    const [given = ''] = (told.get(path) ?? '').split(' (');
    const wanted = typeof value === 'number' ? value.toLocaleString('en') : String(value);
    expect([path, given]).toEqual([path, expect.stringMatching(new RegExp(`(?:^|\\W)${wanted}(?!\\d)`))]);
    compared++;
  }
  expect(compared).toBeGreaterThan(30);
});

test('the outputs of commands have the present number of migrations', () => {
  const folder = new URL('../../../migrations/', import.meta.url);
  const migrations = readdirSync(folder).filter((name) => name.endsWith('.sql')).length;
  const told = [...document('docs/cli.md').matchAll(/(\d+) migrations applied/g)];
  expect(told.map(([, number]) => Number(number))).toEqual([migrations, migrations]);
});

test('every failure type has its row', () => {
  const failures = document('docs/failures.md');
  for (const type of failureTypes) expect(failures).toContain(`| \`${type}\` |`);
});

test('every test file that the documentation names exists', () => {
  const named = documents.flatMap((file) =>
    [...document(file).matchAll(/`(test\/[\w./-]+\.test\.ts)`/g)].map(([, name = '']) => name),
  );
  expect(named.length).toBeGreaterThan(100);
  expect(named.filter((name) => !existsSync(new URL(`../../../${name}`, import.meta.url)))).toEqual([]);
});

test('every guarantee names the tests that show it', () => {
  const rows = document('docs/guarantees.md').match(/^\| (?!guarantee)[^|]+ \| .+ \|$/gm) ?? [];
  expect(rows.length).toBeGreaterThan(20);
  expect(rows.filter((row) => !/`test\/[\w./-]+\.test\.ts`/.test(row))).toEqual([]);
});
