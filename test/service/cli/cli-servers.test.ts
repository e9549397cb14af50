/**
 * Commands for servers: `worker` by role, `api`, `migrate`, `doctor`, commands over HTTP, the embedded servers of a running
 * `dev`, and completion as bash requests it.
 */
import { randomBytes } from 'node:crypto';
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { connectClient } from '../../../src/temporal/connection.js';
import { HttpPalimpsest } from '../../../src/http-client/client.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { sweepId } from '../../../src/temporal/names.js';
import { stopPostgres } from '../../../src/runtime/postgres.js';
import { stopTemporal } from '../../../src/runtime/temporal.js';
import { CliProcess, cliOf, databaseEnv, linesOf, runCli, stackEnv } from '../../support/cli.js';
import { program } from '../../support/compiled.js';
import { createDatabase } from '../../support/database.js';
import { dialogue } from '../../support/dialogue.js';
import { roleUrls } from '../../support/pool.js';
import { startStack, type Stack } from '../../support/stack.js';
import { uniqueQueuePrefix } from '../../support/temporal.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(path.join(tmpdir(), 'cli-servers-'));
const running = new Set<CliProcess>();
let stack: Stack;
let cli: ReturnType<typeof cliOf>;

beforeAll(async () => {
  stack = await startStack();
  cli = cliOf(stack);
  for (const [index, messages] of dialogue(2, 20).entries())
    await stack.palimpsest.appendTurn({ session: 'talk-1', turnId: `t-${index}`, messages });
  await stack.palimpsest.settled({ session: 'talk-1' });
});

afterAll(async () => {
  for (const { child } of running) child.kill('SIGKILL');
  await stack?.stop();
  rmSync(folder, { recursive: true, force: true });
});

function started(process: CliProcess): CliProcess {
  running.add(process);
  void process.ended.then(() => running.delete(process));
  return process;
}

interface Check {
  check: string;
  level: 'ok' | 'warn' | 'fail';
  detail: string;
  next?: string;
}

const doctorOf = async (env: NodeJS.ProcessEnv, args: string[] = []) => {
  const { stdout, code } = await runCli(['doctor', '--json', ...args], env);
  const [report] = linesOf<{ ok: boolean; checks: Check[] }>(stdout);
  return { code, ok: report?.ok, of: (name: string) => report?.checks.find(({ check }) => check === name) };
};

