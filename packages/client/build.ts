/**
 * `npm run build:client` writes the package `palimpsest-client` into packages/client/dist: the HTTP client and the adapters, each an entry
 * point, with zod bundled in. Frameworks stay outside: they are optional peers.
 */
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { rollup } from 'rollup';
import { dts } from 'rollup-plugin-dts';

interface Manifest {
  name: string;
  version: string;
  license: string;
}
interface RootManifest extends Manifest {
  engines: Record<string, string>;
  exports: Record<string, { 'palimpsest-source': string }>;
  peerDependencies: Record<string, string>;
}

/** Part of a bundle: `imports` has names of packages and of other parts, `modules` the files that it is made of. */
interface Chunk {
  fileName: string;
  imports: string[];
  modules: object;
}

const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = path.join(root, 'packages', 'client', 'dist');
const bundled = ['zod'];
const from = readManifest<RootManifest>(path.join(root, 'package.json'));
const entries = entriesOf(from.exports);

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const chunks = [...(await bundleCode()), ...(await bundleTypes())];
for (const name of ['README.md', 'LICENSE'])
  copyFileSync(path.join(root, name === 'LICENSE' ? '' : 'packages/client', name), path.join(folder, name));
write('THIRD-PARTY-LICENSES', licencesOf(chunks));
write('package.json', `${JSON.stringify(manifestOf(chunks), null, 2)}\n`);

/** The client is the entry `index`; an adapter has the name that it has in `palimpsest`. */
function entriesOf(exported: RootManifest['exports']): Record<string, string> {
  const sources = Object.entries(exported).map(([name, conditions]) => [
    name,
    conditions['palimpsest-source'],
  ]);
  return Object.fromEntries(
    sources.flatMap(([name = '', source = '']) => {
      if (name === './http') return [['index', path.join(root, source)]];
      return source.startsWith('./src/adapters/') ? [[name.slice(2), path.join(root, source)]] : [];
    }),
  );
}

async function bundleCode(): Promise<Chunk[]> {
  const bundle = await rolldown({
    input: entries,
    platform: 'node',
    external: isOutside,
    // What is wrong fails.
    onLog: (_, { message }) => fail(message),
  });
  const es = await bundle.write({ ...output('js'), format: 'es' });
  const cjs = await bundle.write({ ...output('cjs'), format: 'cjs', exports: 'named' });
  await bundle.close();
  return [...es.output, ...cjs.output].filter((part) => part.type === 'chunk');
}

/** CommonJS gets the same declarations under other names: an ES module's types cannot be imported there. */
async function bundleTypes(): Promise<Chunk[]> {
  const bundle = await rollup({
    input: entries,
    plugins: [dts({ includeExternal: bundled, tsconfig: path.join(root, 'tsconfig.json') })],
    onLog(_, { message }) {
      // Types of zod in `shared` have no public name. The test compiles with `declaration`, which would need one.
      if (!message.includes('private shared type')) fail(message);
    },
  });
  const { output: parts } = await bundle.write({ ...output('d.ts'), format: 'es' });
  await bundle.close();
  const made = parts.filter((part) => part.type === 'chunk');
  for (const { fileName, code } of made)
    write(
      fileName.replace(/\.ts$/, '.cts'),
      code.replaceAll(/(?<=(?:from|import) '\.[^']*\.)(?=js';)/g, 'c'),
    );
  return made;
}

function output(extension: string) {
  const names = { entryFileNames: `[name].${extension}`, chunkFileNames: `shared/[name].${extension}` };
  return { dir: folder, ...names };
}

function isOutside(id: string): boolean {
  return !id.startsWith('.') && !path.isAbsolute(id) && !bundled.includes(packageOf(id));
}

function packageOf(id: string): string {
  return id.split('/', id.startsWith('@') ? 2 : 1).join('/');
}

function manifestOf(made: readonly Chunk[]): object {
  const { version, license, engines } = from;
  return {
    ...{
      name: 'palimpsest-client',
      version,
      description: 'HTTP client and framework adapters of Palimpsest.',
    },
    ...{ license, type: 'module', engines },
    exports: Object.fromEntries(
      Object.keys(entries).map((name) => [
        name === 'index' ? '.' : `./${name}`,
        {
          require: { types: `./${name}.d.cts`, default: `./${name}.cjs` },
          ...{ types: `./${name}.d.ts`, default: `./${name}.js` },
        },
      ]),
    ),
    peerDependencies: from.peerDependencies,
    peerDependenciesMeta: Object.fromEntries(peersOf(made).map((name) => [name, { optional: true }])),
  };
}

/** Frameworks of the adapters, also of those that import no code or types of theirs. */
function peersOf(made: readonly Chunk[]): string[] {
  const own = new Set(made.map(({ fileName }) => fileName));
  const imported = made.flatMap(({ imports }) => imports).filter((id) => !own.has(id) && !isBuiltin(id));
  const peers = Object.keys(from.peerDependencies);
  for (const name of imported.map(packageOf))
    if (!peers.includes(name))
      fail(`${name} is imported: name it in peerDependencies of package.json, as optional`);
  return peers;
}

function licencesOf(made: readonly Chunk[]): string {
  const inside = made.flatMap(({ modules }) => Object.keys(modules)).flatMap((file) => folderOf(file) ?? []);
  const licences = [...new Set(inside)].map((each) => {
    const { name, version, license } = readManifest<Manifest>(path.join(each, 'package.json'));
    const file = readdirSync(each).find((entry) => /^licen[cs]e/i.test(entry));
    if (file === undefined) return fail(`${name} has no file with its licence`);
    return `${name} ${version} (${license})\n\n${readFileSync(path.join(each, file), 'utf8').trim()}\n`;
  });
  return [...new Set(licences)].sort().join('\n\n');
}

/** The folder of the package that has the file. */
function folderOf(file: string): string | undefined {
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(file.replaceAll(path.sep, '/'))?.[0];
}

function readManifest<Kind extends Manifest>(file: string): Kind {
  return JSON.parse(readFileSync(file, 'utf8')) as Kind;
}

function write(name: string, text: string): void {
  writeFileSync(path.join(folder, name), text);
}

function fail(message: string): never {
  throw new Error(`The client package cannot be built: ${message}`);
}
