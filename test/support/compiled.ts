/** The sources as JavaScript: a process that a test starts need not compile them, and takes a third of the time to start. */
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

/** A package like that of `npm run build`, together with the programs of tests. Files that are as new as their source stay. */
export function compileSources(folder: string, workflowBundle: string): void {
  for (const part of compiled)
    for (const entry of readdirSync(path.join(root, part), { recursive: true, withFileTypes: true })) {
      const source = path.join(entry.parentPath, entry.name);
      if (entry.isFile()) compile(source, path.join(folder, path.relative(root, source)));
    }
  replace(path.join(folder, 'src', 'workflow-bundle.js'), readFileSync(workflowBundle));
  // What `package.json` names lies in `dist`.
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

/** Whole at any moment: another run may read it. */
function replace(file: string, text: string | Buffer): void {
  const unfinished = `${file}.${process.pid}`;
  writeFileSync(unfinished, text);
  renameSync(unfinished, file);
}

/** Path of the compiled program, to be run by `node`. */
export const program = (source: `${string}.ts`): string =>
  path.join(inject('compiledSources'), source.replace(/\.ts$/, '.js'));
