/**
 * Compiles the sources to JavaScript, so that a process that a test starts need not compile them. Such a process starts in a
 * third of the time.
 */
import { existsSync, statSync, symlinkSync } from 'node:fs';
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { inject } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));
const compiled = ['src', 'workflows', 'activities', 'examples', 'test/support'];
const linked = ['node_modules', 'migrations', 'package.json'];
const compilerOptions: ts.CompilerOptions = {
  module: ts.ModuleKind.ESNext,
  target: ts.ScriptTarget.ES2022,
  verbatimModuleSyntax: true,
  inlineSourceMap: true,
};

/**
 * Writes a package like that of `npm run build`, together with the programs of tests. A file that is not older than its source
 * stays. The event loop is free between two files: a setup that connects to servers meanwhile would run into its time-outs.
 */
export async function compileSources(folder: string, workflowBundle: string): Promise<void> {
  for (const part of compiled)
    for (const entry of await readdir(path.join(root, part), { recursive: true, withFileTypes: true })) {
      const source = path.join(entry.parentPath, entry.name);
      if (entry.isFile()) await compile(source, path.join(folder, path.relative(root, source)));
    }
  await replace(path.join(folder, 'workflow-bundle.js'), await readFile(workflowBundle));
  // `package.json` names files in `dist`.
  if (!existsSync(path.join(folder, 'dist'))) symlinkSync('.', path.join(folder, 'dist'));
  for (const name of linked)
    if (!existsSync(path.join(folder, name))) symlinkSync(path.join(root, name), path.join(folder, name));
}

async function compile(source: string, copy: string): Promise<void> {
  const target = copy.replace(/\.ts$/, '.js');
  if (existsSync(target) && statSync(target).mtimeMs >= statSync(source).mtimeMs) return;
  await mkdir(path.dirname(target), { recursive: true });
  const text = await readFile(source);
  const transpiled = () => ts.transpileModule(text.toString(), { compilerOptions, fileName: source });
  await replace(target, source.endsWith('.ts') ? transpiled().outputText : text);
}

/** Replaces a file in one step, because another run may read it at any moment. */
async function replace(file: string, text: string | Buffer): Promise<void> {
  const unfinished = `${file}.${process.pid}`;
  await writeFile(unfinished, text);
  await rename(unfinished, file);
}

/** Returns the path of a compiled program, for `node`. */
export const program = (source: `${string}.ts`): string =>
  path.join(inject('compiledSources'), source.replace(/\.ts$/, '.js'));
