/**
 * The package `palimpsest-client`, installed in a separate project: it is small, has the types of `palimpsest/http`, and plays a
 * session. Needs `npm run build` and `npm run build:client`.
 */
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type ApiStack, startApiStack } from '../support/api.js';
import { asJavaScript, document, examplesIn } from '../support/documents.js';
import { type ModuleSettings, moduleSettings, newProject } from '../support/project.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const app = newProject();
const modules = path.join(app.folder, 'node_modules');
const installed = path.join(modules, 'palimpsest-client');
const built = path.join(root, 'packages', 'client', 'dist');

interface Manifest {
  version: string;
  license: string;
  exports: Record<string, unknown>;
  peerDependencies?: Record<string, string>;
  peerDependenciesMeta?: Record<string, { optional: boolean }>;
}
const manifestIn = (folder: string): Manifest =>
  JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8')) as Manifest;
const filesIn = (folder: string): string[] => readdirSync(folder, { recursive: true, encoding: 'utf8' });

const esModule: ModuleSettings = ['NodeNext', 'NodeNext', 'module'];

const readme =
  examplesIn(document('packages/client/README.md')).find(({ language }) => language === 'ts')?.code ?? '';
const consumer = `
  import {
    callRecoveryTool, HttpPalimpsest, isFailure, PalimpsestError, recoveryTools, type PalimpsestClient, type Synced, type Turn,
  } from 'palimpsest-client';
  // Its declaration has inferred types.
  export const synchronized = (client: PalimpsestClient) => client.sync({ session: 's', messages: [] });
  export async function main(): Promise<string> {
    const connected: HttpPalimpsest = await HttpPalimpsest.connect({ url: 'http://127.0.0.1:7280' });
    const client: PalimpsestClient = connected;
    const turn: Turn = { session: 's', turnId: 't', messages: [{ role: 'user', content: 'Hello' }] };
    const { throughSeq } = await client.appendTurn(turn);
    // @ts-expect-error It is a number.
    const text: string = throughSeq;
    // @ts-expect-error There is no such method.
    client.append;
    const synced: Synced<{ role: string }> = await client.sync<{ role: string }>({ session: 's', messages: [], onEdit: 'fork' });
    const roles: string[] = synced.context.messages.map(({ role }) => role);
    const error: unknown = new PalimpsestError('Input.Invalid', text);
    const [tool] = recoveryTools;
    return isFailure(error) ? roles.join() : callRecoveryTool(client, 's', tool!.function.name, {});
  }`;

beforeAll(() => app.install(built));

afterAll(() => app.remove());

describe('the installed package', () => {
  it('has at most 10 packages and 5 MB', () => {
    const names = Object.keys(
      (JSON.parse(readFileSync(path.join(modules, '.package-lock.json'), 'utf8')) as { packages: object })
        .packages,
    );
    const bytes = filesIn(modules).reduce((sum, name) => sum + lstatSync(path.join(modules, name)).size, 0);
    console.log(`palimpsest-client: ${names.length} package, ${bytes} bytes`);
    expect(names.length).toBeLessThanOrEqual(10);
    expect(bytes).toBeLessThanOrEqual(5_000_000);
  });

  it('has the version and the licence of palimpsest', () => {
    const { version, license } = manifestIn(root);
    expect(manifestIn(installed)).toMatchObject({ version, license });
    expect(readFileSync(path.join(installed, 'LICENSE'), 'utf8')).toBe(document('LICENSE'));
  });

  it('has the licence of everything that is bundled in', () => {
    const code = filesIn(installed)
      .filter((name) => /\.c?js$/.test(name))
      .map((name) => readFileSync(path.join(installed, name), 'utf8'))
      .join('\n');
    const bundled = new Set(
      [...code.matchAll(/^\/\/ .*node_modules\/((?:@[^/]+\/)?[^/]+)/gm)].map(([, name]) => name),
    );
    const licences = readFileSync(path.join(installed, 'THIRD-PARTY-LICENSES'), 'utf8');
    expect([...bundled]).toEqual(['zod']);
    expect(licences).toMatch(/^zod [\d.]+ \(MIT\)\n\nMIT License\n\nCopyright/);
  });

  it('has a short README', () => {
    const lines = readFileSync(path.join(installed, 'README.md'), 'utf8').trimEnd().split('\n').length;
    expect(lines).toBeGreaterThanOrEqual(10);
    expect(lines).toBeLessThanOrEqual(20);
  });
});

