/** The agents of examples/python, run unchanged: a hundred turns on a small window, in ten processes each. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFile, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Json } from '../../../src/conversation/message.js';
import { type AgentProvider, type Item, startAgentProvider } from '../../support/agent-provider.js';
import { type ApiStack, startApiStack } from '../../support/api.js';
import { installed, run } from '../../support/tools.js';
import { storedItems } from '../../support/sessions.js';

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

/** The virtual environment with the pinned packages, or `why` there is none. The generated client is in `folder`. */
async function environment(): Promise<{ folder: string } | { why: string }> {
  const requirements = path.join(examples, 'requirements.txt');
  const version = createHash('sha256')
    .update(await readFile(requirements))
    .digest('hex')
    .slice(0, 12);
  const found = await installed(`python-examples-${version}`, async (venv) => {
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
  if (!('why' in found)) await generateClient(found.folder);
  return found;
}

/** With the command of the README, into the folder of the test. */
async function generateClient(venv: string): Promise<void> {
  const generator = path.join(venv, 'bin', 'openapi-python-client');
  await run([
    ...([generator, 'generate', '--fail-on-warning', '--overwrite'] as const),
    ...['--url', `${server.api.address}/openapi.json`, '--config', path.join(examples, 'client.json')],
    ...['--meta', 'none', '--output-path', path.join(folder, 'palimpsest_client')],
  ]);
}

/** Of an agent. */
const environmentWith = (provider: AgentProvider): Record<string, string> => ({
  ...{ PALIMPSEST_URL: server.api.address, PALIMPSEST_TOKEN: server.token },
  ...{ OPENAI_BASE_URL: provider.url, OPENAI_API_KEY: 'none', LANGSMITH_TRACING: 'false' },
  ...{ PYTHONPATH: folder, PYTHONDONTWRITEBYTECODE: '1' },
});

test.for(['openai_loop', 'langgraph_agent', 'langchain_agent'])('%s', async (name, { skip }) => {
  const found = await environment();
  if ('why' in found) {
    console.log(`not run: ${found.why}`);
    return skip(found.why);
  }
  const provider = await startAgentProvider(window, (question) => [
    ['order_status', { order: question }],
    ['search_history', { query: `"Question ${Math.ceil(question / 2)}:"`, role: 'user', limit: 1 }],
    ['get_tool_response', { message: 1, limit: 50 }],
    ['expand_history', { from_message: 1, limit: 1 }],
  ]);
  const client = server.stack.palimpsest;
  const session = name;
  const checkpoints = path.join(folder, 'checkpoints');
  const env = { ...environmentWith(provider), CHECKPOINTS: checkpoints };
  const python = path.join(found.folder, 'bin', 'python');
  const program = [
    path.join(examples, `${name}.py`),
    session,
    JSON.stringify({ contextWindow: window, reservedOutputTokens: 400 }),
  ];
  try {
    for (let turn = 1; turn <= turns; turn += turnsOfProcess) {
      // Without its checkpoint, a thread begins with the messages of the session.
      if (turn > turns / 2) await rm(checkpoints, { force: true });
      const numbers = Array.from({ length: turnsOfProcess }, (_, index) => turn + index);
      const asked = numbers.map((number) => `Question ${number}: ${'word '.repeat(100).trim()}\n`).join('');
      const answered = await piped(python, program, asked, env);
      expect(answered).toBe(numbers.map((number) => `Answer ${number}.\n`).join(''));
      // The checkpointer keeps the newest state alone.
      if (name !== 'openai_loop') expect((await stat(checkpoints)).size).toBeLessThan(1_000_000);
      if (turn % 25 === 1) await client.settled({ session });
    }
    const replayed = await storedItems(client, session);
    expect(replayed.map(summaryOf)).toEqual(provider.said.map(summaryOf));
    const results = provider.said
      .filter((item) => item['role'] === 'tool')
      .map(({ content }) => String(content));
    expect(results.filter((text) => text.includes('"error"'))).toEqual([]);
    for (let turn = 1; turn <= turns; turn++) {
      const [, found, first, page] = results.slice(4 * (turn - 1));
      expect(found).toContain(`«Question ${Math.ceil(turn / 2)}:»`);
      expect(first).toContain('"content": "Question 1: word');
      expect(page).toContain('"message": 1, "role": "user", "content": "Question 1: word');
    }
    expect(provider.refused).toEqual([]);
    expect(provider.requests).toBe(2 * turns);
    expect(provider.largest).toBeLessThanOrEqual(window);
    const { generation, calibration } = await client.status({ session });
    expect(generation).toBeGreaterThan(3);
    expect(calibration.samples).toBeGreaterThan(0);
  } finally {
    await provider.close();
  }
});

test('openai_loop goes on with a question that a process left unanswered', async ({ skip }) => {
  const found = await environment();
  if ('why' in found) return skip(found.why);
  const provider = await startAgentProvider(window, (question) => [['order_status', { order: question }]]);
  const session = 'unanswered';
  const env = environmentWith(provider);
  try {
    const client = server.stack.palimpsest;
    await client.sync({ session, messages: [{ role: 'user', content: 'Question 1' }] });
    const python = path.join(found.folder, 'bin', 'python');
    const program = [path.join(examples, 'openai_loop.py'), session];
    expect(await piped(python, program, '', env)).toBe('Answer 1.\n');
    const roles: string[] = [];
    for await (const { message } of client.replay({ session })) roles.push(message.role);
    expect(roles).toEqual(['user', 'assistant', 'tool', 'assistant']);
    expect(await piped(python, program, '', env)).toBe('');
  } finally {
    await provider.close();
  }
});

/** Runs an example as it is, except for what `changes` of the program. */
const changed = (name: string, changes: string): string[] => [
  '-c',
  `${changes}
import runpy, sys
sys.path.insert(0, ${JSON.stringify(examples)})
runpy.run_path(${JSON.stringify(path.join(examples, `${name}.py`))}, run_name="__main__")`,
];

const killed = (method: string, isAnswer: string): string => `
import os, signal
from langgraph.checkpoint.sqlite import SqliteSaver

original = SqliteSaver.${method}

def ${method}(self, config, written, *given, **options):
    kept = original(self, config, written, *given, **options)
    if ${isAnswer}:
        os.kill(os.getpid(), signal.SIGKILL)
    return kept

SqliteSaver.${method} = ${method}`;

test.for([
  ['put_writes', 'any("Answer 1." in str(value) for channel, value in written if channel == "messages")'],
  ['put', '"Answer 1." in str(written["channel_values"].get("messages"))'],
] as const)('langgraph_agent prints an answer after a kill in %s', async ([method, isAnswer], { skip }) => {
  const found = await environment();
  if ('why' in found) return skip(found.why);
  const provider = await startAgentProvider(window, (question) => [['order_status', { order: question }]]);
  const session = `killed-in-${method}`;
  const env = { ...environmentWith(provider), CHECKPOINTS: path.join(folder, session) };
  try {
    const python = path.join(found.folder, 'bin', 'python');
    const stopped = piped(
      python,
      [...changed('langgraph_agent', killed(method, isAnswer)), session],
      'Question 1\n',
      env,
    );
    await expect(stopped).rejects.toMatchObject({ signal: 'SIGKILL' });
    const program = [path.join(examples, 'langgraph_agent.py'), session];
    expect(await piped(python, program, 'Question 2\n', env)).toBe('Answer 1.\nAnswer 2.\n');
    const replayed = await storedItems(server.stack.palimpsest, session);
    expect(replayed.map(summaryOf)).toEqual(provider.said.map(summaryOf));
    expect(provider.requests).toBe(4);
  } finally {
    await provider.close();
  }
});

test('langgraph_agent prints an answer that it cannot store yet', async ({ skip }) => {
  const found = await environment();
  if ('why' in found) return skip(found.why);
  const provider = await startAgentProvider(window, (question) => [['order_status', { order: question }]]);
  const session = 'away';
  const env = {
    ...environmentWith(provider),
    CHECKPOINTS: path.join(folder, session),
    PYTHONPATH: [folder, examples].join(path.delimiter),
  };
  const away = `
from palimpsest import Palimpsest

original = Palimpsest.sync

def sync(self, session, messages, **fields):
    if messages and messages[-1].get("data", {}).get("content") == "Answer 1.":
        raise ConnectionError("The API is away.")
    return original(self, session, messages, **fields)

Palimpsest.sync = sync`;
  try {
    const python = path.join(found.folder, 'bin', 'python');
    const program = [...changed('langgraph_agent', away), session];
    expect(await piped(python, program, 'Question 1\nQuestion 2\n', env)).toBe('Answer 1.\nAnswer 2.\n');
    const replayed = await storedItems(server.stack.palimpsest, session);
    expect(replayed.map(summaryOf)).toEqual(provider.said.map(summaryOf));
  } finally {
    await provider.close();
  }
});

test('mistakes reach the model, and what the API does not know is an error', async ({ skip }) => {
  const found = await environment();
  if ('why' in found) return skip(found.why);
  const session = 'mistaken';
  const message = { role: 'user', content: 'Question 1' };
  const said = { ...message, tool_calls: null };
  const program = `
import json
import httpx
from palimpsest import Palimpsest
from recovery_tools import call_recovery_tool

palimpsest = Palimpsest()

def answered(name, **arguments):
    return json.loads(call_recovery_tool(palimpsest, "${session}", name, json.dumps(arguments)))

def failure(call, *given, **fields):
    try:
        return call(*given, **fields)
    except Exception as error:
        return [type(error).__name__, str(error)]

messages = [json.loads('${JSON.stringify(said)}')]
print(json.dumps({
    "typo": failure(palimpsest.sync, "${session}", messages, policy={"contextWidnow": 1}),
    "new": palimpsest.held("${session}"),
    "stored": palimpsest.sync("${session}", messages),
    "expanded": answered("expand_history"),
    "unknownArgument": answered("search_history", query="Question", speakers="Ann"),
    "wrongRole": answered("search_history", query="Question", role="robot"),
    "noCall": answered("get_tool_response", call_id="c1"),
    "configured": palimpsest.configure("${session}", {"contextWindow": 9000}).policy_version,
    "unreachable": failure(Palimpsest("http://127.0.0.1:1").held, "${session}"),
    "noAddress": failure(Palimpsest, "127.0.0.1:7280"),
    "surrogate": failure(palimpsest.sync, "${session}", [{"role": "user", "content": "a\\ud83d"}]),
    "surrogateQuery": failure(palimpsest.tool_response, "${session}", call_id="\\ud83d"),
    "notItsOwn": [failure(palimpsest.configure, id, {"contextWindow": 1}) for id in (".", "..")],
    "ofAll": httpx.get("${server.api.address}/v1/policy", headers={"authorization": "Bearer ${server.token}"}).json()["policy"],
    "noSession": failure(palimpsest.sync, None, messages),
    "misspelt": failure(palimpsest.tool_response, "${session}", callid="c1"),
    "noToken": failure(Palimpsest, token="plm_ü"),
    "noJson": failure(palimpsest.sync, "${session}", [{"role": "user", "content": float("nan")}])[0],
}))`;
  const env = {
    ...{ PALIMPSEST_URL: server.api.address, PALIMPSEST_TOKEN: server.token },
    ...{ PYTHONPATH: [folder, examples].join(path.delimiter), PYTHONDONTWRITEBYTECODE: '1' },
  };
  const python = path.join(found.folder, 'bin', 'python');
  expect(JSON.parse(await run([python, '-c', program], { env }))).toEqual({
    typo: ['Failure', expect.stringContaining('contextWidnow')],
    new: [],
    stored: [message],
    expanded: { messages: [{ message: 1, ...said }], next_message: null },
    unknownArgument: { error: expect.stringContaining('speakers'), hint: expect.stringMatching(/./) },
    wrongRole: { error: expect.stringContaining('role'), hint: expect.stringMatching(/./) },
    noCall: { error: expect.stringContaining('Input.Invalid'), hint: expect.stringMatching(/./) },
    configured: expect.any(Number),
    unreachable: [
      'ConnectionError',
      expect.stringMatching(/^No answer of the API at http:\/\/127\.0\.0\.1:1 \(PALIMPSEST_URL\): ./),
    ],
    noAddress: ['ValueError', expect.stringContaining('PALIMPSEST_URL')],
    surrogate: ['ValueError', expect.stringContaining('lone surrogate')],
    surrogateQuery: ['ValueError', expect.stringContaining('lone surrogate')],
    notItsOwn: ['.', '..'].map((id) => [
      'ValueError',
      expect.stringContaining(`'${id}' cannot be part of a URL`),
    ]),
    ofAll: {},
    noSession: ['TypeError', expect.stringContaining('None')],
    misspelt: ['TypeError', expect.stringContaining("'callid'")],
    noToken: ['ValueError', expect.not.stringContaining('plm_')],
    noJson: 'ValueError',
  });
});

test('an answer of a proxy is no answer of the API, and the call is repeated', async ({ skip }) => {
  const found = await environment();
  if ('why' in found) return skip(found.why);
  const answers: [status: number, body: string][] = [
    [503, '{"message": "Service Unavailable"}'],
    [429, '{"message": "Too many requests"}'],
    [404, '{"error": "not found"}'],
    [503, '{"type": "about:blank", "title": "Service Unavailable", "status": 503}'],
    [503, '["no object"]'],
    [200, '{"ok": true}'],
    [200, '"no object"'],
    [502, '<html>Bad gateway</html>'],
  ];
  const asked = answers.map(() => 0);
  const proxy = createServer(({ url = '' }, response) => {
    const index = Number(url.split('/')[1]);
    const [status, body] = answers[index]!;
    asked[index]!++;
    response.writeHead(status, { 'content-type': 'application/json' }).end(body);
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const address = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const program = `
import json
from concurrent.futures import ThreadPoolExecutor
from palimpsest import Palimpsest

def failure(index):
    try:
        return Palimpsest(f"${address}/{index}").sync("proxied", [])
    except Exception as error:
        return [type(error).__name__, str(error)]

print(json.dumps(list(ThreadPoolExecutor(${answers.length}).map(failure, range(${answers.length})))))`;
  const env = { PYTHONPATH: [folder, examples].join(path.delimiter), PYTHONDONTWRITEBYTECODE: '1' };
  try {
    const failed = JSON.parse(
      await run([path.join(found.folder, 'bin', 'python'), '-c', program], { env }),
    ) as Json;
    expect(failed).toEqual(
      answers.map((_, index) => [
        'ConnectionError',
        expect.stringContaining(`${address}/${index} (PALIMPSEST_URL): `),
      ]),
    );
    expect(asked).toEqual(answers.map(() => 4));
  } finally {
    proxy.close();
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
