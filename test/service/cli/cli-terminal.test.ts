/** Widths in a terminal, colours, and the progress of long work. */
import { Writable } from 'node:stream';
import type { WriteStream } from 'node:tty';
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Progress } from '../../../src/cli/terminal/progress.js';
import {
  type Column,
  layout,
  padded,
  shortenEnd,
  shortenMiddle,
  widthOf,
  wrapped,
} from '../../../src/cli/terminal/table.js';
import { duration, moment, wholeNumber } from '../../../src/cli/terminal/numbers.js';
import { cliOf, runCli, stackEnv } from '../../support/cli.js';
import { program } from '../../support/compiled.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;
let cli: ReturnType<typeof cliOf>;
const session = 'customer-4711-of-a-platform-with-very-long-ids-0198f3aa-77d2-7cc1';

beforeAll(async () => {
  stack = await startStack();
  cli = cliOf(stack);
  for (const [index, messages] of dialogue(10, 100).entries())
    await stack.palimpsest.appendTurn({
      session,
      turnId: `t-${index}`,
      messages,
      ...(index === 0 ? { policy: smallPolicy } : {}),
    });
  await stack.palimpsest.settled({ session });
  await stack.palimpsest.compact({ session });
});

afterAll(() => stack?.stop());

const looks = [
  ['sessions'],
  ['status', session, '--knobs'],
  ['context', session],
  ['timeline', session],
  ['search', session, 'ledger'],
  ['archive', session],
  ['verify', session],
  ['doctor'],
  ['backfill', 'list'],
  ['policy', 'get', session],
];

describe.concurrent('no line is longer than the terminal', () => {
  for (const columns of [60, 80, 120])
    test(`${columns} columns`, async () => {
      for (const args of looks) {
        const { stdout } = await cli.run(args, { COLUMNS: String(columns) });
        const longest = Math.max(...stdout.split('\n').map(widthOf));
        expect([args[0], longest <= columns ? 'fits' : stdout]).toEqual([args[0], 'fits']);
      }
    });
});

test('help fits 80 columns, for every command', async () => {
  const { stdout } = await runCli(['--help']);
  const names = [...stdout.matchAll(/^ {2}([a-z]+)(?: [<[]| {2,})/gm)].map(([, name]) => name ?? '');
  expect(names).toEqual(
    expect.arrayContaining(['dev', 'worker', 'status', 'backfill', 'doctor', 'completion']),
  );
  for (const name of names) {
    const help = await runCli([name, '--help']);
    expect(help.code).toBe(0);
    const option = help.stdout.split('Examples:')[0] ?? '';
    expect([name, Math.max(...option.split('\n').map(widthOf)) <= 80]).toEqual([name, true]);
    expect(help.stdout.match(/^ {2}# /gm)?.length).toBeGreaterThanOrEqual(2);
  }
});

describe('colours', () => {
  const escape = '\u001B[';
  const inTerminal = (args: string[], env: NodeJS.ProcessEnv = {}) => {
    const line = [process.execPath, program('src/cli/main.ts'), ...args].map((part) => `'${part}'`).join(' ');
    const { stdout } = spawnSync('script', ['-qec', `stty cols 80; ${line}`, '/dev/null'], {
      cwd: fileURLToPath(new URL('../../..', import.meta.url)),
      env: { PATH: process.env.PATH, HOME: process.env.HOME, TERM: 'xterm', ...stackEnv(stack), ...env },
      encoding: 'utf8',
    });
    return stdout;
  };
  const args = () => ['sessions', '--tenant', stack.queuePrefix];
  const noScript = spawnSync('script', ['--version']).status !== 0;

  test('are not used in a pipe', async () => {
    expect((await cli.spawn(['doctor'])).stdout).not.toContain(escape);
  });

  test.skipIf(noScript)('are used in a terminal without NO_COLOR and --no-color; ids fit its width', () => {
    const shown = inTerminal(args());
    expect(shown).toContain(escape);
    expect(shown).toContain('…');
    expect(inTerminal(args(), { NO_COLOR: '1' })).not.toContain(escape);
    expect(inTerminal([...args(), '--no-color'])).not.toContain(escape);
    expect(inTerminal([...args(), '--json'])).not.toContain(escape);
  });
});

describe('tables', () => {
  const tableLines = <Row>(
    columns: readonly Column<Row>[],
    rows: readonly Row[],
    width: number,
  ): string[] => {
    const { head, line } = layout(columns, rows, width);
    return [head, ...rows.map(line)];
  };
  const columns: Column<[string, number, string]>[] = [
    { head: 'id', value: ([id]) => id, least: 6, shorten: 'middle' },
    { head: 'size', value: ([, size]) => String(size), align: 'right' },
    { head: 'text', value: ([, , text]) => text, least: 4, shorten: 'end', dispensable: 1 },
  ];

  test('are never wider than requested, for any cells', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.string({ unit: 'grapheme' }), fc.nat(), fc.string({ unit: 'grapheme' })), {
          minLength: 1,
        }),
        fc.integer({ min: 10, max: 200 }),
        (rows, width) => {
          for (const line of tableLines(columns, rows, width))
            expect(widthOf(line)).toBeLessThanOrEqual(width);
        },
      ),
    );
  });

  test('shorten ids in the middle and texts at the end, and align numbers right', () => {
    expect(
      tableLines(
        columns,
        [
          ['0198f3aa-77d2', 12, 'a long text'],
          ['b', 3_456, 'c'],
        ],
        24,
      ),
    ).toEqual(['id        size  text', '0198…7d2    12  a long …', 'b         3456  c']);
  });

  test('wide characters take two columns, combining ones none', () => {
    expect(['日本', 'e\u0301', 'a', 'ｶﾅ', '👨‍👩‍👧'].map(widthOf)).toEqual([4, 1, 1, 2, 2]);
    expect(padded('日', 4, 'right')).toBe('  日');
    expect(shortenMiddle('日本語の長い名前', 7)).toBe('日…名前');
    expect(shortenEnd('abcdef', 4)).toBe('abc…');
    expect(shortenEnd('👨‍👩‍👧👨‍👩‍👧', 3)).toBe('👨‍👩‍👧…');
    expect(wrapped('日本 a', 1)).toEqual(['日', '本', 'a']);
    expect(wrapped('ab', 0)).toEqual(['a', 'b']);
    expect(wrapped('one two threeeeeeeeee', 6)).toEqual(['one', 'two', 'threee', 'eeeeee', 'e']);
    expect(wrapped('  a hint', 5)).toEqual(['  a', 'hint']);
  });
});

