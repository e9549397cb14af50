/** A separate project on this machine, which installs packed tarballs and compiles its sources as users do. */
import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** `module`, `moduleResolution`, and the `type` of the project's package.json. */
export type ModuleSettings = readonly [module: string, resolution: string, type: string];

export const moduleSettings: ModuleSettings[] = [
  ['NodeNext', 'NodeNext', 'module'],
  ['NodeNext', 'NodeNext', 'commonjs'],
  ['ESNext', 'Bundler', 'module'],
  ['Node16', 'Node16', 'module'],
  ['Node16', 'Node16', 'commonjs'],
];

export const npmFlags = ['--prefer-offline', '--no-audit', '--no-fund'];

/** As in another shell: nothing that npm sets for this run, except where packages come from. */
const env = Object.fromEntries(
  Object.entries({ ...process.env, TEMPORAL_DEBUG: '' }).filter(
    ([name]) =>
      !/^(?:npm_(?!config_(?:registry|cafile|cache|userconfig|proxy|https_proxy)$)|DATABASE_URL|TEMPORAL_ADDRESS|PALIMPSEST_(?!CACHE)|OPENAI_|NODE_ENV|VITEST)/.test(
        name,
      ),
  ),
);

export interface Project {
  folder: string;
  run(command: string, ...args: string[]): Promise<{ stdout: string; stderr: string }>;
  /** Installs what `npm pack` makes of the package in the folder. Returns what npm says. */
  install(packed: string): Promise<string>;
  /** Returns the errors of `tsc` under `strict` for the files, which are written to a folder of this name. */
  compile(
    name: string,
    settings: ModuleSettings,
    files: Readonly<Record<string, string>>,
    options?: { skipLibCheck: boolean },
  ): Promise<string>;
  remove(): void;
}

export function newProject(): Project {
  const folder = mkdtempSync(path.join(tmpdir(), 'package-'));
  // PostgreSQL runs as another user where root starts it.
  chmodSync(folder, 0o755);
  writeFileSync(
    path.join(folder, 'package.json'),
    JSON.stringify({ name: 'shop', private: true, type: 'module' }),
  );
  const run = (command: string, ...args: string[]) =>
    promisify(execFile)(command, args, { cwd: folder, env, maxBuffer: 64 * 1024 * 1024 });
  return {
    folder,
    run,
    async install(packed) {
      const { stdout: tarball } = await run('npm', 'pack', packed, '--silent');
      const { stdout, stderr } = await run('npm', 'install', ...npmFlags, `./${tarball.trim()}`);
      return stdout + stderr;
    },
    async compile(name, [module, moduleResolution, type], files, { skipLibCheck } = { skipLibCheck: false }) {
      const sources = path.join(folder, `${name}-${module}-${type}`);
      mkdirSync(sources);
      const options = {
        noEmit: true,
        declaration: true,
        strict: true,
        target: 'ES2022',
        types: [],
        skipLibCheck,
      };
      const tsconfig = { compilerOptions: { ...options, module, moduleResolution } };
      for (const [file, text] of Object.entries({
        'package.json': JSON.stringify({ type }),
        'tsconfig.json': JSON.stringify(tsconfig),
        ...files,
      }))
        writeFileSync(path.join(sources, file), text);
      const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
      const { stdout } = await run(process.execPath, tsc, '-p', sources).catch(
        (error: { stdout: string }) => error,
      );
      return stdout;
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
