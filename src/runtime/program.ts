import { existsSync } from 'node:fs';
import path from 'node:path';

/**
 * How a user types a command here: `palimpsest` where the PATH has it for every project, else `npx palimpsest`; in a checkout
 * of this package, its own script. What npm itself puts on the PATH of its scripts is on nobody's PATH afterwards.
 */
export function programName(env: NodeJS.ProcessEnv = process.env): string {
  const script = env.npm_lifecycle_event ?? '';
  if (env.npm_package_name === 'palimpsest' && ['start', 'palimpsest'].includes(script))
    return 'npm run -s palimpsest --';
  const folders = (env.PATH ?? '').split(path.delimiter).filter((folder) => !folder.endsWith('.bin'));
  const names = ['palimpsest', 'palimpsest.cmd'];
  const everywhere = folders.some((folder) => names.some((name) => existsSync(path.join(folder, name))));
  return everywhere ? 'palimpsest' : 'npx palimpsest';
}
