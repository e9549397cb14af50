import os from 'node:os';
import path from 'node:path';

/**
 * The folder of files that all projects of a user share: `$PALIMPSEST_CACHE`, else below `$XDG_CACHE_HOME` or `~/.cache`.
 */
export function defaultCacheDir(env: NodeJS.ProcessEnv = process.env): string {
  if (env.PALIMPSEST_CACHE) return path.resolve(env.PALIMPSEST_CACHE);
  return path.join(env.XDG_CACHE_HOME || path.join(os.homedir(), '.cache'), 'palimpsest');
}
