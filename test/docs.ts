/** `npm run docs` generates the tables of `docs` and the definitions of the Python examples from the sources. */
import { readFileSync, writeFileSync } from 'node:fs';
import { format, resolveConfig } from 'prettier';
import { recoveryTools } from '../src/contract/recovery-tools.js';
import { documentsWithTables, pythonDefinitions, withTables } from './support/reference.js';

const definitions = await format(JSON.stringify(recoveryTools), {
  ...(await resolveConfig(pythonDefinitions)),
  parser: 'json',
});
const files = [
  ...documentsWithTables.map((file) => [file, withTables] as const),
  [pythonDefinitions, () => definitions] as const,
];
for (const [file, made] of files) {
  const text = readFileSync(file, 'utf8');
  const written = made(text);
  if (written === text) continue;
  writeFileSync(file, written);
  process.stdout.write(`${file} is up to date again.\n`);
}
