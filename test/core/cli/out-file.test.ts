/** A command writes a file completely, or leaves it unchanged. */
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { writeOutFile } from '../../../src/cli/command/flags.js';
import { each } from '../../support/texts.js';

const folder = mkdtempSync(path.join(os.tmpdir(), 'out-file-'));
afterAll(() => rmSync(folder, { recursive: true }));

const { signal } = new AbortController();
const place = (name: string): string => {
  const own = path.join(folder, name);
  mkdirSync(own);
  return path.join(own, 'file.json');
};
const beside = (file: string): string[] => readdirSync(path.dirname(file));

test('has every text, and no temporary file stays', async () => {
  const file = place('whole');
  const texts = Array.from({ length: 5_000 }, (_, index) => `${index} ü `.repeat(20));
  const bytes = await writeOutFile(file, '--out', each(texts), signal);
  expect(readFileSync(file, 'utf8')).toBe(texts.join(''));
  expect(bytes).toBe(statSync(file).size);
  expect(beside(file)).toEqual(['file.json']);
});

test('is replaced with the same permissions, also through a link', async () => {
  const file = place('replaced');
  writeFileSync(file, 'before', { mode: 0o600 });
  const link = path.join(path.dirname(file), 'link.json');
  symlinkSync(file, link);
  await writeOutFile(link, '--out', each(['after']), signal);
  expect(readFileSync(file, 'utf8')).toBe('after');
  expect(statSync(file).mode & 0o777).toBe(0o600);
  expect(readFileSync(link, 'utf8')).toBe('after');
  expect(beside(file)).toEqual(['file.json', 'link.json']);
});

test('stays unchanged if the texts end in a failure', async () => {
  const file = place('failed');
  writeFileSync(file, 'before');
  async function* failing(): AsyncGenerator<string> {
    yield* each(['half ', 'of it']);
    throw new Error('gone');
  }
  await expect(writeOutFile(file, '--out', failing(), signal)).rejects.toThrow('gone');
  expect(readFileSync(file, 'utf8')).toBe('before');
  expect(beside(file)).toEqual(['file.json']);
});

test('leaves no temporary file when it is interrupted, even while no text arrives', async () => {
  const file = place('interrupted');
  const interrupt = new AbortController();
  let waiting = (): void => undefined;
  const atWork = new Promise<void>((resolve) => (waiting = resolve));
  async function* stuck(): AsyncGenerator<string> {
    yield 'half';
    waiting();
    await new Promise<void>((resolve) => interrupt.signal.addEventListener('abort', () => resolve()));
    yield 'more';
  }
  const written = writeOutFile(file, '--out', stuck(), interrupt.signal);
  await atWork;
  expect(beside(file)).toHaveLength(1);
  interrupt.abort(new Error('interrupted'));
  expect(beside(file)).toEqual([]);
  await expect(written).rejects.toThrow('interrupted');
  expect(beside(file)).toEqual([]);
});

test('that cannot be written is refused with the option', async () => {
  const refused = { type: 'Input.Invalid', path: '--out' };
  for (const file of [path.join(folder, 'nowhere/file.json'), folder, '/proc/no-such-file.json'])
    await expect(writeOutFile(file, '--out', each(['text']), signal)).rejects.toMatchObject(refused);
});

test('that is a device takes the text and stays a device', async () => {
  expect(await writeOutFile('/dev/null', '--out', each(['text']), signal)).toBe(4);
  expect(statSync('/dev/null').isCharacterDevice()).toBe(true);
  expect(existsSync('/dev/null.part')).toBe(false);
});
