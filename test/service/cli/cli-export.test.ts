/**
 * A session is exported as the file of its import: every recorded file and a small one of each format, over HTTP and by the
 * command line; during other exports, appends and erasures; and always completely or not at all.
 */
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { formatNames, type FormatName } from '../../../src/conversation/format-names.js';
import type { Json } from '../../../src/conversation/message.js';
import type { FileLayout } from '../../../src/formats/format.js';
import { HttpPalimpsest } from '../../../src/http-client/index.js';
import { startApiStack, type ApiStack } from '../../support/api.js';
import { CliProcess, cliOf, linesOf, stackEnv } from '../../support/cli.js';
import { fileText, nativeFiles, nativePath, readNativeFile } from '../../support/native-files.js';
import { talk } from '../../support/store.js';
import { joined } from '../../support/texts.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'cli-export-'));
let served: ApiStack;
let cli: ReturnType<typeof cliOf>;
let http: HttpPalimpsest;

/** Longer than the buffers of sockets and pipes: 24 MB. */
const long = talk(2_400, 2_000);

beforeAll(async () => {
  served = await startApiStack({}, { worker: false });
  cli = cliOf(served.stack);
  http = await HttpPalimpsest.connect({ url: served.api.address, token: served.token });
  await appendLong('long');
});

afterAll(async () => {
  await served.stop();
  rmSync(folder, { recursive: true });
});

async function appendLong(session: string): Promise<void> {
  for (let from = 0; from < long.length; from += 600)
    await served.stack.palimpsest.appendTurn({
      ...{ session, turnId: `from ${from}`, messages: long.slice(from, from + 600) },
      policy: { contextWindow: 2_000_000, tokenizer: 'chars/4', overhead: 0 },
    });
}

interface Imported {
  session: string;
  status: string;
  format: FormatName;
  source: string;
  line: number;
}

/** By one run of `import`. */
async function imported(files: readonly string[]): Promise<Imported[]> {
  const { stdout } = await cli.run(['import', ...files, '--keep-duplicates', '--json']);
  return linesOf<Imported | { total: object }>(stdout).filter((line) => 'session' in line);
}