describe('progress', () => {
  const streamOf = (tty: boolean) => {
    let written = '';
    const stream = Object.assign(
      new Writable({
        write: (chunk: Buffer, _, done) => {
          written += chunk.toString();
          done();
        },
      }),
      { isTTY: tty, columns: 60, cursorTo() {}, clearLine() {}, moveCursor() {} },
    ) as unknown as WriteStream;
    return { stream, text: () => written };
  };
  const until = (condition: () => boolean) =>
    new Promise<void>((resolve) => {
      const timer = setInterval(() => condition() && (clearInterval(timer), resolve()), 5);
    });

  test('without a terminal: a plain line at intervals, with rate and remaining time', async () => {
    const { stream, text } = streamOf(false);
    const progress = new Progress({ unit: 'messages', stream, lineEveryMs: 300 });
    const started = Date.now();
    await until(() => {
      progress.update(Math.min(500, Date.now() - started), 1_000, 'session s-1');
      return Date.now() - started > 700;
    });
    progress.stop();
    expect(text()).toMatch(/^\d+ % · \d+ of 1,000 messages · [\d,.]+\/s · \d+ s left · session s-1\n/);
    expect(text().split('\n').length).toBeLessThanOrEqual(4);
    expect(text()).not.toContain('\u001B');
  });

  test('in a terminal: a bar that fits', async () => {
    const { stream, text } = streamOf(true);
    const progress = new Progress({ unit: 'messages', stream });
    const started = Date.now();
    await until(() => {
      progress.update(Date.now() - started, 2_000, 'a-session-with-a-very-long-id-that-goes-on-and-on');
      return Date.now() - started > 700;
    });
    progress.stop();
    expect(text()).toMatch(/█+·+ {2}\d+ % · [\d,]+ of 2,000 messages · [\d,.]+\/s · \d+ s left/);
  });
});

describe('numbers', () => {
  test('whole numbers, lengths of time, moments', () => {
    expect(wholeNumber('12,000', '--x')).toBe(12_000);
    expect(() => wholeNumber('-1', '--x')).toThrow('--x must be a whole number');
    expect(['30', '500ms', '1.5m', '2h'].map((text) => duration(text, '--x'))).toEqual([
      30_000, 500, 90_000, 7_200_000,
    ]);
    expect(moment('2026-01-31', '--x')).toBe('2026-01-31T00:00:00.000Z');
    expect(Date.parse(moment('30d', '--x'))).toBeLessThan(Date.now() - 29 * 86_400_000);
    expect(() => moment('yesterday', '--x')).toThrow('--x must be a time');
  });
});
