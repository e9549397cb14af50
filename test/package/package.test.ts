/**
 * The result of `npm pack`, installed in a separate project: it compiles, loads and runs there. Needs `npm run build` and a
 * registry.
 */
import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { leashServers } from '../support/leash.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const app = mkdtempSync(path.join(tmpdir(), 'package-'));
// PostgreSQL runs as another user where root starts it.
chmodSync(app, 0o755);
const installed = path.join(app, 'node_modules', 'palimpsest');
const dataDir = leashServers(path.join(app, '.palimpsest'));
let said: string;

const { devDependencies: frameworks } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
  devDependencies: Record<string, string>;
};

/** As in another shell: nothing that npm sets for this run, except where packages come from. */
const env = Object.fromEntries(
  Object.entries({ ...process.env, TEMPORAL_DEBUG: '' }).filter(
    ([name]) =>
      !/^(?:npm_(?!config_(?:registry|cafile|cache|userconfig|proxy|https_proxy)$)|DATABASE_URL|TEMPORAL_ADDRESS|PALIMPSEST_(?!CACHE)|OPENAI_|NODE_ENV|VITEST)/.test(
        name,
      ),
  ),
);

async function run(command: string, ...args: string[]): Promise<{ stdout: string; stderr: string }> {
  return promisify(execFile)(command, args, { cwd: app, env, maxBuffer: 64 * 1024 * 1024 });
}

beforeAll(async () => {
  const packed = await promisify(execFile)('npm', ['pack', '--silent', '--pack-destination', app], {
    cwd: root,
    env,
  });
  writeFileSync(
    path.join(app, 'package.json'),
    JSON.stringify({ name: 'shop', private: true, type: 'module' }),
  );
  const install = await run(
    ...(['npm', 'install', '--prefer-offline', '--no-audit', '--no-fund'] as const),
    `./${packed.stdout.trim()}`,
  );
  said = install.stdout + install.stderr;
  // Frameworks are optional: users of their entry points have them.
  await run(
    'npm',
    'install',
    '--prefer-offline',
    '--no-audit',
    '--no-fund',
    `@openai/agents@${frameworks['@openai/agents']}`,
  );
});

afterAll(() => rmSync(app, { recursive: true, force: true }));

it('installs without a complaint about this Node', () => {
  expect(said).toMatch(/added \d+ packages/);
  expect(said).not.toContain('EBADENGINE');
});

const consumerOf = (name: string, client: string, connect: string): string => `
    import { ${client}, isFailure, PalimpsestError, recoveryTools, type PalimpsestClient, type Turn } from '${name}';
    export async function main(): Promise<number> {
      const connected: ${client} = await ${connect};
      const client: PalimpsestClient = connected;
      const turn: Turn = { session: 's', turnId: 't', messages: [{ role: 'user', content: 'Hello' }] };
      await client.appendTurn(turn);
      const error: unknown = new PalimpsestError('Input.Invalid', 'x');
      const { messages } = await client.context({ session: 's' });
      return isFailure(error) ? messages.length : recoveryTools.length;
    }`;

const entries = [
  {
    name: 'palimpsest',
    file: 'index',
    consumer: consumerOf('palimpsest', 'Palimpsest', `Palimpsest.connect({ tenant: 'acme' })`),
    // Temporal's declarations want those of other packages.
    skipLibCheck: true,
  },
  {
    name: 'palimpsest/http',
    file: 'http',
    consumer: consumerOf(
      'palimpsest/http',
      'HttpPalimpsest',
      `HttpPalimpsest.connect({ url: 'http://127.0.0.1:7280' })`,
    ),
    skipLibCheck: false,
  },
  {
    name: 'palimpsest/openai-agents',
    file: 'openai-agents',
    consumer: `
      import type { CallModelInputFilter, Session } from '@openai/agents';
      import { PalimpsestSession } from 'palimpsest/openai-agents';
      import type { PalimpsestClient } from 'palimpsest/http';
      export function opened(client: PalimpsestClient): [Session, CallModelInputFilter] {
        const session: PalimpsestSession = new PalimpsestSession({ client, session: 's' });
        return [session, session.callModelInputFilter];
      }`,
    // As for the SDK itself.
    skipLibCheck: true,
  },
  {
    name: 'palimpsest/mastra',
    file: 'mastra',
    consumer: `
      import { palimpsestMemory, PalimpsestProcessor } from 'palimpsest/mastra';
      import type { PalimpsestClient } from 'palimpsest/http';
      export function processors(client: PalimpsestClient): PalimpsestProcessor[] {
        return [...palimpsestMemory({ client }).inputProcessors, new PalimpsestProcessor({ client, session: 's' })];
      }`,
    skipLibCheck: false,
  },
];

