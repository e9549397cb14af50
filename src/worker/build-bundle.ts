/** Build step: writes the workflow bundle next to the compiled sources, so that workers start without a bundler. */
import { writeFile } from 'node:fs/promises';
import { bundle } from './workflow-bundle.js';

await writeFile(new URL('../workflow-bundle.js', import.meta.url), await bundle());
