/** Clients that generators make from the OpenAPI document: each plays a session against the API. */
import { copyFile, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type ApiStack, startApiStack } from '../../support/api.js';
import { document } from '../../support/openapi.js';
import { type Command, installed, run } from '../../support/tools.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const own = (...names: string[]) => path.join(root, 'node_modules', ...names);

interface Generator {
  language: string;
  /** The tool with its version. */
  tool: string;
  install(folder: string): Promise<unknown>;
  /** The program in `test/clients` that uses the client. */
  program: string;
  /** Makes the client of `openapi.json` in the folder `work`. Returns the command that runs the program there. */
  generate(tool: string, work: string): Promise<Command>;
}

const typescript: Generator = {
  language: 'TypeScript',
  tool: 'openapi-typescript-7.13.0',
  install: (folder) =>
    run([
      ...(['npm', 'install', '--prefix', folder, '--no-audit', '--no-fund'] as const),
      ...['openapi-typescript@7.13.0', 'openapi-fetch@0.17.0'],
    ]),
  program: 'session.ts',
  async generate(tool, cwd) {
    const modules = path.join(tool, 'node_modules');
    await symlink(modules, path.join(cwd, 'node_modules'));
    await run([path.join(modules, '.bin', 'openapi-typescript'), 'openapi.json', '--output', 'api.d.ts'], {
      cwd,
    });
    const compilerOptions = {
      ...{ strict: true, noEmit: true, skipLibCheck: true, module: 'NodeNext', target: 'ES2022' },
      ...{ types: ['node'], typeRoots: [own('@types')] },
    };
    await writeFile(path.join(cwd, 'package.json'), JSON.stringify({ type: 'module' }));
    await writeFile(path.join(cwd, 'tsconfig.json'), JSON.stringify({ compilerOptions }));
    await run([process.execPath, own('typescript', 'bin', 'tsc')], { cwd });
    return [process.execPath, '--import', own('tsx', 'dist', 'loader.mjs'), 'session.ts'];
  },
};

const python: Generator = {
  language: 'Python',
  tool: 'openapi-python-client-0.29.1',
  async install(folder) {
    await run(['python3', '-m', 'venv', folder]);
    const pip = path.join(folder, 'bin', 'pip');
    await run([pip, 'install', '--quiet', 'openapi-python-client==0.29.1']);
  },
  program: 'session.py',
  async generate(tool, cwd) {
    // The tool knows JSON, text and bytes.
    const config = {
      post_hooks: [],
      content_type_overrides: { 'application/x-ndjson': 'application/octet-stream' },
    };
    await writeFile(path.join(cwd, 'config.json'), JSON.stringify(config));
    await run(
      [
        ...([path.join(tool, 'bin', 'openapi-python-client'), 'generate', '--fail-on-warning'] as const),
        ...['--path', 'openapi.json', '--config', 'config.json'],
        ...['--meta', 'none', '--output-path', 'palimpsest_client'],
      ],
      { cwd },
    );
    return [path.join(tool, 'bin', 'python'), 'session.py'];
  },
};

const go: Generator = {
  language: 'Go',
  tool: 'oapi-codegen-2.8.2',
  async install(cwd) {
    const codegen = 'github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2';
    await run(['go', 'install', codegen], { env: { GOBIN: cwd } });
    await writeFile(path.join(cwd, 'go.mod'), 'module session\n');
    await run(['go', 'get', 'github.com/oapi-codegen/runtime@v1.8.0'], { cwd });
  },
  program: 'session.go',
  async generate(tool, cwd) {
    for (const name of ['go.mod', 'go.sum']) await copyFile(path.join(tool, name), path.join(cwd, name));
    await run(
      [
        ...([path.join(tool, 'oapi-codegen'), '-generate', 'types,client'] as const),
        ...['-package', 'main', '-o', 'api.go', 'openapi.json'],
      ],
      { cwd },
    );
    await run(['go', 'build', '-o', 'session'], { cwd });
    return ['./session'];
  },
};

let server: ApiStack;

beforeAll(async () => {
  server = await startApiStack();
});

afterAll(() => server.stop());

test.for([typescript, python, go])(
  'in $language, by $tool',
  async ({ tool, install, program, generate }, { skip }) => {
    const found = await installed(tool, install);
    if ('why' in found) {
      console.log(`not run: ${found.why}`);
      return skip(found.why);
    }
    const work = await mkdtemp(path.join(tmpdir(), 'client-'));
    try {
      await writeFile(path.join(work, 'openapi.json'), JSON.stringify(document));
      await copyFile(path.join(root, 'test', 'clients', program), path.join(work, program));
      const command = await generate(found.folder, work);
      const env = { API_URL: server.api.address, API_TOKEN: server.token };
      expect(JSON.parse(await run(command, { cwd: work, env }))).toEqual({
        ...{ stored: 24, shrunk: true, generation: [1, 1] },
        ...{ found: [6, 5], replayed: 24, page: [3, 4], failure: 'Store.SessionNotFound' },
      });
    } finally {
      await rm(work, { recursive: true });
    }
  },
);