describe('its types', () => {
  it.each(moduleSettings)('compile under strict: %s, %s, %s', async (...settings) => {
    const [, , type] = settings;
    // CommonJS has no `await` outside of functions.
    const files = { 'consumer.ts': consumer, ...(type === 'module' ? { 'readme.ts': readme } : {}) };
    expect(await app.compile('client', settings, files)).toBe('');
  });

  it('are those of palimpsest/http', async () => {
    const text = comparison();
    expect(text.match(/^same</gm)?.length).toBeGreaterThan(80);
    expect(await app.compile('same', esModule, { 'same.ts': text })).toBe('');
    const others = text.replace(
      'same<client.Turn, http.Turn>',
      'same<client.Turn, http.Turn & { at: string }>',
    );
    expect(await app.compile('others', esModule, { 'same.ts': others })).toMatch(
      /^\S*same\.ts\(\d+,\d+\): error TS2345: Argument of type 'true' [^\n]*\n$/,
    );
  });
});

/**
 * A program that compiles only if both packages have the same exports with identical types, which is more than that each can be
 * assigned to the other: `any` is identical to itself only.
 */
function comparison(): string {
  const http = path.join(root, 'dist', 'src', 'http-client', 'index');
  const [own, theirs] = [exportsOf(path.join(installed, 'index.d.ts')), exportsOf(`${http}.d.ts`)];
  expect([...own.keys()].sort()).toEqual([...theirs.keys()].sort());
  const compared = [...theirs].map(([name, { flags, declarations = [] }]) => {
    const [declaration] = declarations;
    const both = (typeIn: (module: string) => string) =>
      `same<${typeIn('client')}, ${typeIn('http')}>(true);`;
    // Two classes with private fields are never the same.
    if (flags & ts.SymbolFlags.Class) return both((module) => `Public<${module}.${name}>`);
    if (!(flags & ts.SymbolFlags.Type)) return both((module) => `typeof ${module}.${name}`);
    const parameters =
      declaration && (ts.isTypeAliasDeclaration(declaration) || ts.isInterfaceDeclaration(declaration))
        ? (declaration.typeParameters ?? [])
        : [];
    const given = parameters.map(({ constraint, name: { text } }) => constraint?.getText() ?? `'${text}'`);
    return both((module) => `${module}.${name}${given.length === 0 ? '' : `<${given.join(', ')}>`}`);
  });
  return [
    "import type * as client from 'palimpsest-client';",
    `import type * as http from '${http}.js';`,
    `import type { PalimpsestClient } from '${http}.js';`,
    'type Public<Type> = { [Field in keyof Type]: Type[Field] };',
    'type Same<A, B> =',
    '  (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;',
    'declare function same<A, B>(are: Same<A, B>): void;',
    ...compared,
    ...['HttpPalimpsest.connect', 'PalimpsestError'].map((name) => {
      const given = name === 'PalimpsestError' ? 'ConstructorParameters' : 'Parameters';
      return `same<${given}<typeof client.${name}>, ${given}<typeof http.${name}>>(true);`;
    }),
  ].join('\n');
}

function exportsOf(file: string): Map<string, ts.Symbol> {
  const options = { module: ts.ModuleKind.NodeNext, target: ts.ScriptTarget.ES2022, strict: true, types: [] };
  const program = ts.createProgram([file], options);
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(file);
  const module = source && checker.getSymbolAtLocation(source);
  if (!module) throw new Error(`${file} exports nothing`);
  return new Map(
    checker
      .getExportsOfModule(module)
      .map((symbol) => [
        symbol.name,
        symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol,
      ]),
  );
}

