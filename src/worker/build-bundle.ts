/** Build step: writes the workflow bundle next to the compiled sources, so that workers start without a bundler. */
import { writeFile } from 'node:fs/promises';
import { builtBundle, bundle } from './workflow-bundle.js';

for (const encodesFailures of [false, true])
  await writeFile(builtBundle(encodesFailures), await bundle(encodesFailures));