describe('doctor', () => {
  test('a sound deployment: each part with its version and pollers, one call to the model', async () => {
    const asked = stack.model.requests.length;
    const env = {
      ...cli.env,
      OPENAI_API_KEY: 'test',
      OPENAI_BASE_URL: stack.model.url,
      PALIMPSEST_SUMMARY_MODEL: 'test-summarizer',
    };
    const { code, stdout } = await runCli(['doctor'], env);
    for (const line of [
      /^ok +Node +\d+\./,
      /^ok +PostgreSQL +\d+\.\d+ at 127\.0\.0\.1:\d+\/\S+ \(DATABASE_URL\)/,
      /^ok +schema +\d+ migrations applied, none pending/,
      /^ok +overdue +no session waits/,
      /^ok +lz4 /,
      /^ok +Temporal +1\.\d+/,
      /^ok +namespace +default/,
      /^ok +attributes +\d+ search attributes/,
      /^ok +queue workflow +\d+ polling test-\w+-wf/,
      /^ok +queue database /,
      /^ok +queue model /,
      /^ok +queue backfill +\d+ polling test-\w+-wf-backfill/,
      /^ok +sweep +sweep\/test-\w+, every 24 h/,
      /^ok +model +test-summarizer at .* answered in [\d.]+ s/,
      /^\d+ checks: \d+ ok, 0 warnings, 0 failed/,
    ])
      expect(stdout).toMatch(new RegExp(line.source, 'm'));
    expect(code).toBe(0);
    expect(stack.model.requests.length).toBe(asked + 1);
  });

  test('without workers each queue fails with the command to run', async () => {
    const { code, ok, of } = await doctorOf({ ...cli.env, PALIMPSEST_QUEUE_PREFIX: uniqueQueuePrefix() });
    expect({ code, ok }).toEqual({ code: 1, ok: false });
    expect(of('queue model')).toMatchObject({
      level: 'fail',
      next: 'Start one: palimpsest worker --role model',
    });
    expect(of('sweep')).toMatchObject({
      level: 'fail',
      next: expect.stringContaining('palimpsest worker --role workflow') as string,
    });
    // Sessions are compacted without it.
    expect(of('queue backfill')).toMatchObject({
      level: 'warn',
      next: 'Start one: palimpsest worker --role backfill',
    });
    expect(of('model')).toMatchObject({
      level: 'warn',
      detail: expect.stringContaining('no API key') as string,
    });
  });

  test('a sweep that is paused, one that has ended, and sessions that wait', async () => {
    const { queuePrefix, ownerUrl, temporal } = stack;
    const client = await connectClient(temporal);
    const schedule = client.schedule.getHandle(sweepId(queuePrefix));
    const database = new pg.Client(ownerUrl);
    await database.connect();
    try {
      await schedule.pause('by an operator');
      expect((await doctorOf(cli.env, ['--no-model'])).of('sweep')).toMatchObject({
        ...{ level: 'warn', detail: expect.stringContaining('paused') as string },
      });
      await schedule.unpause();
      await schedule.trigger();
      const latest = async () =>
        (await schedule.describe()).info.recentActions.at(-1)?.action.workflow.workflowId;
      await expect.poll(latest).toBeDefined();
      await expect
        .poll(async () => (await doctorOf(cli.env, ['--no-model'])).of('sweep'))
        .toMatchObject({ level: 'ok', detail: expect.stringContaining('the last') as string });
      await database.query(
        `update palimpsest.sessions set measure_at_tokens = 1, overdue_at = now() - interval '1 hour'`,
      );
      expect((await doctorOf(cli.env, ['--no-model'])).of('overdue')).toMatchObject({
        ...{ level: 'warn', detail: '1 session, the longest for 60 min' },
      });
    } finally {
      await database.query('update palimpsest.sessions set overdue_at = null');
      await database.end();
      await client.connection.close();
    }
  });

  test('a model endpoint that refuses, PostgreSQL and Temporal that do not answer', async () => {
    const refused = await doctorOf({
      ...cli.env,
      OPENAI_API_KEY: 'test',
      OPENAI_BASE_URL: 'http://127.0.0.1:1/v1',
      PALIMPSEST_SUMMARY_MODEL: 'm',
    });
    expect(refused.of('model')).toMatchObject({
      level: 'fail',
      detail: expect.stringMatching(/Llm\.Unavailable/) as string,
    });
    const gone = await doctorOf(
      { DATABASE_URL: 'postgres://u:secret@127.0.0.1:1/x', TEMPORAL_ADDRESS: '127.0.0.1:1' },
      ['--no-model'],
    );
    expect(gone.code).toBe(1);
    expect(gone.of('PostgreSQL')?.detail).toMatch(/Store\.Unavailable/);
    expect(gone.of('Temporal')?.detail).toMatch(/Temporal\.Unavailable/);
    expect(gone.of('model')).toBeUndefined();
    expect(JSON.stringify(gone.of('PostgreSQL'))).not.toContain('secret');
  });

  test('migrations: pending, then applied; a database of a newer version', async () => {
    const database = await createDatabase();
    const env = { ...cli.env, ...databaseEnv(database.url) };
    const client = new pg.Client({ connectionString: database.ownerUrl });
    await client.connect();
    await client.query(`insert into palimpsest.migrations (hash, created_at) values ('new', 99999999999999)`);
    expect((await doctorOf(env, ['--no-model'])).of('schema')).toMatchObject({
      ...{ level: 'fail', next: expect.stringMatching(/Update this installation/) as string },
    });
    await client.query('drop schema palimpsest cascade');
    await client.end();
    expect((await doctorOf(env, ['--no-model'])).of('schema')).toMatchObject({
      ...{ level: 'fail', next: expect.stringMatching(/^Run `.*palimpsest migrate` first\.$/) as string },
    });
    const asOwner = { ...env, DATABASE_URL: database.ownerUrl };
    const applied = await runCli(['migrate', '--json'], asOwner);
    expect(linesOf<{ applied: number }>(applied.stdout)[0]?.applied).toBeGreaterThan(0);
    expect((await runCli(['migrate'], asOwner)).stdout).toBe('The schema is up to date.\n');
    await database.drop();
  });

  test('row-level security: bypassed by a superuser, in use by the roles, switched off for a table', async () => {
    const database = await createDatabase();
    const env = { ...cli.env, ...databaseEnv(database.url) };
    const alone = { ...cli.env, DATABASE_URL: database.ownerUrl };
    delete (alone as NodeJS.ProcessEnv)['PALIMPSEST_MAINTENANCE_URL'];
    delete (alone as NodeJS.ProcessEnv)['PALIMPSEST_ERASER_URL'];
    expect((await doctorOf(alone, ['--no-model'])).of('row security')).toMatchObject({
      ...{ level: 'warn', detail: 'forced, but the role palimpsest bypasses it' },
    });
    expect((await runCli(['migrate', '--roles'], alone)).stdout).toBe(
      'The roles palimpsest_migrator, palimpsest_app, palimpsest_maintenance, palimpsest_eraser serve this database.\n' +
        'The schema is up to date.\n',
    );
    expect((await doctorOf(env, ['--no-model'])).of('row security')).toMatchObject({
      ...{ level: 'ok', detail: 'forced; roles palimpsest_app, palimpsest_maintenance, palimpsest_eraser' },
    });
    const client = new pg.Client({ connectionString: database.ownerUrl });
    await client.connect();
    await client.query('alter table palimpsest.messages no force row level security');
    await client.end();
    expect((await doctorOf(env, ['--no-model'])).of('row security')).toMatchObject({
      ...{ level: 'fail', detail: expect.stringContaining('not enforced for messages') as string },
    });
    await database.drop();
  });

  test('warns of a variable that is no setting, as every command does on stderr', async () => {
    const env = { ...cli.env, PALIMPSEST_CONTEX_WINDOW: '9000' };
    const { of } = await doctorOf(env, ['--no-model']);
    expect(of('settings')).toMatchObject({
      ...{ level: 'warn', detail: 'PALIMPSEST_CONTEX_WINDOW is not a setting and is ignored' },
      next: 'Did you mean PALIMPSEST_CONTEXT_WINDOW?',
    });
    const { code, stdout, stderr } = await cli.run(['sessions', '--json'], env);
    expect(stderr).toBe(
      'warning: PALIMPSEST_CONTEX_WINDOW is not a setting and is ignored. Did you mean PALIMPSEST_CONTEXT_WINDOW?\n',
    );
    expect(code).toBe(0);
    expect(() => linesOf(stdout)).not.toThrow();
  });

  test('without servers one line gives the next step', async () => {
    const { stdout, code } = await runCli(['doctor']);
    expect(stdout).toMatch(/^FAIL +servers +.*DATABASE_URL is not set/m);
    expect(stdout).toMatch(/→ Start one with `.*palimpsest dev`/);
    expect(code).toBe(1);
  });
});

