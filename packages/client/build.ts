/**
 * `npm run build:client` writes the package `palimpsest-client` into packages/client/dist: the HTTP client and the adapters, each an entry
 * point, with zod bundled in. Frameworks stay outside: they are optional peers.
 */
import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { rollup } from 'rollup';
import { dts } from 'rollup-plugin-dts';
import { licencesOf, packageOf } from '../bundled.js';

interface Manifest {
  version: string;
  license: string;
  engines: Record<string, string>;
  exports: Record<string, { 'palimpsest-source': string }>;
  peerDependencies: Record<string, string>;
  peerDependenciesMeta: Record<string, { optional?: boolean }>;
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
const from = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as Manifest;
const entries = entriesOf(from.exports);

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
const chunks = [...(await bundleCode()), ...(await bundleTypes())];
for (const name of ['README.md', 'LICENSE'])
  copyFileSync(path.join(root, name === 'LICENSE' ? '' : 'packages/client', name), path.join(folder, name));
write('THIRD-PARTY-LICENSES', licencesOf(chunks));
write('package.json', `${JSON.stringify(manifestOf(chunks), null, 2)}\n`);

/** The client is the entry `index`; an adapter has the name that it has in `palimpsest`. */
function entriesOf(exported: Manifest['exports']): Record<string, string> {
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

function manifestOf(made: readonly Chunk[]): object {
  const { version, license, engines } = from;
  checkPeers(made);
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
    peerDependenciesMeta: from.peerDependenciesMeta,
  };
}

/** Not every peer is imported: `palimpsest/mastra` describes the types that it needs. */
function checkPeers(made: readonly Chunk[]): void {
  const own = new Set(made.map(({ fileName }) => fileName));
  const imported = made.flatMap(({ imports }) => imports).filter((id) => !own.has(id) && !isBuiltin(id));
  for (const name of new Set(imported.map(packageOf)))
    if (!(name in from.peerDependencies && from.peerDependenciesMeta[name]?.optional))
      fail(`${name} is imported: name it in peerDependencies of package.json, as optional`);
}

function write(name: string, text: string): void {
  writeFileSync(path.join(folder, name), text);
}

function fail(message: string): never {
  throw new Error(`The client package cannot be built: ${message}`);
}
