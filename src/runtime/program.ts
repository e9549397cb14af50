import { existsSync } from 'node:fs';
import path from 'node:path';

/**
 * The command that a user types here: `palimpsest` if it is on the PATH, else `npx palimpsest`; in a checkout of this package,
 * its npm script. Folders that npm adds to the PATH of its scripts do not count.
 */
export function programName(env: NodeJS.ProcessEnv = process.env): string {
  const script = env.npm_lifecycle_event ?? '';
  if (env.npm_package_name === 'palimpsest' && ['start', 'palimpsest'].includes(script))
    return 'npm run -s palimpsest --';
  const folders = (env.PATH ?? '').split(path.delimiter).filter((folder) => !folder.endsWith('.bin'));
  const names = ['palimpsest', 'palimpsest.cmd'];
  const isOnPath = folders.some((folder) => names.some((name) => existsSync(path.join(folder, name))));
  return isOnPath ? 'palimpsest' : 'npx palimpsest';
}
