/** The page of each framework begins with the lines that a user writes, and ends with what happens at the window. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { document, examplesIn } from '../../support/documents.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const pages = ['langchain', 'ai-sdk', 'openai-agents', 'mastra', 'loops'].map((name) => `docs/${name}.md`);

test.each(pages)('%s', (page) => {
  const text = document(page);
  const [example] = examplesIn(text);
  expect(example?.line).toBeLessThan(12);
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

test.each([
  ['langchain', 'the summarization middleware'],
  ['mastra', 'Mastra memory'],
  ['loops', 'your own loop'],
])('%s says how to move from %s', (name, from) => {
  expect(document(`docs/${name}.md`)).toContain(`\n## Move from ${from}\n`);
});
