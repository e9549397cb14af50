import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from '../runtime/home.js';
import { bundleWorkflowCode, type WorkflowBundleOption } from '@temporalio/worker';

/**
 * Returns the workflow code as one script: from the build if there is one, otherwise bundled from the sources (about 2 s) and
 * cached in `cacheDir` under a hash of all its inputs.
 */
export async function loadWorkflowBundle(cacheDir?: string): Promise<WorkflowBundleOption> {
  const built = fileURLToPath(new URL('../workflow-bundle.js', import.meta.url));
  if (existsSync(built)) return { codePath: built };
  if (cacheDir === undefined) return { code: await bundle() };

  const codePath = join(cacheDir, `workflows-${await sourceHash()}.js`);
  if (!existsSync(codePath)) {
    await mkdir(cacheDir, { recursive: true });
    const unfinished = `${codePath}.${process.pid}`;
    await writeFile(unfinished, await bundle());
    await rename(unfinished, codePath);
  }
  return { codePath };
}

/** Bundles the workflows next to this file, from sources or compiled code. */
export async function bundle(): Promise<string> {
  const silent = () => undefined;
  const logger = { log: silent, trace: silent, debug: silent, info: silent, warn: silent, error: silent };
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const workflowsPath = fileURLToPath(new URL(`../../workflows/index.${extension}`, import.meta.url));
  const { code } = await bundleWorkflowCode({ workflowsPath, logger });
  return code;
}

async function sourceHash(): Promise<string> {
  const root = packageRoot();
  const hash = createHash('sha256').update(await readFile(join(root, 'package.json')));
  for (const folder of ['workflows', 'src', 'activities']) {
    const names = (await readdir(join(root, folder), { recursive: true })).filter((name) =>
      name.endsWith('.ts'),
    );
    for (const name of names.sort()) hash.update(name).update(await readFile(join(root, folder, name)));
  }
  return hash.digest('hex').slice(0, 16);
}
