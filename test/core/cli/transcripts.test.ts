/**
 * Transcripts have several shapes, and files are broken in many ways. Errors give the place: file, line, column, path of the
 * field. A broken session must not affect the others.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { afterAll, describe, expect, test } from 'vitest';
import { readTranscripts, type ReadTranscript } from '../../../src/cli/play/transcripts.js';
import { cutTurns } from '../../../src/conversation/groups.js';
import type { ChatMessage } from '../../../src/conversation/message.js';

const hello: ChatMessage[] = [
  { role: 'user', content: 'Hello' },
  { role: 'assistant', content: 'Hi – what is the matter? ✓' },
];

const line = (value: unknown) => JSON.stringify(value);
const jsonl = (...values: unknown[]) => values.map(line).join('\n') + '\n';

const folder = mkdtempSync(path.join(tmpdir(), 'transcripts-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function file(name: string, content: string | Buffer): string {
  const full = path.join(folder, name);
  writeFileSync(full, content);
  return full;
}

const parsed = (text: string, name: string) => readTranscripts(file(`${name}.jsonl`, text));

const messagesOf = (read: ReadTranscript | undefined) => (read && 'messages' in read ? read.messages : read);

const errorOf = (read: ReadTranscript | undefined) => {
  if (!read || !('error' in read)) throw new Error(`no error: ${JSON.stringify(read)}`);
  const { type, message, path: at } = read.error;
  return { type, message, path: at };
};

describe('every accepted shape gives the same messages', () => {
  const session = { id: 'support-17', messages: hello, meta: { anything: 1 } };
  const shapes: Record<string, [text: string, id: string]> = {
    'an array of messages': [line(hello), 'talk'],
    'an array over many lines': [JSON.stringify(hello, null, 2), 'talk'],
    'an array with one message a line': [`[${line(hello[0])},\n${line(hello[1])}]`, 'talk'],
    'an array whose brackets stand alone': [`[\n${line(hello[0])},\n${line(hello[1])}\n]\n`, 'talk'],
    'an object with messages': [line(session), 'support-17'],
    'an object with messages over many lines': [JSON.stringify(session, null, 2), 'support-17'],
    'an object without an id': [line({ messages: hello }), 'talk'],
    'an object with one message a line': [
      `{"id": "support-17", "messages": [\n${line(hello[0])},\n${line(hello[1])}\n]}`,
      'support-17',
    ],
    'a message a line': [jsonl(...hello), 'talk'],
    'a message a line with CRLF and empty lines': [
      `\r\n${line(hello[0])}\r\n\r\n${line(hello[1])}\r\n`,
      'talk',
    ],
    'a message a line without a last line break': [jsonl(...hello).trimEnd(), 'talk'],
    'one session a line': [jsonl(session), 'support-17'],
    'text with a byte order mark': [`\uFEFF${line(hello)}`, 'talk'],
  };
  test.each(Object.entries(shapes))('%s', async (_, [text, id]) => {
    const plain = await readTranscripts(file('talk.json', text));
    expect(plain).toEqual([{ id, messages: hello }]);
    const zipped = await readTranscripts(file('talk.jsonl.gz', gzipSync(text)));
    expect(zipped).toEqual(plain);
    const misnamed = await readTranscripts(file('talk.jsonl', gzipSync(text)));
    expect(misnamed, 'gzip is recognised by content').toEqual(plain);
  });

  test('a single message is a session of one message', async () => {
    expect(await parsed(jsonl(hello[0]), 'one')).toEqual([{ id: 'one', messages: [hello[0]] }]);
  });

  test('standard input', async () => {
    const chunks = [Buffer.from(jsonl(...hello)).subarray(0, 60), Buffer.from(jsonl(...hello)).subarray(60)];
    expect(await readTranscripts('-', Readable.from(chunks))).toEqual([{ id: 'stdin', messages: hello }]);
    const zipped = Readable.from([gzipSync(line(hello))]);
    expect(messagesOf((await readTranscripts('-', zipped))[0])).toEqual(hello);
  });
});

describe('several sessions in one file', () => {
  test('ids: their own, else the file and the line', async () => {
    const text =
      jsonl({ id: 'a', messages: hello }, { messages: hello }, hello) +
      '\n' +
      jsonl({ id: 'd', messages: hello });
    expect((await parsed(text, 'day')).map(({ id }) => id)).toEqual(['a', 'day#2', 'day#3', 'd']);
  });

  test('an array of sessions', async () => {
    const sessions = await parsed(line([{ id: 'a', messages: hello }, { messages: hello }]), 'day');
    expect(sessions.map(({ id }) => id)).toEqual(['a', 'day#2']);
    expect(sessions.map(messagesOf)).toEqual([hello, hello]);
  });

  test('a broken line is one error with its line number; the other lines are read', async () => {
    const broken = [
      line({ id: 'a', messages: hello }),
      '{"id": "b", "messages": [{"role": "user", "content": "cut o',
      line({
        id: 'c',
        messages: [
          { role: 'user', content: 'x' },
          { role: 'robot', content: 'y' },
        ],
      }),
      line({ id: 'd', messages: [] }),
      line({ id: 'e' }),
      '"nothing"',
      line({ id: 'g', messages: hello }),
    ].join('\n');
    const reads = await parsed(broken, 'day');
    expect(reads.map(({ id }) => id)).toEqual(['a', 'day#2', 'c', 'd', 'e', 'day#6', 'g']);
    expect(messagesOf(reads[0])).toEqual(hello);
    expect(messagesOf(reads[6])).toEqual(hello);
    expect(errorOf(reads[1])).toMatchObject({ type: 'Input.Invalid' });
    expect(errorOf(reads[1]).message).toMatch(/line 2, column \d+/i);
    expect(errorOf(reads[2])).toMatchObject({ type: 'Input.Invalid', path: 'messages[1].role' });
    expect(errorOf(reads[2]).message).toMatch(/day\.jsonl: Line 3: .*robot/);
    expect(errorOf(reads[3]).message).toMatch(/no message/);
    expect(errorOf(reads[4])).toMatchObject({ path: 'messages' });
    expect(errorOf(reads[5]).message).toMatch(/: Line 6/);
  });

  test('the first line may be the broken one', async () => {
    const reads = await parsed(`{"id": "a", "messages": [\n${jsonl({ id: 'b', messages: hello })}`, 'day');
    expect(reads.map(({ id }) => id)).toEqual(['day#1', 'b']);
    expect(errorOf(reads[0]).message).toMatch(/line 1/i);
  });
});

describe('errors of input name their place', () => {
  async function failure(content: string | Buffer, name = 'broken.jsonl') {
    const reads = await readTranscripts(file(name, content));
    expect(reads).toHaveLength(1);
    return errorOf(reads[0]);
  }

  test('a file that is not there, a folder', async () => {
    const [missing] = await readTranscripts(path.join(folder, 'nowhere.jsonl'));
    expect(missing?.id).toBe('nowhere');
    expect(errorOf(missing)).toMatchObject({ type: 'Input.Invalid' });
    expect(errorOf(missing).message).toMatch(/does not exist.*nowhere\.jsonl/i);
    mkdirSync(path.join(folder, 'empty'));
    const [directory] = await readTranscripts(path.join(folder, 'empty'));
    expect(errorOf(directory).message).toMatch(/no transcript in .*empty/i);
  });

  test('broken JSON: line and column', async () => {
    const pretty = '[\n  {"role": "user", "content": "a"},\n  {"role": "user", "content": }\n]';
    expect((await failure(pretty, 'broken.json')).message).toMatch(/line 3, column 31/i);
    const third = `${line(hello[0])}\n${line(hello[1])}\n{"role": "user" "content": "a"}\n`;
    expect((await failure(third)).message).toMatch(/line 3, column 17/i);
  });

  test.each([
    ['a message that is no object', [...hello, 'text'], 'messages[2]'],
    ['a message without role', [{ content: 'x' }, ...hello], 'messages[0].role'],
    ['an unknown role', [...hello, { role: 'robot', content: 'x' }], 'messages[2].role'],
    ['content of a wrong type', [...hello, { role: 'user', content: 7 }], 'messages[2].content'],
  ])('%s', async (_, messages, at) => {
    expect(await failure(line(messages), 'broken.json')).toMatchObject({ type: 'Input.Invalid', path: at });
    const inLines = await failure(jsonl(...messages));
    const [, number, field] = /\[(\d)\]\.?(.*)/.exec(at)!;
    expect(inLines).toMatchObject({ path: field || at });
    expect(inLines.message).toMatch(new RegExp(`broken\\.jsonl: Line ${Number(number) + 1}: ${field}`));
  });

  test('a number that cannot be stored exactly, a duplicate key', async () => {
    const big = `${line(hello[0])}\n{"role": "assistant", "content": "x", "id": 12345678901234567890}\n`;
    expect(await failure(big)).toMatchObject({ path: 'id' });
    expect((await failure(big)).message).toMatch(/line 2/i);
    expect((await failure('[{"role": "user", "role": "user"}]')).message).toMatch(/role/);
  });

  test('empty, not UTF-8, damaged gzip, JSON of another kind', async () => {
    expect((await failure('\n \n')).message).toMatch(/empty/);
    expect((await failure('[]')).message).toMatch(/no message/);
    expect((await failure(Buffer.from([0x5b, 0xff, 0xfe, 0x5d]))).message).toMatch(/UTF-8/);
    expect((await failure(gzipSync(line(hello)).subarray(0, 20))).message).toMatch(/gzip/);
    expect((await failure('42')).message).toMatch(/not in a known format: it is a number/);
    expect((await failure('{"turns": []}')).message).toMatch(/object with the fields "turns"/);
  });
});

describe('turns', () => {
  const of = (...roles: ChatMessage['role'][]) => cutTurns(roles.map((role) => ({ role, content: 'x' })));

  test('a turn begins at a user message after something else and at each assistant message', () => {
    expect(
      of(
        'system',
        'developer',
        'user',
        'user',
        'assistant',
        'tool',
        'tool',
        'assistant',
        'user',
        'assistant',
      ),
    ).toEqual([
      { from: 0, to: 4 },
      { from: 4, to: 7 },
      { from: 7, to: 8 },
      { from: 8, to: 9 },
      { from: 9, to: 10 },
    ]);
    expect(of('system')).toEqual([{ from: 0, to: 1 }]);
    expect(of('tool', 'assistant')).toEqual([
      { from: 0, to: 1 },
      { from: 1, to: 2 },
    ]);
  });

  test('turns cover every message once, in order', () => {
    const role = fc.constantFrom<ChatMessage['role']>(
      'system',
      'developer',
      'user',
      'assistant',
      'tool',
      'function',
    );
    fc.assert(
      fc.property(fc.array(role, { minLength: 1, maxLength: 40 }), (roles) => {
        const turns = of(...roles);
        expect(
          turns.flatMap(({ from, to }) => Array.from({ length: to - from }, (_, i) => from + i)),
        ).toEqual(roles.map((_, i) => i));
        expect(turns.every(({ from, to }) => from < to)).toBe(true);
      }),
    );
  });
});

describe('the bundled sample session', async () => {
  const [sample] = await readTranscripts(
    fileURLToPath(new URL('../../../examples/debugging-session.jsonl', import.meta.url)),
  );
  const messages = sample && 'messages' in sample ? sample.messages : [];

  test('has what the demonstration needs', () => {
    const calls = messages.map(({ tool_calls: made }) => made?.length ?? 0);
    const ids = messages.flatMap(({ tool_calls: made }) => made?.map(({ id }) => id) ?? []);
    const sizes = messages.map(({ content }) => (typeof content === 'string' ? content.length : 0));
    expect(calls.filter((n) => n > 1).length).toBeGreaterThan(5);
    expect(ids.length).toBeGreaterThan(new Set(ids).size);
    expect(Math.max(...sizes)).toBeGreaterThan(40_000);
    expect(messages.filter(({ role }) => role === 'user').length).toBeGreaterThan(2);
  });
});

const transcripts = process.env.PALIMPSEST_TRANSCRIPTS;
if (!transcripts) console.info('PALIMPSEST_TRANSCRIPTS is not set: recorded sessions were not read');

test.skipIf(!transcripts)('every recorded session can be read', async () => {
  const files = ['sessions', 'dirty', 'cc-by-nc'].flatMap((sub) =>
    readdirSync(path.join(transcripts ?? '', sub))
      .filter((name) => !name.startsWith('qa-'))
      .map((name) => path.join(transcripts ?? '', sub, name)),
  );
  const reads = (await Promise.all(files.map((name) => readTranscripts(name)))).flat();
  expect(reads.filter((read) => 'error' in read)).toEqual([]);
  expect(new Set(reads.map(({ id }) => id)).size).toBe(reads.length);
  expect(reads.length).toBeGreaterThan(400);
});