describe.each(entries)('$name', ({ name, file, consumer, skipLibCheck }) => {
  it.each([
    ['NodeNext', 'NodeNext', 'module'],
    ['NodeNext', 'NodeNext', 'commonjs'],
    ['ESNext', 'Bundler', 'module'],
    ['Node16', 'Node16', 'module'],
    ['Node16', 'Node16', 'commonjs'],
  ])('compiles under strict: %s, %s, %s', async (module, moduleResolution, type) => {
    const folder = path.join(app, `${file}-${module}-${type}`);
    mkdirSync(folder);
    const options = { noEmit: true, strict: true, target: 'ES2022', types: [], skipLibCheck };
    writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ type }));
    writeFileSync(
      path.join(folder, 'tsconfig.json'),
      JSON.stringify({ compilerOptions: { ...options, module, moduleResolution } }),
    );
    writeFileSync(path.join(folder, 'consumer.ts'), consumer);
    const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
    const { stdout } = await run(process.execPath, tsc, '-p', folder).catch(
      (error: { stdout: string }) => error,
    );
    expect(stdout).toBe('');
  });

  it('is the same for import and require', async () => {
    const script = `
      import { createRequire } from 'node:module';
      const imported = await import('${name}');
      const required = createRequire(import.meta.url)('${name}');
      console.log(JSON.stringify(Object.keys(imported).map((name) => [name, imported[name] === required[name]])));`;
    writeFileSync(path.join(app, `${file}.mjs`), script);
    const { stdout } = await run(process.execPath, `${file}.mjs`);
    const values = JSON.parse(stdout) as [string, boolean][];
    expect(values.filter(([, same]) => !same)).toEqual([]);
    const declared = readFileSync(path.join(installed, 'cjs', `${file}.d.cts`), 'utf8');
    expect(values.map(([value]) => value)).toEqual(
      [...declared.matchAll(/declare const (\w+)/g)].map(([, value]) => value).sort(),
    );
  });
});

it('palimpsest/http has types that need no package but zod', () => {
  const reached = (file: string, seen = new Set<string>()): Set<string> => {
    if (seen.has(file)) return seen;
    seen.add(file);
    for (const [, name = ''] of readFileSync(file, 'utf8').matchAll(/(?:from |import\()['"]([^'"]+)['"]/g))
      if (name.startsWith('.')) reached(path.join(path.dirname(file), name.replace(/\.js$/, '.d.ts')), seen);
      else seen.add(name);
    return seen;
  };
  const types = reached(path.join(installed, 'dist', 'src', 'http-client', 'index.d.ts'));
  expect([...types].filter((name) => !name.startsWith('/'))).toEqual(['zod']);
});

it('has the sources in its source maps', () => {
  const maps = readdirSync(path.join(installed, 'dist'), { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.js.map'),
  );
  const empty = maps.filter((name) => {
    const map: { sourcesContent?: unknown[] } = JSON.parse(
      readFileSync(path.join(installed, 'dist', name), 'utf8'),
    );
    return !map.sourcesContent?.length;
  });
  expect(maps.length).toBeGreaterThan(100);
  expect(empty).toEqual([]);
});

it('plays the bundled session, and the example of an agent', async () => {
  const { stdout } = await run(path.join(app, 'node_modules', '.bin', 'palimpsest'), 'dev', '--once');
  expect(stdout).toMatch(/^PostgreSQL .*embedded/m);
  expect(stdout).toMatch(/^stopped in /m);
  expect(readFileSync(path.join(dataDir, '.gitignore'), 'utf8')).toBe('*\n');
  const example = path.join(installed, 'examples', 'agent-loop.ts');
  const played = await run(process.execPath, '--import', 'tsx', example, '--turns', '20');
  expect(played.stdout).toMatch(/20 turns.* 0 refused .* 0 differ/);
});
