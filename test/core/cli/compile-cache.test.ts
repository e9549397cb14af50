import os from 'node:os';
import { describe, expect, it, vi } from 'vitest';
import { keepCompiledCode } from '../../../src/cli/compile-cache.js';

const folder = '/home/ada/cache/compiled';
const own = { PALIMPSEST_CACHE: '/home/ada/cache' };

function keep(env: NodeJS.ProcessEnv, directory: string | undefined) {
  const asked: string[] = [];
  const enableCompileCache = (given: string) => {
    asked.push(given);
    return { directory };
  };
  keepCompiledCode(env, { enableCompileCache });
  return { asked, env };
}

describe('the cache of compiled code', () => {
  it("is below the product's cache folder, and threads and children find it", () => {
    expect(keep({ ...own }, folder)).toEqual({
      asked: [folder],
      env: { ...own, NODE_COMPILE_CACHE: folder },
    });
  });

  it('is where NODE_COMPILE_CACHE says', () => {
    const env = { ...own, NODE_COMPILE_CACHE: '/tmp/other' };
    expect(keep({ ...env }, '/tmp/other/v22').env).toEqual(env);
  });

  it('leaves the environment alone if the folder cannot be used or the cache is turned off', () => {
    expect(keep({ ...own }, undefined).env).toEqual(own);
  });

  it('does not exist for a user without a home', () => {
    const home = vi.spyOn(os, 'homedir').mockImplementation(() => {
      throw new Error('uv_os_homedir returned ENOENT');
    });
    expect(keep({}, folder)).toEqual({ asked: [], env: {} });
    home.mockRestore();
  });

  it('does not exist in a version of Node without one', () => {
    const env = { ...own };
    keepCompiledCode(env, {});
    expect(env).toEqual(own);
  });
});
