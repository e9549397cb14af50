import { expect, test, vi } from 'vitest';

vi.mock('string-width', () => {
  throw new Error('string-width was loaded');
});

test('a server starts without the widths of characters in a terminal, which take 27 ms of CPU time to load', async () => {
  await import('../../../src/cli/program.js');
  await import('../../../src/cli/servers/serve.js');
  await expect(import('../../../src/cli/terminal/table.js')).rejects.toThrow();
});
