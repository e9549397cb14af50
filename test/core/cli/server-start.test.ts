import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { expect, test } from 'vitest';

const cli = fileURLToPath(new URL('../../../src/cli', import.meta.url));

/** Resolves to the packages that are loaded before a dynamic import. */
async function packagesOf(...files: string[]): Promise<string[]> {
  const external = (id: string) => !id.startsWith('.') && !path.isAbsolute(id);
  const bundle = await rolldown({ input: files.map((file) => path.join(cli, file)), external });
  const { output } = await bundle.generate();
  await bundle.close();
  const chunks = output.filter((part) => part.type === 'chunk');
  const found = new Set(chunks.filter(({ isEntry }) => isEntry).map(({ fileName }) => fileName));
  for (const name of found)
    for (const next of chunks.find(({ fileName }) => fileName === name)?.imports ?? []) found.add(next);
  return [...found];
}

test('a server starts without the widths of characters in a terminal, which take 27 ms of CPU time to load', async () => {
  expect(await packagesOf('terminal/table.ts')).toContain('string-width');
  expect(await packagesOf('program.ts', 'servers/serve.ts')).not.toContain('string-width');
});
