/** A killed test process leaves no process that it has started. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { findProcess, hasEnded, type ProcessId } from '../../../src/runtime/process.js';
import { leashed } from '../../support/leash.js';

test('a leashed process ends after kill -9 of its parent', async () => {
  const script = `
    import { spawn } from 'node:child_process';
    import { leashed } from './test/support/leash.ts';
    const child = leashed(spawn('sleep', ['600'], { stdio: 'ignore' }));
    console.log(child.pid);
    setInterval(() => {}, 1_000);`;
  const holder = leashed(
    spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', script], {
      cwd: fileURLToPath(new URL('../../..', import.meta.url)),
      stdio: ['ignore', 'pipe', 'inherit'],
    }),
  );
  const [pid] = (await once(createInterface({ input: holder.stdout }), 'line')) as [string];
  const left: ProcessId | null = findProcess(Number(pid));
  expect(left).not.toBeNull();
  holder.kill('SIGKILL');
  expect(await hasEnded(left!, 60_000)).toBe(true);
});
