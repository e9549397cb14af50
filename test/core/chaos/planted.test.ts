import { execFile } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = path.join(root, 'test/chaos/planted');
const patches = readdirSync(folder);

test('there are planted faults', () => {
  expect(patches.length).toBeGreaterThan(0);
});

test.each(patches)('the planted fault %s still applies to the sources', async (patch) => {
  await promisify(execFile)('git', ['apply', '--check', path.join(folder, patch)], { cwd: root });
});
