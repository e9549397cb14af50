/** A checkout of any version of this project: what its users start and import. */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { z } from 'zod';

/** How its code is run. `built` is what users get; `source` needs no build, and starts more slowly. */
export type Form = 'built' | 'source';

export interface Checkout {
  folder: string;
  /** Its commit, with `+` if files differ from it. */
  version: string;
  form: Form;
  /** Arguments of Node before a script of this checkout. */
  nodeArguments: string[];
  /** Program of the command line. */
  cli: string;
  /** URLs of the modules `palimpsest` and `palimpsest/http`. */
  library: string;
  http: string;
  /** Whether its migrations can make database roles. */
  hasRoles: boolean;
}

export const typescriptLoader = import.meta.resolve('tsx');

const entry = z.looseObject({ default: z.string() });
const packageFile = z.looseObject({
  name: z.literal('palimpsest'),
  bin: z.looseObject({ palimpsest: z.string() }),
  exports: z.looseObject({ '.': entry, './http': entry }),
});

/** Throws with the next step if the folder cannot be measured. */
export function openCheckout(given: string, form: Form): Checkout {
  const folder = path.resolve(given);
  const { bin, exports } = packageOf(folder);
  const place = (built: string): string =>
    path.join(folder, form === 'built' ? built : built.replace('dist/', '').replace(/\.js$/, '.ts'));
  const cli = place(bin.palimpsest);
  if (form === 'built') refuseStale(folder, cli);
  const nodeArguments =
    form === 'built' ? [] : ['--conditions', 'palimpsest-source', '--import', typescriptLoader];
  const help = execFileSync(process.execPath, [...nodeArguments, cli, 'migrate', '--help'], {
    encoding: 'utf8',
  });
  return {
    ...{ folder, version: versionOf(folder), form, nodeArguments, cli },
    library: pathToFileURL(place(exports['.'].default)).href,
    http: pathToFileURL(place(exports['./http'].default)).href,
    hasRoles: help.includes('--roles'),
  };
}

/** The checkout that this file is part of. */
export const ownFolder = fileURLToPath(new URL('../..', import.meta.url));

function packageOf(folder: string): z.infer<typeof packageFile> {
  const file = path.join(folder, 'package.json');
  try {
    return packageFile.parse(JSON.parse(readFileSync(file, 'utf8')));
  } catch (cause) {
    throw new Error(`${file} is not the package file of a checkout of palimpsest.`, { cause });
  }
}

/** An old build would be measured in place of the checkout. */
function refuseStale(folder: string, program: string): void {
  const built = statSync(program, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const changed = ['src', 'activities', 'workflows'].flatMap((part) =>
    readdirSync(path.join(folder, part), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.ts'))
      .map((name) => statSync(path.join(folder, part, name)).mtimeMs),
  );
  if (built >= Math.max(...changed)) return;
  const state = built === 0 ? 'is not built' : 'is older in its build than in its sources';
  throw new Error(`${folder} ${state}. Run \`npm ci && npm run build\` in it, or give --source.`);
}

function versionOf(folder: string): string {
  const git = (...args: string[]) =>
    execFileSync('git', ['-C', folder, ...args], { encoding: 'utf8' }).trim();
  try {
    const changed = git('status', '--porcelain', '--untracked-files=no') !== '';
    return `${git('rev-parse', '--short', 'HEAD')}${changed ? '+' : ''}`;
  } catch {
    return 'no commit';
  }
}