describe('token', () => {
  test('makes, lists and revokes tokens on PostgreSQL alone', async () => {
    const { eraserUrl = '' } = roleUrls(stack.databaseUrl);
    const env = {
      ...{ DATABASE_URL: stack.databaseUrl, PALIMPSEST_ERASER_URL: eraserUrl },
      TEMPORAL_ADDRESS: '127.0.0.1:1',
    };
    const token = (...args: string[]) => runCli(['token', ...args, '--tenant', 'acme'], env);
    const before = Date.now();
    const made = await token('create', 'agent', '--scope', 'read', '--scope', 'append', '--expires', '30d');
    expect(made.stdout).toMatch(/^plm_[\w-]{43}\n$/);
    const access = await stack.palimpsest.accessByToken(made.stdout.trim());
    expect(access).toEqual({ tenant: 'acme', scopes: ['append', 'read'] });
    const [json] = linesOf<{ id: string; token: string; expiresAt: string }>(
      (await token('create', 'nightly', '--scope', 'backfill', '--expires', '2999-01-31', '--json')).stdout,
    );
    expect(json).toMatchObject({ name: 'nightly', expiresAt: '2999-01-31T00:00:00.000Z', revokedAt: null });
    const listed = linesOf<{ name: string; expiresAt: string }>((await token('list', '--json')).stdout);
    expect(listed.map(({ name }) => name)).toEqual(['agent', 'nightly']);
    const days = (Date.parse(listed[0]?.expiresAt ?? '') - before) / 86_400_000;
    expect(Math.round(days)).toBe(30);
    const { id = '', token: secret = '' } = json ?? {};
    expect((await token('revoke', id)).stdout).toBe(`nightly (${id}) is revoked.\n`);
    expect(await stack.palimpsest.accessByToken(secret)).toBeNull();
    const { stdout } = await token('list');
    expect(stdout).toMatch(/valid for 30 d .*append read +agent\n.*revoked .*backfill +nightly\n$/);
    expect(stdout).not.toContain('plm_');
    expect((await runCli(['token', 'list'], env)).stderr).toMatch(/has no tokens/);
  });

  test.each([
    ['no scope', ['create', 'x'], /--scope/],
    ['an unknown scope', ['create', 'x', '--scope', 'write'], /append, read, policy/],
    ['a time that is past', ['create', 'x', '--scope', 'read', '--expires', '2001-01-01'], /past/],
    ['a time that is none', ['create', 'x', '--scope', 'read', '--expires', 'soon'], /after now/],
    ['no name', ['create', '--scope', 'read'], /name/],
  ])('%s is a wrong input', async (_, args, reason) => {
    const ended = await runCli(['token', ...args], { DATABASE_URL: stack.databaseUrl });
    expect([ended.code, ended.stdout]).toEqual([2, '']);
    expect(ended.stderr).toMatch(reason);
  });

  test('an unknown id is not found', async () => {
    const ended = await runCli(['token', 'revoke', 'nobody'], {
      DATABASE_URL: stack.databaseUrl,
      PALIMPSEST_ERASER_URL: roleUrls(stack.databaseUrl).eraserUrl ?? '',
    });
    expect(ended).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^Store\.TokenNotFound/) as string,
    });
  });
});

