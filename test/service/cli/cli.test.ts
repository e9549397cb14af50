/**
 * The command line for people and scripts: a real process with real servers in a separate folder. The tests check its output on
 * both streams and its exit codes.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Writable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { inBatches } from '../../../src/cli/play/dev.js';
import { parseSizes } from '../../../src/config/policy-sources.js';
import { policyFromFlags } from '../../../src/cli/command/flags.js';
import { storedSessionId } from '../../../src/cli/play/player.js';
import { Screen } from '../../../src/cli/terminal/progress.js';
import { PalimpsestError } from '../../../src/errors.js';
import { stopPostgres } from '../../../src/runtime/postgres.js';
import { stopTemporal } from '../../../src/runtime/temporal.js';
import { CliProcess } from '../../support/cli.js';
import { program } from '../../support/compiled.js';
import { document } from '../../support/documents.js';
import { startModelServer } from '../../support/model-server.js';

const folder = mkdtempSync(path.join(tmpdir(), 'cli-'));
const dataDir = path.join(folder, 'data');
const processes = new Set<ChildProcess>();

beforeAll(() => {
  writeFileSync(path.join(folder, 'talk.json'), JSON.stringify(talk(4)));
  const lines = [
    { id: 'first', messages: talk(40) },
    { id: 'broken', messages: [{ role: 'robot', content: 'x' }] },
    {
      id: 'last',
      messages: [
        { role: 'user', content: 'Hi' },
        { role: 'tool', content: 'nobody asked', tool_call_id: 'call_x' },
      ],
    },
  ];
  writeFileSync(path.join(folder, 'day.jsonl'), lines.map((line) => JSON.stringify(line)).join('\n'));
});

afterAll(async () => {
  for (const child of processes) child.kill('SIGKILL');
  await Promise.all([stopPostgres(dataDir), stopTemporal(dataDir)]);
  rmSync(folder, { recursive: true, force: true });
});

function talk(rounds: number) {
  return Array.from({ length: rounds }, (_, round) => [
    {
      role: 'user',
      content: `Question ${round}: what became of order ORD-${1000 + round}? ${'It was promised for Monday. '.repeat(12)}`,
    },
    {
      role: 'assistant',
      content: `Order ORD-${1000 + round} left depot D-${round}. ${'It is on its way by rail. '.repeat(12)}`,
    },
  ]).flat();
}

/** With the data of this file, and ended with it. */
class Cli extends CliProcess {
  constructor(args: string[], env: NodeJS.ProcessEnv = {}) {
    super(args, { PALIMPSEST_DATA: dataDir, ...env });
    processes.add(this.child);
    this.child.once('close', () => processes.delete(this.child));
  }

  kill(signal: NodeJS.Signals): void {
    this.child.kill(signal);
  }
}

const run = (args: string[], env?: NodeJS.ProcessEnv) => new Cli(args, env).ended;

interface SessionLine {
  session: string;
  messages: number;
  window: number;
  budget: number;
  tokens: number;
  compactions: Record<string, unknown>[];
  replay: { messages: number; identical: boolean };
  context: unknown[];
  warnings?: { index: number; type: string }[];
  error?: { type: string; message: string; path?: string };
}

const linesOf = (stdout: string) =>
  stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as SessionLine);

