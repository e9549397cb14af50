/**
 * `npm run fuzz -- --seed N --inputs N`: half of the inputs for the parsers, half for an API with its own servers. The exit code
 * is 1 if anything is found. `--only parsers|http`, `--target NAME --at INDEX` repeat a part.
 */
import { randomBytes } from 'node:crypto';
import { fork, type ChildProcess } from 'node:child_process';
import { chmodSync, createWriteStream, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { HttpPalimpsest } from '../../src/http-client/index.js';
import { Palimpsest } from '../../src/library/palimpsest.js';
import { contextFormatOf } from '../../src/formats/index.js';
import type { Json } from '../../src/conversation/message.js';
import { isFailure } from '../../src/errors.js';
import { defaultCacheDir } from '../../src/runtime/cache-dir.js';
import { freePort } from '../../src/runtime/ports.js';
import { startPostgres, stopPostgres } from '../../src/runtime/postgres.js';
import { startTemporal, stopTemporal } from '../../src/runtime/temporal.js';
import { migrate } from '../../src/store/connection/migrate.js';
import { passwordsFor, urlsFor } from '../../src/store/connection/roles.js';
import { searchAttributeTypes } from '../../src/temporal/names.js';
import { leashed, leashServers } from '../support/leash.js';
import { fuzzHttp } from './http.js';
import { type Finding, fuzzParsers, longestStallMs } from './parsers.js';
import { checkSoundness } from './sound.js';

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    inputs: { type: 'string', default: '2000' },
    only: { type: 'string' },
    target: { type: 'string' },
    at: { type: 'string' },
  },
});
const seed = Number(values.seed);
const inputs = Number(values.inputs);
if (!Number.isSafeInteger(seed) || !(Number.isSafeInteger(inputs) && inputs > 0))
  throw new Error('--seed and --inputs are whole numbers');

const say = (line: string): void => void process.stdout.write(`${line}\n`);
const findings: Finding[] = [];
const half = values.only === undefined ? Math.ceil(inputs / 2) : inputs;

if (values.only !== 'http') {
  const only = values.target === undefined ? {} : { only: values.target };
  const report = await fuzzParsers({
    seed,
    inputs: half,
    ...only,
    ...(values.at === undefined ? {} : { at: Number(values.at) }),
  });
  for (const [name, { accepted, refused, longestMs }] of Object.entries(report.targets))
    say(`${name.padEnd(26)} ${accepted} accepted, ${refused} refused, at most ${Math.round(longestMs)} ms`);
  findings.push(...report.findings);
}
if (values.only !== 'parsers') await fuzzApi();

for (const { target, index, problem } of findings.slice(0, 50)) say(`FOUND ${target} #${index}: ${problem}`);
say(`${findings.length} found with seed ${seed}`);
process.exit(findings.length > 0 ? 1 : 0);

