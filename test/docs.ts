/** `npm run docs` generates the tables of `docs` from the sources. */
import { readFileSync, writeFileSync } from 'node:fs';
import { documentsWithTables, withTables } from './support/reference.js';

for (const file of documentsWithTables) {
  const text = readFileSync(file, 'utf8');
  const written = withTables(text);
  if (written === text) continue;
  writeFileSync(file, written);
  process.stdout.write(`${file} is up to date again.\n`);
}
