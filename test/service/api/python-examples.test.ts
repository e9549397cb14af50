/** The agents of examples/python, run unchanged: a hundred turns on a small window, in ten processes each. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { originalItems } from '../../../src/formats/native.js';
import { type Item, startAgentProvider } from '../../support/agent-provider.js';
import { type ApiStack, startApiStack } from '../../support/api.js';
import { installed, run } from '../../support/tools.js';

const examples = fileURLToPath(new URL('../../../examples/python', import.meta.url));
const window = 4_000;
const turns = 100;
const turnsOfProcess = 10;

let server: ApiStack;
let folder: string;

beforeAll(async () => {
  server = await startApiStack();
  folder = await mkdtemp(path.join(tmpdir(), 'python-'));
});

afterAll(async () => {
  await rm(folder, { recursive: true });
  await server.stop();
});

/** The virtual environment with the pinned packages, or `why` there is none. */
async function environment(): Promise<{ folder: string } | { why: string }> {
  const requirements = path.join(examples, 'requirements.txt');
  const version = createHash('sha256')
    .update(await readFile(requirements))
    .digest('hex')
    .slice(0, 12);
  return installed(`python-examples-${version}`, async (venv) => {
    await run(['python3', '-m', 'venv', venv]);
    await copyFile(requirements, path.join(venv, 'requirements.txt'));
    await run([
      path.join(venv, 'bin', 'pip'),
      'install',
      '--quiet',
      '-r',
      path.join(venv, 'requirements.txt'),
    ]);
  });
}

/** As the README says, in the folder of the test. */
async function generateClient(venv: string): Promise<void> {
  await run([
    ...([
      path.join(venv, 'bin', 'openapi-python-client'),
      'generate',
      '--fail-on-warning',
      '--overwrite',
    ] as const),
    ...['--url', `${server.api.address}/openapi.json`, '--config', path.join(examples, 'client.json')],
    ...['--meta', 'none', '--output-path', path.join(folder, 'palimpsest_client')],
  ]);
}

test.for(['openai_loop', 'langgraph_agent'])('%s', async (name, { skip }) => {
  const found = await environment();
  if ('why' in found) {
    console.log(`not run: ${found.why}`);
    return skip(found.why);
  }
  const provider = await startAgentProvider(window, (question) => [
    ['order_status', { order: question }],
    ['order_status', { order: question + 1_000 }],
  ]);
  await generateClient(found.folder);
  const client = server.stack.palimpsest;
  const session = name;
  const env = {
    ...{ PALIMPSEST_URL: server.api.address, PALIMPSEST_TOKEN: server.token },
    ...{
      OPENAI_BASE_URL: provider.url,
      OPENAI_API_KEY: 'none',
      CHECKPOINTS: path.join(folder, 'checkpoints'),
    },
    ...{ LANGSMITH_TRACING: 'false', PYTHONDONTWRITEBYTECODE: '1', PYTHONPATH: folder },
  };
  const python = path.join(found.folder, 'bin', 'python');
  const program = [path.join(examples, `${name}.py`), session, JSON.stringify({ contextWindow: window })];
  try {
    for (let turn = 1; turn <= turns; turn += turnsOfProcess) {
      const numbers = Array.from({ length: turnsOfProcess }, (_, index) => turn + index);
      const asked = numbers.map((number) => `Question ${number}: ${'word '.repeat(100).trim()}\n`).join('');
      const answered = await piped(python, program, asked, env);
      expect(answered).toBe(numbers.map((number) => `Answer ${number}.\n`).join(''));
      if (turn % 25 === 1) await client.settled({ session });
    }
    const replayed: Json[] = [];
    for await (const item of originalItems(client.replay({ session }))) replayed.push(item);
    expect(replayed.map(summaryOf)).toEqual(provider.said.map(summaryOf));
    expect(provider.refused).toEqual([]);
    expect(provider.requests).toBe(2 * turns);
    expect(provider.largest).toBeLessThanOrEqual(window);
    expect((await client.status({ session })).generation).toBeGreaterThan(3);
  } finally {
    await provider.close();
  }
});

/** The program's output. */
function piped(program: string, args: string[], input: string, env: Record<string, string>): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = execFile(program, args, { env: { ...process.env, ...env } }, (error, stdout) => {
      if (error) reject(error);
      else resolve(stdout);
    });
    child.stdin?.end(input);
  });
}

/** What a message of OpenAI or LangChain says. */
function summaryOf(item: Json): Json {
  const { type = null, data = item } = item as Item;
  const {
    role = { human: 'user', ai: 'assistant' }[String(type)] ?? type,
    content,
    tool_call_id,
    tool_calls,
  } = data as Item;
  const calls = ((tool_calls ?? []) as Item[]).map(({ id, name, args, function: called }) => {
    const { name: named, arguments: given } = (called ?? {}) as Item;
    return [
      id ?? null,
      named ?? name ?? null,
      given === undefined ? (args ?? null) : (JSON.parse(String(given)) as Json),
    ];
  });
  // LangChain has an empty text where the provider has null.
  return [role, content === '' ? null : (content ?? null), tool_call_id ?? null, calls];
}
