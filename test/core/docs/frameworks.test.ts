/** The page of each framework begins with the lines that a user writes, and ends with what happens at the window. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { document, type Example, examplesIn } from '../../support/documents.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const pages = ['langchain', 'ai-sdk', 'openai-agents', 'mastra', 'loops'].map((name) => `docs/${name}.md`);
const isTypeScript = ({ language }: Example): boolean => language === 'ts' || language === 'typescript';

test.each(pages)('%s', (page) => {
  const text = document(page);
  const [example] = examplesIn(text).filter(isTypeScript);
  expect(example?.line).toBeLessThan(16);
  const written = (example?.code ?? '')
    .split('\n')
    .filter((line) => !line.startsWith('import ') && /palimpsest|\bclient\b|\bsession\b/i.test(line));
  expect(written.length).toBeGreaterThan(0);
  expect(written.length).toBeLessThanOrEqual(3);
  const window = text.slice(text.lastIndexOf('\n## '));
  expect(window).toMatch(/^\n## At the window\n/);
  const [, file = 'none'] = /`(test\/service\/[\w/.-]+)`/.exec(window) ?? [];
  expect(existsSync(path.join(root, file))).toBe(true);
});

test.each(pages)('%s names the packages to install, and imports from the client package', (page) => {
  const text = document(page);
  const [before = ''] = text.split('```ts', 1);
  expect(before).toMatch(/palimpsest-client(?:-\d\S*\.tgz\n```|`\]\(library\.md#the-client-package\))/);
  const imported = examplesIn(text)
    .filter(isTypeScript)
    .flatMap(({ code }) => [...code.matchAll(/ from '(palimpsest[^'/]*)/g)].map(([, name]) => name));
  expect(new Set(imported)).toEqual(new Set(['palimpsest-client']));
});

test.each([
  ['langchain', 'the summarization middleware'],
  ['mastra', 'Mastra memory'],
  ['loops', 'your own loop'],
])('%s says how to move from %s', (name, from) => {
  expect(document(`docs/${name}.md`)).toContain(`\n## Move from ${from}\n`);
});
