/**
 * Compiles the sources to JavaScript, so that a process that a test starts need not compile them. Such a process starts in a
 * third of the time.
 */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
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
 * stays.
 */
export function compileSources(folder: string, workflowBundle: string): void {
  for (const part of compiled)
    for (const entry of readdirSync(path.join(root, part), { recursive: true, withFileTypes: true })) {
      const source = path.join(entry.parentPath, entry.name);
      if (entry.isFile()) compile(source, path.join(folder, path.relative(root, source)));
    }
  replace(path.join(folder, 'workflow-bundle.js'), readFileSync(workflowBundle));
  // `package.json` names files in `dist`.
  if (!existsSync(path.join(folder, 'dist'))) symlinkSync('.', path.join(folder, 'dist'));
  for (const name of linked)
    if (!existsSync(path.join(folder, name))) symlinkSync(path.join(root, name), path.join(folder, name));
}

function compile(source: string, copy: string): void {
  const target = copy.replace(/\.ts$/, '.js');
  if (existsSync(target) && statSync(target).mtimeMs >= statSync(source).mtimeMs) return;
  mkdirSync(path.dirname(target), { recursive: true });
  const text = readFileSync(source);
  const transpiled = () => ts.transpileModule(text.toString(), { compilerOptions, fileName: source });
  replace(target, source.endsWith('.ts') ? transpiled().outputText : text);
}

/** Replaces a file in one step, because another run may read it at any moment. */
function replace(file: string, text: string | Buffer): void {
  const unfinished = `${file}.${process.pid}`;
  writeFileSync(unfinished, text);
  renameSync(unfinished, file);
}

/** Returns the path of a compiled program, for `node`. */
export const program = (source: `${string}.ts`): string =>
  path.join(inject('compiledSources'), source.replace(/\.ts$/, '.js'));