async function exportedByCli(session: string): Promise<string> {
  const file = path.join(mkdtempSync(path.join(folder, 'out-')), 'file');
  const { code, stderr } = await cli.run(['export', session, '--out', file]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(readdirSync(path.dirname(file))).toEqual(['file']);
  return readFileSync(file, 'utf8');
}

const native = nativeFiles();

describe.skipIf(native.length === 0)('every recorded file is exported unchanged', () => {
  test('over HTTP, and the first of each format by the command line', async () => {
    const reports = await imported(native.map(nativePath));
    expect(reports.filter(({ status }) => status !== 'stored')).toEqual([]);
    expect(new Set(reports.map(({ source }) => source)).size).toBe(native.length);
    const several = (source: string) => reports.filter((one) => one.source === source).length > 1;
    const seen = new Set<FormatName>();
    for (const one of reports) {
      const expected = textOf(one, several(one.source));
      expect(await joined(http.export(one)), one.source).toBe(expected);
      if (seen.has(one.format)) continue;
      seen.add(one.format);
      expect(await exportedByCli(one.session), one.source).toBe(expected);
    }
    expect(seen.size).toBeGreaterThan(10);
  });

  /** Of a file that holds several sessions, one a line, its line. */
  function textOf({ source, line }: Imported, isOneOfSeveral: boolean): string {
    const file = native.find((name) => nativePath(name) === source)!;
    const { value, layout } = readNativeFile(file);
    return isOneOfSeveral ? fileText((value as Json[])[line - 1]!, 'document') : fileText(value, layout);
  }
});

type Sample = [format: FormatName, layout: FileLayout, value: Json];

const chat: Json[] = [
  { role: 'user', content: 'Where is order 4711?', own: { b: 1, a: [2.5, null] } },
  { role: 'assistant', content: 'On its way.' },
];
const claudeLine = (type: string, uuid: string, parentUuid: string | null, content: Json): Json => ({
  ...{ type, uuid, parentUuid, sessionId: 'claude' },
  message: { role: type, ...(type === 'assistant' ? { id: `msg ${uuid}` } : {}), content },
});
const responses: Json[] = [
  { role: 'user', content: 'Hi' },
  { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Hello.' }] },
];
const contents: Json[] = [
  { role: 'user', parts: [{ text: 'Hi' }] },
  { role: 'model', parts: [{ text: 'Hello.' }] },
];
const toolUse: Json[] = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'b', input: {} }] },
];
const toolCall: Json[] = [
  { role: 'user', content: 'Hi' },
  { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'a', toolName: 'b', input: {} }] },
];
const langchain: Json[] = [
  { type: 'human', content: 'Hi' },
  { type: 'ai', content: 'Hello.' },
];
const events: Json[] = [{ id: 0, source: 'user', action: 'message', args: { content: 'Hi' } }];
const codexLines: Json[] = [
  { timestamp: 't', type: 'session_meta', payload: { id: 'codex' } },
  {
    ...{ timestamp: 't', type: 'response_item' },
    payload: { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hi' }] },
  },
];
const cliRecords: Json[] = [
  { id: '1', timestamp: 't', type: 'user', content: 'Hi' },
  { id: '2', timestamp: 't', type: 'gemini', content: 'Hello.', thoughts: [] },
];
const node = (id: string, parent: string | null, children: string[], role: string): Json => ({
  ...{ id, parent, children },
  message: { author: { role }, content: { content_type: 'text', parts: [id] } },
});

const samples: Sample[] = [
  ['openai-chat', 'document', chat],
  ['openai-chat', 'lines', chat],
  ['openai-chat', 'document', { meta: { n: 1 }, messages: chat, id: 'chat' }],
  ['anthropic', 'document', { model: 'm', system: 'Be brief.', messages: toolUse, tools: [] }],
  ['anthropic', 'lines', toolUse],
  ['anthropic', 'document', toolUse],
  ['openai-responses', 'document', { model: 'm', input: 'Hi' }],
  ['openai-responses', 'lines', responses],
  ['openai-responses', 'document', { id: 'r', object: 'response', output: responses.slice(1), usage: null }],
  ['langchain', 'document', { values: { messages: langchain, todos: [] }, next: [] }],
  ['langchain', 'lines', langchain],
  ['gemini', 'document', { systemInstruction: { parts: [{ text: 'Be brief.' }] }, contents }],
  ['gemini', 'lines', contents],
  ['ai-sdk', 'document', { system: 'Be brief.', messages: toolCall }],
  ['ai-sdk', 'lines', toolCall],
  [
    'claude-code',
    'lines',
    [claudeLine('user', 'a', null, 'Hi'), { type: 'summary', summary: 's', leafUuid: 'a' }],
  ],
  ['gemini-cli', 'document', { sessionId: 'g', projectHash: 'h', messages: cliRecords, lastUpdated: 't' }],
  ['gemini-cli', 'lines', [{ sessionId: 'g2', projectHash: 'h' }, ...cliRecords]],
  [
    ...(['google-adk', 'document'] as const),
    { id: 'adk', events: [{ author: 'user', content: { parts: [{ text: 'Hi' }] } }], state: {} },
  ],
  [
    ...(['cline', 'document'] as const),
    { sessionId: 'cline', system_prompt: 'Be brief.', messages: [{ role: 'user', content: 'Hi', ts: 1 }] },
  ],
  [
    ...(['chatgpt', 'document'] as const),
    {
      mapping: {
        new: node('new', 'ask', [], 'assistant'),
        ask: node('ask', null, ['old', 'new'], 'user'),
        old: node('old', 'ask', [], 'assistant'),
      },
      ...{ conversation_id: 'tree', current_node: 'new' },
    },
  ],
  ['codex', 'lines', codexLines],
  ['openhands', 'document', events],
  ['openhands', 'lines', events],
  [
    ...(['swe-agent', 'document'] as const),
    { environment: 'main', history: [{ role: 'user', content: 'Hi', agent: 'main' }], info: {} },
  ],
  [
    ...(['deer-flow', 'document'] as const),
    {
      ...{ prompt: 'Hi', scenario: 'flow' },
      turns: [{ caller: 'lead_agent', output: { type: 'ai', content: 'Hello.' } }],
    },
  ],
  [
    ...(['openai-agents', 'document'] as const),
    { generatedItems: [], $schemaVersion: '1.0', originalInput: 'Hi', currentTurn: 1 },
  ],
];

test('a small file of every format is exported unchanged, indented or not', async () => {
  expect(new Set(samples.map(([format]) => format))).toEqual(new Set(formatNames));
  const files = samples.map(([format, layout, value], index) => {
    const file = path.join(folder, `${index}-${format}.${layout === 'lines' ? 'jsonl' : 'json'}`);
    const text = layout === 'lines' ? fileText(value, layout) : JSON.stringify(value, null, 2);
    writeFileSync(file, text);
    return file;
  });
  const reports = await imported(files);
  const found = files.map((file) => reports.filter(({ source }) => source === file));
  for (const [index, [format, layout, value]] of samples.entries()) {
    const [report] = found[index]!;
    expect(found[index]).toHaveLength(1);
    expect(report).toMatchObject({ status: 'stored', format });
    expect(await joined(http.export(report!)), files[index]).toBe(fileText(value, layout));
  }
  const lines = found[1]![0]!;
  const { stdout } = await cli.run(['export', lines.session]);
  expect(stdout).toBe(fileText(chat, 'lines'));
});

test('a session appended turn by turn is exported as the list of its messages, also after compactions', async () => {
  const { palimpsest } = served.stack;
  const session = 'by turns';
  for (const [turn, messages] of [chat, chat].entries())
    await palimpsest.appendTurn({ session, turnId: `${turn}`, messages });
  expect(await joined(http.export({ session }))).toBe(fileText([...chat, ...chat], 'document'));
  await palimpsest.fork({ session, to: 'forked', throughSeq: 3 });
  expect(await exportedByCli('forked')).toBe(fileText([...chat, chat[0]!], 'document'));
});

const whole = `${JSON.stringify(long)}\n`;

test('ends with the last message at its beginning, also for two concurrent exports', async () => {
  const { palimpsest } = served.stack;
  const session = 'growing';
  await appendLong(session);
  const texts = [palimpsest.export({ session }), palimpsest.export({ session })];
  const begun = await Promise.all(texts.map((text) => text.next()));
  await palimpsest.appendTurn({ session, turnId: 'later', messages: chat });
  const rest = await Promise.all(texts.map((text) => joined(text)));
  for (const [index, text] of rest.entries()) expect(`${begun[index]!.value}${text}` === whole).toBe(true);
  const present = await joined(http.export({ session }));
  expect(present === fileText([...long, ...chat] as unknown as Json, 'document')).toBe(true);
});

test('fails if the session is erased meanwhile, or erased and begun again', async () => {
  const { palimpsest } = served.stack;
  for (const [session, anew, type] of [
    ['erased', false, 'Store.SessionNotFound'],
    ['begun anew', true, 'Store.StaleGeneration'],
  ] as const) {
    await appendLong(session);
    const [text, replay] = [palimpsest.export({ session }), palimpsest.replay({ session })];
    await Promise.all([text.next(), replay.next()]);
    await palimpsest.erase({ session });
    if (anew) await appendLong(session);
    await expect(joined(text)).rejects.toMatchObject({ type });
    await expect(rest(replay)).rejects.toMatchObject({ type });
  }
  await expect(joined(http.export({ session: 'erased' }))).rejects.toMatchObject({
    type: 'Store.SessionNotFound',
  });
});

async function rest(messages: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of messages);
}