describe('over HTTP', () => {
  test('the same commands, by token', async () => {
    const token = randomBytes(32).toString('hex');
    const api = started(
      new CliProcess(['api', '--port', '0'], {
        ...cli.env,
        PALIMPSEST_API_TOKENS: `${stack.queuePrefix}:${token}`,
      }),
    );
    await api.shows(/API is listening/);
    const url = /http:\/\/127\.0\.0\.1:\d+/.exec(api.stdout)?.[0] ?? '';
    const env = { PALIMPSEST_URL: url, PALIMPSEST_TOKEN: token };
    const read = (args: string[], more: NodeJS.ProcessEnv = {}) => runCli(args, { ...env, ...more });

    expect(linesOf((await read(['sessions', '--json'])).stdout)).toMatchObject([{ session: 'talk-1' }]);
    const [status] = linesOf((await read(['status', 'talk-1', '--json'])).stdout);
    expect(status).toEqual(JSON.parse(JSON.stringify(await stack.palimpsest.status({ session: 'talk-1' }))));
    expect(linesOf((await read(['replay', 'talk-1', '--json'])).stdout)).toHaveLength(4);
    expect((await read(['verify'])).stdout).toMatch(/^1 session, 4 messages/);
    expect(await read(['status', 'nobody'])).toMatchObject({
      ...{ code: 1, stderr: expect.stringMatching(/^Store\.SessionNotFound/) as string },
    });
    const made = await read(['token', 'create', 'over-http', '--scope', 'read', '--json']);
    const [{ token: less = '' } = {}] = linesOf<{ token: string }>(made.stdout);
    expect(linesOf((await read(['sessions', '--json'], { PALIMPSEST_TOKEN: less })).stdout)).toHaveLength(1);
    expect((await read(['token', 'list'], { PALIMPSEST_TOKEN: less })).stderr).toMatch(
      /^Api\.Forbidden.*admin/,
    );
    expect((await read(['sessions'], { PALIMPSEST_TOKEN: 'wrong' })).stderr).toMatch(/^Api\.Unauthorized/);
    expect((await read(['timeline', 'talk-1'])).stdout).toMatch(
      /^talk-1: \d+ turns?, .* 0 compactions; context/,
    );
    expect((await read(['sessions', '--tenant', 'acme'])).stderr).toMatch(/the token names the tenant/);
    const schemeless = await read(['sessions'], { PALIMPSEST_URL: '127.0.0.1:7280' });
    expect(schemeless).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(
        /^Input\.Invalid: PALIMPSEST_URL is not an http\(s\) URL such as/,
      ) as string,
    });
    expect((await doctorOf(env)).of('API token')).toMatchObject({ level: 'ok' });
    expect((await doctorOf({ ...env, PALIMPSEST_TOKEN: 'wrong' })).of('API token')).toMatchObject({
      level: 'fail',
    });
    const metrics = await (await fetch(`${url}/metrics`)).text();
    expect(metrics).toMatch(/palimpsest_http_request_seconds_count\{.*route="\/v1\/sessions"/);

    api.child.kill('SIGTERM');
    expect(await api.ended).toMatchObject({ code: 0 });
    expect((await read(['sessions'])).stderr).toMatch(/^Api\.Unavailable/);
  });
});

