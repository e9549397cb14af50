/** README's three sessions, run unchanged against a service without tokens. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApi, type RunningApi } from '../../../src/api/server.js';
import { program } from '../../support/compiled.js';
import { asJavaScript, document, examplesIn } from '../../support/documents.js';
import { startStack, type Stack } from '../../support/stack.js';

const run = promisify(execFile);
const python = await run('python3', ['--version']).then(
  () => true,
  () => false,
);
const printed = 'http://127.0.0.1:7280';
const question = { role: 'user', content: 'Why is invoice INV-4711 wrong?' };

describe('the sessions of README', () => {
  const examples = examplesIn(document('README.md'), 'A session');
  let stack: Stack;
  let api: RunningApi;
  let folder: string;

  beforeAll(async () => {
    stack = await startStack();
    api = await startApi({ port: 0 }, stack.palimpsest);
    folder = await mkdtemp(path.join(tmpdir(), 'readme-'));
  });
  afterAll(async () => {
    await rm(folder, { recursive: true });
    await api.close();
    await stack.stop();
  });

  /** The output of the example in this language, with the address of this API. */
  async function play(language: string, command: string, ...flags: string[]): Promise<string> {
    const code = examples.find((example) => example.language === language)?.code ?? '';
    expect(code).toContain(printed);
    expect(code.trimEnd().split('\n').length).toBeLessThanOrEqual(12);
    const file = path.join(folder, language === 'ts' ? 'session.mjs' : `session.${language}`);
    const text = code.replaceAll(printed, api.address);
    const client = pathToFileURL(program('src/http-client/index.ts')).href;
    await writeFile(file, language === 'ts' ? asJavaScript(text, { 'palimpsest/http': client }) : text);
    return (await run(command, [...flags, file])).stdout;
  }

  async function stored(session: string): Promise<unknown[]> {
    const messages: unknown[] = [];
    for await (const { message } of stack.palimpsest.forTenant('default').replay({ session }))
      messages.push(message);
    return messages;
  }

  test('in TypeScript', async () => {
    expect(await play('ts', process.execPath)).toBe('1 message in the context, found in message 1\n');
    expect(await stored('ticket-typescript')).toEqual([question]);
  });

  test('over HTTP', async () => {
    const answers = (await play('sh', 'bash', '-e'))
      .trimEnd()
      .split('\n')
      .map((json) => JSON.parse(json) as unknown);
    expect(answers).toEqual([
      expect.objectContaining({ turnId: 'turn-1', throughSeq: 1, signalled: true }),
      expect.objectContaining({ messages: [question] }),
      expect.objectContaining({ hits: [expect.objectContaining({ seq: 1 })] }),
      expect.objectContaining({ session: 'ticket-curl' }),
    ]);
    expect(await stored('ticket-curl')).toEqual([question]);
  });

  test.skipIf(!python)('in Python', async () => {
    expect(await play('python', 'python3')).toMatch(/^\d+ tokens, 1 hit\n$/);
    expect(await stored('ticket-python')).toEqual([question]);
  });
});