describe('a session over the API', () => {
  let server: ApiStack;
  beforeAll(async () => {
    server = await startApiStack();
  });
  afterAll(() => server.stop());

  const main = `
    async function main(url, token, session) {
      const palimpsest = await HttpPalimpsest.connect({ url, token });
      const question = { role: 'user', content: 'Why is invoice INV-4711 wrong?' };
      const answer = { role: 'assistant', content: 'Position 12 was billed twice.' };
      const appended = await palimpsest.appendTurn({ session, turnId: 't-1', messages: [question] });
      const { known, stored } = await palimpsest.sync({ session, messages: [question, answer] });
      const { messages } = await palimpsest.context({ session });
      const { hits } = await palimpsest.search({ session, query: 'INV-4711' });
      const recovered = await callRecoveryTool(palimpsest, session, 'expand_history', { limit: '1' });
      const failure = await palimpsest.status({ session: 'none' }).catch((error) => error);
      const typed = isFailure(failure, 'Store.SessionNotFound') && failure instanceof PalimpsestError;
      console.log(JSON.stringify({ appended, known, stored, messages, hits, recovered, typed }));
    }
    main(...process.argv.slice(2));`;
  const names = 'callRecoveryTool, HttpPalimpsest, isFailure, PalimpsestError';

  it.each([
    ['play.mjs', `import { ${names} } from 'palimpsest-client';`],
    ['play.cjs', `const { ${names} } = require('palimpsest-client');`],
  ])('%s appends, synchronizes, reads and searches', async (file, load) => {
    writeFileSync(path.join(app.folder, file), load + main);
    const { stdout } = await app.run(process.execPath, file, server.api.address, server.token, file);
    expect(JSON.parse(stdout)).toEqual({
      appended: expect.objectContaining({ fromSeq: 1, throughSeq: 1 }),
      known: 1,
      stored: expect.objectContaining({ fromSeq: 2, throughSeq: 2 }),
      messages: [
        { role: 'user', content: 'Why is invoice INV-4711 wrong?' },
        { role: 'assistant', content: 'Position 12 was billed twice.' },
      ],
      hits: [expect.objectContaining({ seq: 1 })],
      recovered: expect.stringMatching(/^\{"error":"limit: /),
      typed: true,
    });
  });

  it('knows failures of another copy of the client', async () => {
    const script = `
      import { createRequire } from 'node:module';
      import * as imported from 'palimpsest-client';
      const required = createRequire(import.meta.url)('palimpsest-client');
      const busy = new required.PalimpsestError('Store.Busy', 'busy');
      const known = ['Store.Busy', 'Store.Corrupt', undefined].map((type) => imported.isFailure(busy, type));
      const others = [new Error('busy'), { ...busy }, null].map((other) => imported.isFailure(other));
      console.log(JSON.stringify({ copies: busy instanceof imported.PalimpsestError ? 1 : 2, known, others }));`;
    writeFileSync(path.join(app.folder, 'failures.mjs'), script);
    const { stdout } = await app.run(process.execPath, 'failures.mjs');
    expect(JSON.parse(stdout)).toEqual({
      copies: 2,
      known: [true, false, true],
      others: [false, false, false],
    });
  });

  it('runs the lines of README', async () => {
    const { address } = server.api;
    const connected = readme.replace(/url: '[^']*'/, `url: '${address}', token: '${server.token}'`);
    writeFileSync(path.join(app.folder, 'readme.mjs'), asJavaScript(connected));
    const { stdout } = await app.run(process.execPath, 'readme.mjs');
    expect(stdout).toBe("[ { role: 'user', content: 'Why is invoice INV-4711 wrong?' } ]\n");
  });
});

describe('its adapters', () => {
  const { exports, peerDependencies = {} } = manifestIn(built);
  const adapters = Object.keys(exports).flatMap((name) => (name === '.' ? [] : [name.slice(2)]));
  /** The client beside the frameworks that this repository has. */
  const folder = path.join(app.folder, 'frameworks');

  beforeAll(() => {
    cpSync(built, path.join(folder, 'node_modules', 'palimpsest-client'), { recursive: true });
    // `@mastra/core` is not installed here: its adapter imports nothing of it.
    for (const name of Object.keys(peerDependencies).filter((each) =>
      existsSync(path.join(root, 'node_modules', each)),
    )) {
      const link = path.join(folder, 'node_modules', name);
      mkdirSync(path.dirname(link), { recursive: true });
      symlinkSync(path.join(root, 'node_modules', name), link);
    }
  });

  it('have their frameworks as optional peers', () => {
    const { peerDependenciesMeta = {} } = manifestIn(built);
    const frameworks = ['@langchain/core', '@mastra/core', '@openai/agents', 'ai', 'langchain'];
    expect(Object.keys(peerDependencies)).toEqual(frameworks);
    for (const name of frameworks) expect(peerDependenciesMeta[name]).toEqual({ optional: true });
  });

  it('are those of palimpsest', () => {
    const sources = Object.entries(manifestIn(root).exports).flatMap(([name, conditions]) =>
      JSON.stringify(conditions).includes('"./src/adapters/') ? [name.slice(2)] : [],
    );
    expect(adapters).toEqual(sources);
  });

  // The declarations of the frameworks take long, and other settings find the same files.
  const [esModules, , , , oldCommonJs] = moduleSettings;
  it.each([esModules!, oldCommonJs!])('have types without errors: %s, %s, %s', async (...settings) => {
    const imports = adapters.map((name, index) => `import * as a${index} from 'palimpsest-client/${name}';`);
    const uses = adapters.map((_, index) => `export const b${index} = a${index};`);
    const files = { 'adapters.ts': [...imports, ...uses, 'export {};'].join('\n') };
    const errors = await app.compile('frameworks/adapters', settings, files);
    // Declarations of frameworks have errors of their own.
    expect(errors.split('\n').filter((line) => /palimpsest-client|adapters\.ts/.test(line))).toEqual([]);
  });

  it('load with import and require', async () => {
    const script = `
      import { createRequire } from 'node:module';
      const require = createRequire(import.meta.url);
      for (const name of ${JSON.stringify(adapters)}) {
        const imported = Object.keys(await import('palimpsest-client/' + name)).filter((key) => key !== 'module.exports');
        const required = Object.keys(require('palimpsest-client/' + name));
        if (imported.length === 0 || imported.sort().join() !== required.sort().join()) throw new Error(name);
      }`;
    writeFileSync(path.join(folder, 'load.mjs'), script);
    expect(await app.run(process.execPath, path.join(folder, 'load.mjs'))).toMatchObject({ stderr: '' });
  });
});
