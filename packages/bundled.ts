/** Packages whose code a build bundles. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

interface Manifest {
  name: string;
  version: string;
  license: string;
}

/** Name of the package that an import names: `zod` for `zod/v4`. */
export function packageOf(id: string): string {
  return id.split('/', id.startsWith('@') ? 2 : 1).join('/');
}

/** Text with the licence of each package that has modules in the bundle. `modules`: by the path of their file. */
export function licencesOf(chunks: readonly { modules: object }[]): string {
  const inside = chunks
    .flatMap(({ modules }) => Object.keys(modules))
    .flatMap((file) => folderOf(file) ?? []);
  const licences = [...new Set(inside)].map((folder) => {
    const manifest = readFileSync(path.join(folder, 'package.json'), 'utf8');
    const { name, version, license } = JSON.parse(manifest) as Manifest;
    return `${name} ${version} (${license})\n\n${licenceIn(folder, license).trim()}\n`;
  });
  return [...new Set(licences)].sort().join('\n\n');
}

function licenceIn(folder: string, license: string): string {
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (file !== undefined) return readFileSync(path.join(folder, file), 'utf8');
  // The text of this licence names no holder; TypeScript's package has it.
  if (license === 'Apache-2.0')
    return readFileSync(new URL('../node_modules/typescript/LICENSE.txt', import.meta.url), 'utf8');
  throw new Error(`${folder} is bundled, but has no file with its licence.`);
}

/** The folder of the package that has the file. */
function folderOf(file: string): string | undefined {
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file.replaceAll(path.sep, '/'))?.[0];
}