describe('flags', () => {
  test('sizes: share, tokens, messages, pairs, JSON', () => {
    expect(parseSizes('0.85', '--trigger')).toEqual({ fraction: 0.85 });
    expect(parseSizes('6000', '--trigger')).toEqual({ tokens: 6000 });
    expect(parseSizes('6', '--keep')).toEqual({ messages: 6 });
    expect(parseSizes('tokens=6000,messages=40', '--trigger')).toEqual({ tokens: 6000, messages: 40 });
    expect(parseSizes('[{"messages": 40}, {"fraction": 0.5}]', '--trigger')).toEqual([
      { messages: 40 },
      { fraction: 0.5 },
    ]);
  });

  test('several triggers are alternatives; given values override defaults', () => {
    const policy = policyFromFlags(
      { trigger: ['6000', 'messages=40'], keep: '6', window: '16,000' },
      { contextWindow: 9_000, target: 0.5 },
    );
    expect(policy).toEqual({
      contextWindow: 16_000,
      target: 0.5,
      trigger: [{ tokens: 6000 }, { messages: 40 }],
      keep: { messages: 6 },
    });
  });

  test.each([
    [{ trigger: ['1.5'] }, 'policy.trigger[0].fraction'],
    [{ trigger: ['often'] }, '--trigger'],
    [{ keep: '{"message": 4}' }, 'policy.keep.message'],
    [{ window: '-1' }, '--window'],
    [{ window: '8000', policy: '{"overhead": 9000}' }, 'policy.contextWindow'],
    [{ policy: '{"windows": 1}' }, 'policy.windows'],
    [{ policy: 'nowhere.json' }, '--policy'],
  ])('%j is refused at %s', (flags, at) => {
    expect(() => policyFromFlags(flags)).toThrow(PalimpsestError);
    try {
      policyFromFlags(flags);
    } catch (error) {
      expect(error).toMatchObject({ type: 'Input.Invalid', path: at });
    }
  });

  test('a session is stored under its id and a hash of messages and policy', () => {
    const messages = [{ role: 'user' as const, content: 'Hi' }];
    const id = storedSessionId({ id: 'talk', messages }, {});
    expect(id).toMatch(/^talk~[0-9a-f]{8}$/);
    expect(storedSessionId({ id: 'talk', messages }, {})).toBe(id);
    expect(storedSessionId({ id: 'talk', messages }, { contextWindow: 8_000 })).not.toBe(id);
    const wild = storedSessionId({ id: `\u0000\uD800${'ü'.repeat(300)}`, messages }, {});
    expect(encodeURIComponent(wild).length).toBeLessThanOrEqual(200);
    const endless = storedSessionId({ id: '🦊'.repeat(200_000), messages }, {});
    expect(endless).toMatch(/^(?:🦊){15}~[0-9a-f]{8}$/u);
  });
});