test('worker --role serves the queues of its role only', async () => {
  const queuePrefix = uniqueQueuePrefix();
  const env = { ...stackEnv(stack), PALIMPSEST_QUEUE_PREFIX: queuePrefix, LOG_LEVEL: 'info' };
  const wrong = await runCli(['worker', '--role', 'cook'], env);
  expect(wrong).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/workflow, database, model/) as string,
  });
  const worker = started(new CliProcess(['worker', '--role', 'database', '--role', 'model'], env));
  await worker.shows(/worker is polling/);
  await expect.poll(async () => (await doctorOf(env, ['--no-model'])).of('queue model')?.level).toBe('ok');
  const checked = await doctorOf(env, ['--no-model']);
  expect(checked.of('queue database')?.level).toBe('ok');
  expect(checked.of('queue workflow')?.level).toBe('fail');
  worker.child.kill('SIGTERM');
  expect(await worker.ended).toMatchObject({ code: 0 });
});

describe('with a running dev', () => {
  const dataDir = path.join(folder, 'data');
  const talk = path.join(folder, 'talk.json');
  const env = { PALIMPSEST_DATA: dataDir };
  afterAll(() => Promise.all([stopPostgres(dataDir), stopTemporal(dataDir)]));

  test('that plays nothing, the servers run, and a client finds them by the environment', async () => {
    const dev = started(new CliProcess(['dev', '--no-play'], { ...env, PALIMPSEST_API_PORT: '0' }));
    await dev.shows(/until Ctrl-C[\s\S]*--help/);
    const [, url = ''] = /PALIMPSEST_URL=(\S+)/.exec(dev.stdout) ?? [];
    vi.stubEnv('PALIMPSEST_URL', url);
    const client = await HttpPalimpsest.connect();
    vi.unstubAllEnvs();
    expect((await client.sessions()).sessions).toEqual([]);
    dev.child.kill('SIGINT');
    expect(await dev.ended).toMatchObject({ code: 0 });
  });

  test('commands find its servers, and its API answers even if the port is in use; without it they say how to start one', async () => {
    writeFileSync(talk, JSON.stringify(dialogue(2, 20).flat()));
    const squatter = createServer();
    const port = await new Promise<number>((resolve) =>
      squatter.listen(0, '127.0.0.1', () => resolve((squatter.address() as { port: number }).port)),
    );
    const dev = started(new CliProcess(['dev', talk], { ...env, PALIMPSEST_API_PORT: String(port) }));
    await dev.shows(/until Ctrl-C[\s\S]*--help/);
    expect(dev.stdout).toMatch(
      new RegExp(
        `^HTTP API {4}http://127\\.0\\.0\\.1:\\d+ \\(tenant default, no token asked for; port ${port} is taken\\)$`,
        'm',
      ),
    );
    const curl = /curl (\S+)/.exec(dev.stdout)?.[1] ?? '';
    expect(await (await fetch(curl)).json()).toMatchObject({ messages: dialogue(2, 20).flat() });
    const log = path.join(dataDir, 'worker.log');
    await expect.poll(() => readFileSync(log, 'utf8')).toContain('"route":"/v1/sessions/:session/context"');
    const session = decodeURIComponent(/sessions\/([^/]+)\//.exec(curl)?.[1] ?? '');
    expect(dev.stdout).toContain(`palimpsest status ${session}`);
    expect(linesOf((await runCli(['sessions', '--json'], env)).stdout)).toMatchObject([{ session }]);
    const { of } = await doctorOf(env);
    expect(of('PostgreSQL')?.detail).toMatch(/\(embedded\)/);
    expect(of('disk')?.level).toBe('ok');
    expect(readFileSync(path.join(dataDir, '.gitignore'), 'utf8')).toBe('*\n');
    expect(dev.stdout).toMatch(/await Palimpsest\.connect\(\);\n {2}In this folder it needs no options/);
    expect(dev.stdout).toContain(`HttpPalimpsest.connect({ url: '${new URL(curl).origin}' })`);
    const beside = await new CliProcess(['dev', '--once', talk], env).ended;
    expect(beside.stdout).toMatch(
      new RegExp(
        `^Beside {6}other processes of this folder \\(pid ${dev.child.pid}\\).*\n +A worker with other`,
        'm',
      ),
    );
    expect(beside.stdout).toMatch(/with the same settings, or this one with another PALIMPSEST_DATA/);
    vi.stubEnv('PALIMPSEST_DATA', dataDir);
    const found = await Palimpsest.connect();
    expect((await found.context({ session })).messages).toEqual(dialogue(2, 20).flat());
    await found.close();
    dev.child.kill('SIGINT');
    expect(await dev.ended).toMatchObject({ code: 0 });
    squatter.close();
    await expect(Palimpsest.connect()).rejects.toMatchObject({ type: 'Input.Invalid', path: 'DATABASE_URL' });
    vi.unstubAllEnvs();
    const after = await runCli(['sessions', '--json'], env);
    expect(after.code).toBe(2);
    expect(linesOf(after.stdout)).toMatchObject([
      {
        error: {
          type: 'Input.Invalid',
          path: 'DATABASE_URL',
          hint: expect.stringMatching(/palimpsest dev`.*DATABASE_URL and TEMPORAL_ADDRESS/) as string,
        },
      },
    ]);
  });
});

describe('completion', () => {
  /** What bash offers for a line, as Readline would ask for it. */
  function completed(line: string): string[] {
    const main = program('src/cli/main.ts');
    const command = path.join(folder, 'palimpsest');
    writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' '${main}' "$@"\n`);
    chmodSync(command, 0o755);
    const script = `
      source <(palimpsest completion bash)
      COMP_LINE=${JSON.stringify(line)}
      COMP_POINT=\${#COMP_LINE}
      _palimpsest
      printf '%s\\n' "\${COMPREPLY[@]}"`;
    const { stdout, stderr } = spawnSync('bash', ['--norc', '-c', script], {
      cwd: root,
      env: { ...process.env, ...stackEnv(stack), PATH: `${folder}:${process.env.PATH}` },
      encoding: 'utf8',
    });
    expect(stderr.replace(/^npm warn.*\n/gm, '')).toBe('');
    return stdout.split('\n').filter(Boolean);
  }

  test('completes commands and subcommands', () => {
    expect(completed('palimpsest re')).toEqual(['replay', 'resummarize', 'restore', 'resume']);
    expect(completed('palimpsest backfill re')).toEqual(['resume', 'resize', 'retry']);
    expect(completed('palimpsest --json backfill st')).toEqual(['start', 'status']);
  });

  test('completes options of the command and of all commands', () => {
    expect(completed('palimpsest context talk --f')).toEqual(['--format']);
    expect(completed('palimpsest context --t')).toEqual(['--tenant', '--temporal-address', '--token']);
    expect(completed('palimpsest completion ')).toEqual(['bash', 'zsh', 'fish']);
    expect(completed('palimpsest context talk --budget ')).toEqual([]);
  });

  test('completes session ids of the tenant in the line', async () => {
    const tenant = ['--tenant', stack.queuePrefix];
    // Within 200 ms or not at all: on a busy machine one that has loaded everything.
    const ids = async () => (await runCli(['complete-sessions', ...tenant, 'ta'], cli.env)).stdout;
    await expect.poll(ids).toBe('talk-1\n');
    expect([[], ['talk-1']]).toContainEqual(completed(`palimpsest status ${tenant.join(' ')} ta`));
    expect(completed(`palimpsest status ${tenant.join(' ')} talk-1 `)).toEqual([]);
  });

  test('completes nothing, without an error, if nothing answers', async () => {
    const { code, stdout, stderr } = await runCli(['complete-sessions', 'a'], {
      DATABASE_URL: 'postgres://u@127.0.0.1:1/x',
    });
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: '', stderr: '' });
  });

  test.each(['zsh', 'fish'])('%s reads its script', async (shell) => {
    const { stdout, code } = await runCli(['completion', shell]);
    expect(code).toBe(0);
    expect(stdout).toContain('complete-sessions');
    const check = spawnSync(shell, ['-n', '-c', stdout], { encoding: 'utf8' });
    // Absent from this machine: nothing to ask.
    if (check.error === undefined) expect({ shell, errors: check.stderr }).toEqual({ shell, errors: '' });
  });

  test('another shell is refused', async () => {
    expect(await runCli(['completion', 'tcsh'])).toMatchObject({ code: 2 });
  });
});