test('a broken connection is distinguished from the end of the file', async () => {
  const { palimpsest } = served.stack;
  const session = 'broken off';
  await appendLong(session);
  const text = http.export({ session });
  await text.next();
  await palimpsest.erase({ session });
  await expect(joined(text)).rejects.toMatchObject({ type: 'Api.Unavailable' });
});

test('an export that fails leaves the file unchanged: damaged or unknown session, failed write', async () => {
  const file = path.join(mkdtempSync(path.join(folder, 'kept-')), 'kept.json');
  writeFileSync(file, 'before');
  await served.stack.palimpsest.appendTurn({ session: 'damaged', turnId: '1', messages: chat });
  const client = new pg.Client({ connectionString: served.stack.ownerUrl });
  await client.connect();
  await client.query('set session_replication_role = replica');
  await client.query(`delete from palimpsest.messages where session_id = 'damaged' and seq = 2`);
  await client.end();
  for (const [session, type, code] of [
    ['damaged', 'Store.Corrupt', 1],
    ['nobody', 'Store.SessionNotFound', 1],
  ] as const) {
    const failed = await cli.run(['export', session, '--out', file, '--json']);
    expect({ code: failed.code, told: JSON.parse(failed.stdout) }).toMatchObject({
      code,
      told: { error: { type } },
    });
    expect(readFileSync(file, 'utf8')).toBe('before');
    expect(readdirSync(path.dirname(file))).toEqual(['kept.json']);
  }
  const refused = await cli.run(['export', 'by turns', '--out', path.join(folder, 'nowhere', 'file.json')]);
  expect(refused).toMatchObject({ code: 2, stdout: '' });
  expect(refused.stderr).toMatch(/^Input\.Invalid: --out: the folder .+ does not exist/);
});

test('a reader that closes the pipe ends it silently', async () => {
  const main = fileURLToPath(new URL('../../../src/cli/main.ts', import.meta.url));
  const line = `'${process.execPath}' --import tsx '${main}' export long --tenant ${served.stack.queuePrefix} | head -c 100; echo; echo "\${PIPESTATUS[0]}"`;
  const shell = spawn('bash', ['-c', line], {
    cwd: fileURLToPath(new URL('../../..', import.meta.url)),
    env: { ...process.env, ...stackEnv(served.stack) },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [stdout, stderr] = await Promise.all([shell.stdout, shell.stderr].map(read));
  expect(stdout).toBe(`${whole.slice(0, 100)}\n0\n`);
  expect(stderr!.replace(/^npm warn.*\n/gm, '')).toBe('');
});

async function read(stream: NodeJS.ReadableStream): Promise<string> {
  let text = '';
  for await (const chunk of stream) text += String(chunk);
  return text;
}

test('memory does not grow with the length of the session', async () => {
  const file = path.join(folder, 'long.json');
  const running = new CliProcess(['export', 'long', '--tenant', served.stack.queuePrefix, '--out', file], {
    ...stackEnv(served.stack),
    NODE_OPTIONS: '--max-old-space-size=96',
  });
  expect(await running.ended).toMatchObject({ code: 0 });
  expect(readFileSync(file, 'utf8') === whole).toBe(true);
});
