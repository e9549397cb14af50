/**
 * Part of `npm run check`. A file of `src`, `workflows` or `activities` imports, types included, only from its own folder and
 * from lower rows of the table. Neither files nor folders, those of `bench` included, import each other in a circle.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';

/** From the top down. `src/` is left out of the names. */
const floors = [
  ['cli', 'index.ts'],
  ['gateway', 'mcp'],
  ['api', 'worker', 'http-client', 'adapters', 'workflows'],
  ['library', 'activities'],
  ['import', 'erase', 'process'],
  ['store', 'temporal', 'rehearsal'],
  ['contract', 'compaction', 'llm', 'intake'],
  ['summary', 'formats'],
  ['context', 'config'],
  ['limits'],
  ['policy'],
  ['tokens'],
  ['conversation', 'runtime'],
  ['contention.ts'],
  ['errors.ts', 'nearest.ts', 'numbers.ts', 'steps.ts'],
];
const floorOf = new Map(floors.flatMap((rooms, floor) => rooms.map((room) => [room, floor])));

interface Import {
  from: string;
  to: string;
}

const named = (file: string): string => file.replace(/^src\//, '');
const roomOf = (file: string): string => file.split('/', 1)[0] ?? file;

function importsOf(file: string): Import[] {
  return ts
    .preProcessFile(readFileSync(file, 'utf8'))
    .importedFiles.filter(({ fileName }) => fileName.startsWith('.'))
    .map(({ fileName }) => ({
      from: named(file),
      to: named(path.posix.join(path.posix.dirname(file), fileName).replace(/\.js$/, '.ts')),
    }));
}

/** An import of another room that does not stand on a lower floor. */
function climbs({ from, to }: Import): boolean {
  const [room, imported] = [roomOf(from), roomOf(to)];
  return room !== imported && (floorOf.get(imported) ?? -1) <= (floorOf.get(room) ?? -1);
}

/** The file or folder of each side, beside each other in the deepest folder that holds both files. */
function siblings({ from, to }: Import): Import {
  const [here, there] = [from.split('/'), to.split('/')];
  const depth = here.findIndex((name, index) => name !== there[index]) + 1;
  return { from: here.slice(0, depth).join('/'), to: there.slice(0, depth).join('/') };
}

/** Takes away what imports nothing or is imported by nothing, until only circles (and what joins two of them) are left. */
function circles(imports: Import[]): Import[] {
  const importing = new Set(imports.map((each) => siblings(each).from));
  const imported = new Set(imports.map((each) => siblings(each).to));
  const left = imports.filter(
    (each) => imported.has(siblings(each).from) && importing.has(siblings(each).to),
  );
  return left.length === imports.length ? left : circles(left);
}

const filesOf = (root: string): string[] =>
  readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => path.posix.join(root, name.replaceAll(path.sep, '/')));
const files = ['src', 'workflows', 'activities'].flatMap(filesOf);
const imports = files.flatMap(importsOf);

const faults = [
  ...[...new Set(files.map((file) => roomOf(named(file))))]
    .filter((room) => !floorOf.has(room))
    .map((room) => `${room} has no floor: name it in test/floors.ts.`),
  ...imports
    .filter(climbs)
    .map(({ from, to }) => `${from} imports ${to}, which does not stand on a lower floor.`),
  ...circles([...imports.filter((each) => !climbs(each)), ...filesOf('bench').flatMap(importsOf)]).map(
    (each) =>
      `${siblings(each).from} and ${siblings(each).to} are in a circle: ${each.from} imports ${each.to}.`,
  ),
];
for (const fault of faults) console.error(fault);
process.exitCode = faults.length > 0 ? 1 : 0;