describe('wrong usage and missing input end before anything is started', () => {
  test.each([
    [['dev', '--bogus'], 2, /unknown option/],
    [['dev', '--trigger', '1.5'], 2, /policy\.trigger\[0\]\.fraction/],
    [['dev', '--out', '/nowhere/at/all.json'], 2, /--out/],
    [['dev', '-', '-'], 2, /Standard input/],
    [['dev', '--no-play', 'nowhere.jsonl'], 2, /--no-play plays no transcript, but a FILE is given/],
    [['dev', '--no-play', '--once'], 2, /--no-play plays no transcript, but --once is given/],
    [['dev', 'nowhere.jsonl'], 2, /The file does not exist: nowhere\.jsonl\n {2}Give files/],
    [
      ['dev', 'nowhere.jsonl', '--json'],
      2,
      /^\{"session":"nowhere",.*"path":"nowhere\.jsonl","hint":"Give files, folders/m,
    ],
    [['migrate'], 2, /DATABASE_URL is not set/],
  ])('%j', async (args, code, message) => {
    const untouched = path.join(folder, `untouched-${args.join('').replaceAll('/', '')}`);
    const ended = await run(args, { PALIMPSEST_DATA: untouched });
    expect(ended.stdout + ended.stderr).toMatch(message);
    expect(ended.code).toBe(code);
    expect(existsSync(untouched)).toBe(false);
  });
});

describe('servers that do not answer', () => {
  test('PostgreSQL', async () => {
    const env = { DATABASE_URL: 'postgres://u:secret@127.0.0.1:1/x', TEMPORAL_ADDRESS: '127.0.0.1:1' };
    const ended = await run(['dev', '--json', path.join(folder, 'talk.json')], env);
    expect(ended.code).toBe(1);
    expect(linesOf(ended.stdout)).toEqual([
      {
        session: 'talk',
        error: {
          ...{ type: 'Store.Unavailable', message: expect.stringContaining('127.0.0.1:1') as string },
          hint: expect.stringContaining('DATABASE_URL') as string,
        },
      },
    ]);
    expect(ended.stderr).toMatch(/Store\.Unavailable/);
    expect(ended.stdout + ended.stderr).not.toContain('secret');
  });
});

test('a data folder that cannot be made is one clear error', async () => {
  const file = path.join(folder, 'talk.json');
  const ended = await run(['dev', '--once', file], { PALIMPSEST_DATA: path.join(file, 'data') });
  expect(ended.stderr).toMatch(
    /^Input\.Invalid: The data folder .*talk\.json\/data cannot be used: ENOTDIR/m,
  );
  expect(ended.stderr).not.toMatch(/^ +at /m);
  expect(ended.code).toBe(2);
});

test('ids and messages cannot control the terminal', () => {
  let shown = '';
  const stream = new Writable({
    write: (chunk: Buffer, _, done) => {
      shown += chunk.toString();
      done();
    },
  });
  new Screen(stream).line('a\u0000\u001B[2J\u009B\u202Eb\n\tc');
  expect(shown).toBe('a\uFFFD\uFFFD[2J\uFFFD\uFFFDb\n\uFFFDc\n');
});

/** One data folder for consecutive runs: each builds on the data of the last one. */
describe.sequential('a user plays sessions', () => {
  test('the bundled session compacts at least three times and replays identically', async () => {
    const { code, stdout, stderr } = await run(['dev', '--once']);
    expect(stderr).toBe('');
    expect(stdout).toMatch(/PostgreSQL {2}127\.0\.0\.1:\d+\/palimpsest \(embedded/);
    expect(stdout).toMatch(/Temporal UI http:\/\//);
    expect(stdout).toMatch(/deterministic extractive summarizer \(no OPENAI_API_KEY\)/);
    expect(stdout.match(/^turn +\d+\/41 /gm)).toHaveLength(41);
    expect(stdout).toMatch(/compacting → generation 1/);
    expect((stdout.match(/^ {2}compacted [\d,]+ → [\d,]+ tokens/gm) ?? []).length).toBeGreaterThanOrEqual(3);
    expect((stdout.match(/^│ \d │ trigger │ extractive/gm) ?? []).length).toBeGreaterThanOrEqual(3);
    expect(stdout).toMatch(
      / 1 {2}http:\/\/127\.0\.0\.1:\d+\/namespaces\/default\/workflows\/compaction%2F.*\/history/,
    );
    expect(stdout).toMatch(/messages\[\d+\]: reused_id/);
    expect(stdout).toMatch(/^replay: 147 messages, identical$/m);
    // The later lines of the documented output depend on the speed of the machine.
    const documented =
      document('docs/cli.md').match(/^(?:Schema|session debugging|turn +[12]\/|replay).*$/gm) ?? [];
    expect(documented).toHaveLength(5);
    for (const line of documented) expect(stdout).toContain(`\n${line}\n`);
    // Under load, reductions may come first.
    const first = /^ {2}compacted .* generation 1, 25 messages into archive part 1$/m.exec(stdout)?.[0];
    for (const page of first === undefined ? [] : ['README.md', 'docs/cli.md'])
      expect(document(page)).toContain(`\n${first}\n`);
    expect(code).toBe(0);
  });

  test('a second start continues after the stored turns', async () => {
    const { code, stdout } = await run(['dev', '--once']);
    expect(stdout).toMatch(/continues: 41 of 41 turns are stored already/);
    expect(stdout).not.toMatch(/^ {2}compacted/m);
    expect(stdout).not.toContain('resummarize');
    expect((stdout.match(/^│ \d │ trigger │ extractive/gm) ?? []).length).toBeGreaterThanOrEqual(3);
    expect(stdout).toMatch(/^replay: 147 messages, identical$/m);
    expect(code).toBe(0);
  });

  test('a start with a model says how its summaries replace the stored ones, until they have', async () => {
    const model = await startModelServer();
    const env = {
      ...{ OPENAI_API_KEY: 'test', OPENAI_BASE_URL: model.url, PALIMPSEST_SUMMARY_MODEL: 'test-summarizer' },
      PALIMPSEST_API_PORT: '0',
    };
    const stop = async (cli: Cli) => {
      cli.kill('SIGINT');
      expect(await cli.ended).toMatchObject({ code: 0 });
    };
    try {
      const first = new Cli(['dev'], env);
      await first.shows(/until Ctrl-C/);
      expect(first.stdout).toMatch(/or start with PALIMPSEST_DATA=FOLDER/);
      expect(model.requests).toEqual([]);
      const [, command = ''] = /^ {2}npx palimpsest (resummarize \S+)$/m.exec(first.stdout) ?? [];
      const { code, stdout } = await run(command.split(' '), env);
      expect(stdout).toMatch(/resummarize/);
      expect(code).toBe(0);
      expect(model.requests).not.toEqual([]);
      await stop(first);
      const second = new Cli(['dev'], env);
      await second.shows(/until Ctrl-C/);
      expect(second.stdout).toMatch(/continues: 41 of 41/);
      expect(second.stdout).not.toContain('resummarize debugging');
      await stop(second);
    } finally {
      await model.close();
    }
  });

  test('--json: one object per session as soon as it is done, progress on stderr, exit code 1 for an error', async () => {
    const out = path.join(folder, 'context.json');
    const inputs = ['day.jsonl', 'nowhere.json', 'talk.json'].map((name) => path.join(folder, name));
    const ended = await run(['dev', '--json', '--window', '4000', '--out', out, ...inputs]);
    const order = ['first', 'broken', 'last', 'nowhere', 'talk'];
    const lines = linesOf(ended.stdout).sort((a, b) => order.indexOf(a.session) - order.indexOf(b.session));
    expect(lines.map(({ session }) => session)).toEqual(order);
    expect(ended.code).toBe(1);

    const first = lines[0]!;
    const keys = ['session', 'messages', 'window', 'budget', 'tokens', 'compactions', 'replay', 'context'];
    expect(Object.keys(first)).toEqual(keys);
    expect(first).toMatchObject({
      messages: 80,
      window: 4000,
      budget: 3500,
      replay: { messages: 80, identical: true },
    });
    expect(first.tokens).toBeLessThanOrEqual(first.budget);
    expect(first.compactions.length).toBeGreaterThan(0);
    const compactionKeys =
      'generation reason method tokensBefore tokensAfter evicted chunks chunksByRule modelCalls modelInputTokens modelOutputTokens modelMs overheadMs archivePart savedPerTurn cost currency paysBackAfter run';
    expect(Object.keys(first.compactions[0]!)).toEqual(compactionKeys.split(' '));
    expect(first.compactions[0]).toMatchObject({
      generation: 1,
      reason: 'trigger',
      method: 'extractive',
      archivePart: 1,
    });

    expect(lines[1]!.error).toMatchObject({ type: 'Input.Invalid', path: 'messages[0].role' });
    expect(lines[2]).toMatchObject({
      messages: 2,
      warnings: [{ index: 1, type: 'orphan_result' }],
      replay: { identical: true },
    });
    expect(lines[3]!.error).toMatchObject({ type: 'Input.Invalid' });
    const written = JSON.parse(readFileSync(out, 'utf8')) as { session: string; messages: unknown[] }[];
    expect(written.map(({ session }) => session)).toEqual(['first', 'last', 'talk']);
    expect(written[0]!.messages).toEqual(first.context);
    expect(ended.stderr).toMatch(/5 sessions in .*: 3 succeeded, 2 failed/);
  });

  test('stays up after the last session; Ctrl-C ends it with exit code 0 and no server is left', async () => {
    const cli = new Cli(['dev', path.join(folder, 'talk.json')], {
      PALIMPSEST_METRICS_ADDRESS: '127.0.0.1:0',
    });
    await cli.shows(/until Ctrl-C/);
    const api = /HTTP API +(\S+)/.exec(cli.stdout)?.[1] ?? '';
    const own = /Metrics +(\S+)/.exec(cli.stdout)?.[1] ?? '';
    expect((await fetch(`${api}/healthz`)).status).toBe(200);
    for (const url of [`${api}/metrics`, own]) {
      const text = await (await fetch(url)).text();
      expect(text).toMatch(/^palimpsest_http_request_seconds_count\{.*healthz/m);
      expect(text).toMatch(/^temporal_/m);
    }
    const url = /http:\/\/127\.0\.0\.1:\d+/.exec(cli.stdout)?.[0] ?? '';
    expect((await fetch(url)).status).toBe(200);
    cli.kill('SIGINT');
    // The terminal and npm deliver the same press once more each.
    cli.kill('SIGINT');
    expect(await cli.ended).toMatchObject({ code: 0, signal: null });
    await expect(fetch(url)).rejects.toThrow();
  });

  test('a reader that closes the help early causes no error', async () => {
    const script = `"${process.execPath}" "${program('src/cli/main.ts')}" --help | head -1; echo "\${PIPESTATUS[0]}"`;
    const shell = spawn('bash', ['-c', script], { stdio: ['ignore', 'pipe', 'pipe'] });
    let [stdout, stderr] = ['', ''];
    shell.stdout.on('data', (piece: Buffer) => (stdout += piece.toString()));
    shell.stderr.on('data', (piece: Buffer) => (stderr += piece.toString()));
    await once(shell, 'close');
    expect(stdout.trim().split('\n').at(-1)).toBe('0');
    expect(stderr).toBe('');
  });

  test('with --json a finished session is printed while a slower one before it still plays', async () => {
    let finishSlow = (): void => {};
    const slow = new Promise<void>((resolve) => (finishSlow = resolve));
    const told: string[] = [];
    const { signal } = new AbortController();
    await inBatches(
      ['slow', 'quick'],
      { limit: 2, signal, ordered: false },
      async (name) => {
        if (name === 'slow') await slow;
        return name;
      },
      (name) => {
        told.push(name);
        if (name === 'quick') finishSlow();
      },
    );
    expect(told).toEqual(['quick', 'slow']);
  });

  test('--settle lets each compaction commit first; --out names a folder', async () => {
    const out = path.join(folder, 'contexts');
    mkdirSync(out);
    const { code, stdout } = await run(['dev', '--once', '--settle', '--window', '14000', '--out', out]);
    expect(code).toBe(0);
    expect(stdout.match(/^ {2}compacted/gm)!.length).toBeGreaterThan(1);
    // No second turn meets the same compaction.
    const met =
      stdout.match(/^turn .*compacting → generation \d+/gm)?.map((line) => line.split(' ').at(-1)) ?? [];
    expect(new Set(met).size).toBe(met.length);
    const [name, ...others] = readdirSync(out);
    expect(others).toEqual([]);
    const written = JSON.parse(readFileSync(path.join(out, name!), 'utf8')) as Record<string, unknown>;
    expect(Object.keys(written)).toEqual([
      ...['session', 'context', 'calls', 'inputTokens', 'outputTokens', 'contextTokens'],
    ]);
  });

  test('an output file that cannot be written affects nothing else', async () => {
    const out = path.join(folder, 'o'.repeat(300));
    const { code, stdout } = await run(['dev', '--once', '--out', out, path.join(folder, 'talk.json')]);
    expect(stdout).toMatch(/^replay: 8 messages, identical$/m);
    expect(stdout).toMatch(/^--out: the context could not be written: ENAMETOOLONG/m);
    expect(code).toBe(1);
  });

  test.each([
    ['PostgreSQL', 'Store', () => readFileSync(path.join(dataDir, 'postgres', 'postmaster.pid'), 'utf8')],
    [
      'Temporal server',
      'Temporal',
      () =>
        String(
          (JSON.parse(readFileSync(path.join(dataDir, 'temporal.json'), 'utf8')) as { pid: number }).pid,
        ),
    ],
  ])('an embedded %s that is killed ends the job with its name', async (name, type, pidOf) => {
    const cli = new Cli(['dev', path.join(folder, 'talk.json')]);
    await cli.shows(/until Ctrl-C/);
    process.kill(Number.parseInt(pidOf()), 'SIGKILL');
    const { code, stderr } = await cli.ended;
    expect(stderr).toMatch(
      new RegExp(`^${type}\\.Unavailable: The embedded ${name} has ended\\.\\n  Start again`, 'm'),
    );
    expect(code).toBe(1);
  });
});
