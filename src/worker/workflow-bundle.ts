import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { PayloadKey } from '../config/payload-keys.js';
import { builtFile, packageRoot } from '../runtime/home.js';
import { failureConverterPath } from '../temporal/payload-codec.js';
import type { WorkflowBundleOption } from '@temporalio/worker';

/**
 * Returns the workflow code as one script: from the build if there is one, otherwise bundled from the sources (about 2 s) and
 * cached in `cacheDir` under a hash of all its inputs. There is one bundle for deployments with payload keys, and one without.
 */
export async function loadWorkflowBundle(
  { payloadKeys = [] }: { payloadKeys?: readonly PayloadKey[] } = {},
  cacheDir?: string,
): Promise<WorkflowBundleOption> {
  const encodesFailures = payloadKeys.length > 0;
  const built = builtFile(bundleFile(encodesFailures));
  if (built !== null && existsSync(built)) return { codePath: built };
  if (cacheDir === undefined) return { code: await bundle(encodesFailures) };

  const codePath = join(cacheDir, `${bundleName(encodesFailures)}-${await sourceHash()}.js`);
  if (!existsSync(codePath)) {
    await mkdir(cacheDir, { recursive: true });
    const unfinished = `${codePath}.${process.pid}`;
    await writeFile(unfinished, await bundle(encodesFailures));
    await rename(unfinished, codePath);
  }
  return { codePath };
}

const bundleName = (encodesFailures: boolean) =>
  encodesFailures ? 'workflow-bundle-encoded' : 'workflow-bundle';

/** Name of the file in the folder of the build. */
export const bundleFile = (encodesFailures: boolean): string => `${bundleName(encodesFailures)}.js`;

/**
 * Bundles the workflows, from sources or compiled code. `encodesFailures`: the messages of failures are put into
 * payloads, for the codec to encrypt.
 */
export async function bundle(encodesFailures: boolean): Promise<string> {
  const { bundleWorkflowCode } = await import('@temporalio/worker');
  const silent = () => undefined;
  const logger = { log: silent, trace: silent, debug: silent, info: silent, warn: silent, error: silent };
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  const workflowsPath = join(packageRoot(), 'workflows', `index.${extension}`);
  const { code } = await bundleWorkflowCode({
    ...{ workflowsPath, logger },
    ...(encodesFailures ? { failureConverterPath: failureConverterPath() } : {}),
    // Stack traces need no text of the sources, and every thread would keep it.
    webpackConfigHook: (options) => ({ ...options, devtool: 'inline-nosources-source-map' }),
  });
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