async function fuzzApi(): Promise<void> {
  const dataDir = leashServers(mkdtempSync(path.join(os.tmpdir(), 'palimpsest-fuzz-')));
  // If this process is root, PostgreSQL runs under another account, which needs access.
  chmodSync(dataDir, 0o755);
  const log = () => undefined;
  const [postgres, temporal, port] = await Promise.all([
    startPostgres({ dataDir, log, settings: { fsync: 'off', full_page_writes: 'off' } }),
    startTemporal({
      dataDir,
      log,
      cacheDir: defaultCacheDir(),
      ui: false,
      searchAttributes: searchAttributeTypes,
    }),
    freePort(),
  ]);
  const children: ChildProcess[] = [];
  try {
    await migrate(postgres.url, { roles: passwordsFor(postgres.url) });
    const { databaseUrl, maintenanceUrl, eraserUrl } = urlsFor(postgres.url);
    const token = randomBytes(32).toString('hex');
    const stalls: Record<string, number> = {};
    let ending = false;
    const start = (name: string, env: Record<string, string>) => {
      const child = leashed(
        fork(fileURLToPath(new URL('watched-process.ts', import.meta.url)), [name], {
          execArgv: ['--import', 'tsx'],
          env: {
            ...{ PATH: process.env['PATH'], HOME: process.env['HOME'] },
            ...{ DATABASE_URL: databaseUrl, PALIMPSEST_ERASER_URL: eraserUrl },
            ...{
              PALIMPSEST_MAINTENANCE_URL: maintenanceUrl,
              TEMPORAL_ADDRESS: temporal.address,
              LOG_LEVEL: 'warn',
            },
            ...env,
          },
          stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
        }),
      );
      const logFile = createWriteStream(path.join(os.tmpdir(), `palimpsest-fuzz-${name}-${seed}.log`));
      child.stdout?.pipe(logFile, { end: false });
      child.stderr?.pipe(logFile, { end: false });
      // The first seconds load the program.
      const from = Date.now() + 10_000;
      child.on('message', (message: { stalledMs?: number; unhandled?: string }) => {
        if (message.unhandled !== undefined)
          findings.push({ target: name, index: -1, problem: message.unhandled });
        if (message.stalledMs !== undefined && Date.now() > from)
          stalls[name] = Math.max(stalls[name] ?? 0, message.stalledMs);
      });
      child.on('exit', (code, signal) => {
        if (!ending) findings.push({ target: name, index: -1, problem: `ended: ${code ?? signal}` });
      });
      children.push(child);
    };
    start('worker', {});
    // Limits refuse work on purpose, which would hide what is behind them.
    start('api', {
      PALIMPSEST_API_PORT: String(port),
      PALIMPSEST_API_TOKENS: `fuzz:${token}`,
      PALIMPSEST_API_REQUEST_TIMEOUT_MS: '5000',
    });
    const url = `http://127.0.0.1:${port}`;
    await connected(url, token);
    await sleep(10_000);
    const began = Date.now();
    const report = await fuzzHttp({ address: url, token, seed, inputs: half });
    findings.push(...report.findings);
    const statuses = Object.entries(report.statuses).map(([status, count]) => `${status}: ${count}`);
    say(
      `${report.inputs} requests to ${report.operations} operations in ${Math.round((Date.now() - began) / 1000)} s; ${statuses.join(', ')}`,
    );
    say(`longest answer ${Math.round(report.longestMs)} ms; longest stall ${JSON.stringify(stalls)} ms`);
    for (const [name, stalledMs] of Object.entries(stalls))
      if (stalledMs > longestStallMs)
        findings.push({ target: name, index: -1, problem: `stood still for ${stalledMs} ms` });
    await sleep(3_000);
    ending = true;
    await Promise.all(children.map(ended));
    await verify(postgres.url, databaseUrl, temporal.address);
  } finally {
    for (const child of children) child.kill('SIGKILL');
    await Promise.all([stopPostgres(dataDir), stopTemporal(dataDir)]);
    rmSync(dataDir, { recursive: true, force: true });
  }
}

async function connected(url: string, token: string): Promise<void> {
  for (let attempt = 1; ; attempt++)
    try {
      return void (await HttpPalimpsest.connect({ url, token }));
    } catch (error) {
      if (attempt === 40) throw error;
      await sleep(500);
    }
}

/** SIGTERM, and the end of the process. */
async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  await Promise.race([gone, sleep(20_000, undefined, { ref: false })]);
}

/** The tables, and every session as `palimpsest verify` reads it. */
async function verify(ownerUrl: string, databaseUrl: string, address: string): Promise<void> {
  const sound = await checkSoundness(ownerUrl);
  for (const problem of sound.problems) findings.push({ target: 'database', index: -1, problem });
  const palimpsest = await Palimpsest.connect({ databaseUrl, temporal: { address }, tenant: 'fuzz' });
  let contexts = 0;
  try {
    for (let after: string | undefined; ;) {
      const { sessions, next } = await palimpsest.sessions({
        ...(after === undefined ? {} : { after }),
        limit: 100,
      });
      for (const { session, messages } of sessions) {
        try {
          let read = 0;
          for await (const _ of palimpsest.replay({ session })) read++;
          if (read !== messages) throw new Error(`${read} of ${messages} messages`);
          const { format, messages: shown, system } = await palimpsest.context<Json>({ session });
          const rendered = { messages: shown, ...(system === undefined ? {} : { system }) };
          const [violation] = contextFormatOf(format).violations(rendered);
          if (violation !== undefined) throw new Error(`context: ${violation}`);
          contexts++;
        } catch (error) {
          if (isFailure(error, 'Budget.Unreachable')) continue;
          findings.push({ target: `session ${JSON.stringify(session)}`, index: -1, problem: String(error) });
        }
      }
      if (next === null) break;
      after = next;
    }
  } finally {
    await palimpsest.close();
  }
  say(
    `${sound.sessions} sessions, ${sound.messages} messages, ${sound.archiveParts} archive parts; ${contexts} contexts`,
  );
}
