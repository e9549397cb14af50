/**
 * `npm run build` writes dist: the entry points of the package with the modules that they share in few files, because a process
 * takes as long to load a small file as a large one; the workflows as one script; and the declarations of tsc.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { bundle, bundleFile } from '../../src/worker/workflow-bundle.js';
import { licencesOf, packageOf } from '../bundled.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const dist = path.join(root, 'dist');

/** Packages of ES modules, each in about a hundred files. */
const inlined = ['drizzle-orm', 'jose', 'openai', 're2js', 'zod'];

const adapters = readdirSync(path.join(root, 'src/adapters')).filter((file) => file !== 'options.ts');
const entries = [
  ...['src/index.ts', 'src/http-client/index.ts', 'src/cli/main.ts', 'src/intake/threads/thread.ts'],
  ...adapters.map((file) => `src/adapters/${file}`),
  'examples/agent-loop.ts',
];

rmSync(dist, { recursive: true, force: true });
declare();
// Files for CommonJS are written by hand.
cpSync(path.join(root, 'src'), path.join(dist, 'src'), {
  recursive: true,
  filter: (name) => !name.endsWith('.ts'),
});
writeFileSync(path.join(dist, 'THIRD-PARTY-LICENSES'), await bundleCode());
for (const encodesFailures of [false, true])
  writeFileSync(path.join(dist, bundleFile(encodesFailures)), await bundle(encodesFailures));

function declare(): void {
  const tsc = path.join(root, 'node_modules/typescript/bin/tsc');
  const { status } = spawnSync(process.execPath, [tsc, '-p', 'tsconfig.build.json'], {
    cwd: root,
    stdio: 'inherit',
  });
  if (status !== 0) process.exit(1);
}

/** Resolves to the licences of what is bundled in. */
async function bundleCode(): Promise<string> {
  const made = await rolldown({
    input: Object.fromEntries(entries.map((file) => [file.replace(/\.ts$/, ''), path.join(root, file)])),
    cwd: root,
    platform: 'node',
    resolve: { conditionNames: ['palimpsest-source', 'import', 'node'] },
    external: isOutside,
    onLog(_, { message }) {
      throw new Error(`The package cannot be built: ${message}`);
    },
  });
  const { output } = await made.write({
    ...{ dir: dist, format: 'es', sourcemap: true },
    ...{ entryFileNames: '[name].js', chunkFileNames: 'shared/[name]-[hash].js' },
  });
  await made.close();
  return licencesOf(output.filter((part) => part.type === 'chunk'));
}

function isOutside(id: string): boolean {
  if (id.startsWith('.') || id.startsWith('#') || path.isAbsolute(id)) return false;
  const name = packageOf(id);
  return id.startsWith('node:') || builtinModules.includes(name) || !inlined.includes(name);
}
