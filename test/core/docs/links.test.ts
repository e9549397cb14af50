/** Every link of README and docs has a target. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { anchorsOf, document, documents, linksIn } from '../../support/documents.js';

function problemOf(file: string, target: string): string | null {
  if (/^[a-z]+:/.test(target)) return /^https?:\/\/[^/]+/.test(target) ? null : 'is no address';
  const [name = '', anchor] = target.split('#');
  const named = name === '' ? file : path.posix.join(path.posix.dirname(file), name);
  if (!existsSync(new URL(`../../../${named}`, import.meta.url))) return `${named} does not exist`;
  if (anchor === undefined) return null;
  return anchorsOf(document(named)).has(anchor) ? null : `${named} has no heading #${anchor}`;
}

test.each(documents)('every link of %s has a target', (file) => {
  const problems = linksIn(document(file)).map((target) => [target, problemOf(file, target)]);
  expect(problems.filter(([, problem]) => problem !== null)).toEqual([]);
});

test('the package has every document that its documents link to', () => {
  const { files } = JSON.parse(document('package.json')) as { files: string[] };
  const isPacked = (name: string): boolean =>
    files.some((file) => name === file || name.startsWith(`${file}/`));
  const missing = documents
    .filter(isPacked)
    .flatMap((file) =>
      linksIn(document(file))
        .map((target) => path.posix.join(path.posix.dirname(file), target.split('#')[0] ?? ''))
        .filter((name) => documents.includes(name) && !isPacked(name)),
    );
  expect(missing).toEqual([]);
});

test('every document can be reached from README', () => {
  const reached = new Set(['README.md']);
  for (const file of reached)
    for (const target of linksIn(document(file))) {
      const named = path.posix.join(path.posix.dirname(file), target.split('#')[0] ?? '');
      if (documents.includes(named)) reached.add(named);
    }
  expect(documents.filter((file) => !reached.has(file))).toEqual([]);
});

test('README is short enough to be read once', () => {
  expect(document('README.md').trimEnd().split('\n').length).toBeLessThanOrEqual(250);
});

describe('the anchor of a heading', () => {
  test.each([
    ['## What it costs', 'what-it-costs'],
    ['# `palimpsest/http`: a client', 'palimpsesthttp-a-client'],
    ['## The [sweep](x.md)', 'the-sweep'],
  ])('%s', (heading, anchor) => expect([...anchorsOf(heading)]).toEqual([anchor]));

  test('that occurs twice has a number', () =>
    expect([...anchorsOf('# A\n## B\n## B\n')]).toEqual(['a', 'b', 'b-1']));
});
