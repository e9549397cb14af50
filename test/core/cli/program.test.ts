import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { networkReason } from '../../../src/errors.js';
import { programName } from '../../../src/runtime/program.js';

const folder = mkdtempSync(path.join(tmpdir(), 'program-'));
const local = path.join(folder, 'node_modules', '.bin');
const everywhere = path.join(folder, 'bin');
for (const bin of [local, everywhere]) {
  mkdirSync(bin, { recursive: true });
  writeFileSync(path.join(bin, 'palimpsest'), '');
}
afterAll(() => rmSync(folder, { recursive: true }));

describe('how a command is typed', () => {
  it.each([
    ['where the command is on the PATH', { PATH: `/nowhere:${everywhere}` }, 'palimpsest'],
    ['in a project that has it installed', { PATH: '/nowhere' }, 'npx palimpsest'],
    [
      'in what npx or a script of npm started',
      { PATH: local, npm_lifecycle_event: 'npx', npm_package_name: 'shop' },
      'npx palimpsest',
    ],
    [
      'in a checkout',
      { PATH: '/nowhere', npm_lifecycle_event: 'start', npm_package_name: 'palimpsest' },
      'npm run -s palimpsest --',
    ],
  ])('%s', (_, env, name) => {
    expect(programName(env)).toBe(name);
  });
});

describe('why there is no connection', () => {
  const refused = Object.assign(new Error('connect ECONNREFUSED ::1:5432'), { code: 'ECONNREFUSED' });
  const circular: Error = new Error('turns round');
  circular.cause = circular;

  it.each([
    [refused, 'nothing listens at ::1:5432'],
    [
      Object.assign(new AggregateError([refused], ''), { code: 'ECONNREFUSED' }),
      'nothing listens at ::1:5432',
    ],
    [new TypeError('fetch failed', { cause: refused }), 'nothing listens at ::1:5432'],
    [
      new Error(
        '14 UNAVAILABLE: No connection established. Last error: connect ECONNREFUSED 127.0.0.1:7233. Resolution note: ',
      ),
      'nothing listens at 127.0.0.1:7233',
    ],
    [new Error('getaddrinfo ENOTFOUND nowhere.invalid'), 'there is no host nowhere.invalid'],
    [Object.assign(new Error('down'), { code: 'ECONNRESET' }), 'the connection broke'],
    [new Error('syntax error'), null],
    [circular, null],
    ['no error', null],
  ])('%s', (error, reason) => {
    expect(networkReason(error)).toBe(reason);
  });
});
