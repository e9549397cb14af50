import module from 'node:module';
import path from 'node:path';
import { defaultCacheDir } from '../runtime/cache-dir.js';

/** Of `node:module` since Node 22.1. Returns no folder if there is no cache, such as below a folder that is read-only. */
interface Node {
  enableCompileCache?: (folder: string) => { directory?: string };
}

/**
 * Keeps the compiled form of each loaded module for the next start, if this version of Node can. Threads and child processes find
 * the cache by the environment. NODE_COMPILE_CACHE names another folder; NODE_DISABLE_COMPILE_CACHE turns the cache off.
 */
export function keepCompiledCode(env: NodeJS.ProcessEnv = process.env, node = module as Node): void {
  if (node.enableCompileCache === undefined) return;
  const folder = folderOf(env);
  if (folder !== null && node.enableCompileCache(folder).directory !== undefined)
    env.NODE_COMPILE_CACHE ??= folder;
}

/** Null for a user without a home. */
function folderOf(env: NodeJS.ProcessEnv): string | null {
  try {
    return path.join(defaultCacheDir(env), 'compiled');
  } catch {
    return null;
  }
}
