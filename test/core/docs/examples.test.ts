/** The TypeScript of README and docs compiles against what the package exports. */
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { beforeAll, describe, expect, test } from 'vitest';
import { document, documents, examplesIn } from '../../support/documents.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
interface Package {
  exports: Record<string, { 'palimpsest-source': string }>;
}

/** The sources of everything that the package exports. */
const packages = Object.fromEntries(
  Object.entries((JSON.parse(ts.sys.readFile(path.join(root, 'package.json')) ?? '') as Package).exports).map(
    ([name, { 'palimpsest-source': source }]) => [path.posix.join('palimpsest', name), [source]],
  ),
);

/** Compiler options of the sources, with the package's own names. */
function options(): ts.CompilerOptions {
  const text = ts.sys.readFile(path.join(root, 'tsconfig.json')) ?? '';
  const { config } = ts.parseConfigFileTextToJson('tsconfig.json', text) as {
    config: { compilerOptions: object };
  };
  const paths = { ...packages, ...clientPackage() };
  const named = { ...config.compilerOptions, paths, noUnusedLocals: false };
  return ts.convertCompilerOptionsFromJson(named, root).options;
}

/** The sources of `palimpsest-client`: it has every other export of the package. */
function clientPackage(): Record<string, string[]> {
  const others = Object.entries(packages).filter(([name]) => name !== 'palimpsest');
  return Object.fromEntries(
    others.map(([name, source]) => [name.replace(/^palimpsest(\/http$)?/, 'palimpsest-client'), source]),
  );
}

/** The compiler's errors for modules in the root of the repository, with their lines. */
function complaints(files: ReadonlyMap<string, string>): Map<string, string[]> {
  const host = ts.createCompilerHost(options());
  const { getSourceFile, fileExists, readFile } = host;
  host.getSourceFile = (file, language, ...rest) => {
    const text = files.get(file);
    return text === undefined
      ? getSourceFile.call(host, file, language, ...rest)
      : ts.createSourceFile(file, text, language);
  };
  host.fileExists = (file) => files.has(file) || fileExists.call(host, file);
  host.readFile = (file) => files.get(file) ?? readFile.call(host, file);
  const program = ts.createProgram([...files.keys()], options(), host);
  const complaintsOf = (file: string): string[] => {
    const source = program.getSourceFile(file);
    const found = [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)];
    return found.map(({ messageText, start = 0 }) => {
      const line = (source?.getLineAndCharacterOfPosition(start).line ?? 0) + 1;
      return `line ${line}: ${ts.flattenDiagnosticMessageText(messageText, '\n')}`;
    });
  };
  return new Map([...files.keys()].map((file) => [file, complaintsOf(file)]));
}

const inRoot = (name: string): string => path.posix.join(root, name);
const wrong = inRoot('wrong.ts');
const examples = documents.flatMap((file) =>
  examplesIn(document(file))
    .filter(({ language }) => language === 'ts')
    // A complaint has the line of the document.
    .map(({ code, line }) => [inRoot(`${file}.${line}.ts`), '\n'.repeat(line - 1) + code] as const),
);

describe('the TypeScript of README and docs', () => {
  let found: Map<string, string[]>;
  beforeAll(() => {
    const misspelt = "import { Palimpsest } from 'palimpsest';\nawait Palimpsest.conect({});\n";
    found = complaints(new Map([...examples, [wrong, misspelt]]));
  });

  test.each(examples.map(([file]) => [path.posix.relative(root, file), file]))('%s compiles', (_, file) =>
    expect(found.get(file)).toEqual([]),
  );

  test('would not compile if it called an unknown method', () => {
    expect(examples.length).toBeGreaterThan(5);
    expect(found.get(wrong)).toEqual([expect.stringMatching(/^line 2: Property 'conect' does not exist/)]);
  });
});
