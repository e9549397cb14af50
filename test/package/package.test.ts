/**
 * The result of `npm pack`, installed in a separate project: it compiles, loads and runs there. Needs `npm run build` and a
 * registry.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { leashServers } from '../support/leash.js';
import { moduleSettings, newProject, npmFlags } from '../support/project.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const app = newProject();
const installed = path.join(app.folder, 'node_modules', 'palimpsest');
const dataDir = leashServers(path.join(app.folder, '.palimpsest'));
let said: string;

const { devDependencies: frameworks } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as {
  devDependencies: Record<string, string>;
};

beforeAll(async () => {
  said = await app.install(root);
  // Frameworks are optional: users of their entry points have them.
  const used = ['@openai/agents', 'langchain', '@langchain/core', 'ai'];
  await app.run('npm', 'install', ...npmFlags, ...used.map((name) => `${name}@${frameworks[name]}`));
});

afterAll(() => app.remove());

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
  {
    name: 'palimpsest/langchain',
    file: 'langchain',
    consumer: `
      import { createAgent } from 'langchain';
      import { palimpsestMiddleware } from 'palimpsest/langchain';
      import type { PalimpsestClient } from 'palimpsest/http';
      export function agent(client: PalimpsestClient): unknown {
        return createAgent({ model: 'openai:gpt-4o', middleware: [palimpsestMiddleware({ client })] });
      }`,
    // As for LangChain itself.
    skipLibCheck: true,
  },
  {
    name: 'palimpsest/ai-sdk',
    file: 'ai-sdk',
    consumer: `
      import { generateText, type LanguageModel } from 'ai';
      import { palimpsest } from 'palimpsest/ai-sdk';
      import type { PalimpsestClient } from 'palimpsest/http';
      export async function answer(client: PalimpsestClient, model: LanguageModel): Promise<string> {
        const memory = palimpsest({ client, session: 's' });
        const { text } = await generateText({ model, prompt: 'Hello', ...memory });
        return text;
      }`,
    // As for the SDK itself.
    skipLibCheck: true,
  },
];

/** The declarations for CommonJS of an entry point. */
function declarationsOf(name: string): string {
  const { exports } = JSON.parse(readFileSync(path.join(installed, 'package.json'), 'utf8')) as {
    exports: Record<string, { types: { require: string } }>;
  };
  return exports[name.replace(/^palimpsest/, '.')]!.types.require;
}

describe.each(entries)('$name', ({ name, file, consumer, skipLibCheck }) => {
  it.each(moduleSettings)('compiles under strict: %s, %s, %s', async (...settings) => {
    const files = { 'consumer.ts': consumer };
    expect(await app.compile(file, settings, files, { skipLibCheck })).toBe('');
  });

  it('is the same for import and require', async () => {
    const script = `
      import { createRequire } from 'node:module';
      const imported = await import('${name}');
      const required = createRequire(import.meta.url)('${name}');
      console.log(JSON.stringify(Object.keys(imported).map((name) => [name, imported[name] === required[name]])));`;
    writeFileSync(path.join(app.folder, `${file}.mjs`), script);
    const { stdout } = await app.run(process.execPath, `${file}.mjs`);
    const values = JSON.parse(stdout) as [string, boolean][];
    expect(values.filter(([, same]) => !same)).toEqual([]);
    const declared = readFileSync(path.join(installed, declarationsOf(name)), 'utf8');
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
  const { stdout } = await app.run(
    path.join(app.folder, 'node_modules', '.bin', 'palimpsest'),
    'dev',
    '--once',
  );
  expect(stdout).toMatch(/^PostgreSQL .*embedded/m);
  expect(stdout).toMatch(/^stopped in /m);
  expect(readFileSync(path.join(dataDir, '.gitignore'), 'utf8')).toBe('*\n');
  const example = path.join(installed, 'dist', 'examples', 'agent-loop.js');
  const played = await app.run(process.execPath, example, '--turns', '20');
  expect(played.stdout).toMatch(/20 turns.* 0 refused .* 0 differ/);
});
