/** The HTTP client runs with Node alone: it loads only its own code. */
import { readFileSync } from 'node:fs';
import ts from 'typescript';
import { expect, test } from 'vitest';

const compilerOptions = {
  module: ts.ModuleKind.ESNext,
  target: ts.ScriptTarget.ES2022,
  verbatimModuleSyntax: true,
};

/** What a file imports once its types are erased. */
function importedBy(file: URL): string[] {
  const { outputText } = ts.transpileModule(readFileSync(file, 'utf8'), { compilerOptions });
  return ts.preProcessFile(outputText).importedFiles.map(({ fileName }) => fileName);
}

function packagesOf(file: URL, seen: Set<string>): string[] {
  if (seen.has(file.href)) return [];
  seen.add(file.href);
  return importedBy(file).flatMap((name) =>
    name.startsWith('.') ? packagesOf(new URL(name.replace(/\.js$/, '.ts'), file), seen) : [name],
  );
}

test('the HTTP client loads no package, zod included', () => {
  const seen = new Set<string>();
  const client = new URL('../../../src/http-client/client.ts', import.meta.url);
  expect(packagesOf(client, seen).filter((name) => !name.startsWith('node:'))).toEqual([]);
  expect(seen.size).toBeGreaterThan(5);
});
