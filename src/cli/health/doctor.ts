/** `palimpsest doctor` finds the faults of a deployment and gives the next step for each. */
import { statfs } from 'node:fs/promises';
import type { Config } from '../../config/config.js';
import { isFailure } from '../../errors.js';
import { createModelClient } from '../../llm/client.js';
import { configOf, findServers } from '../../process/servers.js';
import { apiOf } from '../command/connect.js';
import { exitCodes } from '../command/exit-codes.js';
import type { Run } from '../command/run.js';
import { adviceFor } from '../terminal/failures.js';
import { count, plural, seconds } from '../terminal/numbers.js';
import { padded, printable, wrapped } from '../terminal/table.js';
import { fail, failed, type Finding, type Level, ok, warn } from './doctor-finding.js';

/** Resolves to exit code 1 if a check failed; warnings do not count. */
export async function doctor(run: Run, { model }: { model: boolean }): Promise<number> {
  const findings: Finding[] = [];
  for await (const finding of checks(run, model)) {
    findings.push(finding);
    if (!run.json) await show(run, finding);
  }
  const number = (level: Level) => findings.filter((finding) => finding.level === level).length;
  const failures = number('fail');
  if (run.json) await run.out.value({ ok: failures === 0, checks: findings });
  else {
    const { style } = run.out;
    const summary = `${plural(findings.length, 'check')}: ${number('ok')} ok, ${plural(number('warn'), 'warning')}, ${failures} failed`;
    await run.out.line();
    await run.out.paragraph(summary, failures > 0 ? style.red : undefined);
  }
  return failures > 0 ? exitCodes.failed : exitCodes.done;
}

async function* checks(run: Run, model: boolean): AsyncGenerator<Finding> {
  yield checkNode();
  const api = apiOf(run.globals);
  if (api !== null) {
    yield* checkApi(api);
    // A client of the API need not reach PostgreSQL and Temporal.
    if (run.globals.databaseUrl === undefined && !process.env.DATABASE_URL) return;
  }
  const config = configOf(run.globals);
  yield* checkServers(config);
  if (model) yield await checkModel(config, run.signal);
}

async function* checkServers(config: Config): AsyncGenerator<Finding> {
  if (config.configFile !== null) yield ok('settings', `${config.configFile} and the environment`);
  for (const { variable, nearest } of config.unknownVariables)
    yield warn('settings', `${variable} is not a setting and is ignored`, `Did you mean ${nearest}?`);
  let servers;
  try {
    servers = await findServers(config);
  } catch (error) {
    yield failed('servers', error);
    return;
  }
  const { checkPostgres } = await import('./doctor-servers.js');
  const { checkTemporal } = await import('./doctor-servers.js');
  const embedded = config.databaseUrl === undefined;
  yield* checkPostgres(servers, embedded ? 'embedded' : 'DATABASE_URL', config.limits);
  if (embedded) yield await checkDisk(config);
  yield* checkTemporal(servers.temporal, config, config.temporal.address === undefined);
}

const marks: Record<Level, string> = { ok: 'ok', warn: 'warn', fail: 'FAIL' };

async function show({ out }: Run, { check, level, detail, next }: Finding): Promise<void> {
  const { style } = out;
  const paint = { ok: style.green, warn: style.yellow, fail: style.red }[level];
  const lead = 6 + 15;
  const room = Math.max(20, out.width - lead);
  const [first = '', ...rest] = wrapped(printable(detail), room);
  await out.line(`${paint(padded(marks[level], 6))}${padded(check, 15)}${first}`.trimEnd());
  const then = next === undefined ? [] : wrapped(printable(`→ ${next}`), room);
  for (const line of [...rest, ...then]) await out.line(`${' '.repeat(lead)}${line}`);
}

/** The `engines` of package.json. */
const leastNode = [20, 19] as const;
const gigabyte = 1024 ** 3;

export function checkNode(version = process.versions.node): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const enough = major > leastNode[0] || (major === leastNode[0] && minor >= leastNode[1]);
  if (enough) return ok('Node', version);
  return fail('Node', `${version} is too old`, `Install Node ${leastNode.join('.')} or later.`);
}

/** Checks the free disk space of the embedded servers' data folder. */
export async function checkDisk({ dataDir }: Config): Promise<Finding> {
  try {
    const { bavail, bsize, blocks } = await statfs(dataDir);
    const free = bavail * bsize;
    const detail = `${(free / gigabyte).toFixed(1)} GB of ${count(Math.round((blocks * bsize) / gigabyte))} GB free in ${dataDir}`;
    if (free < gigabyte / 10)
      return fail('disk', detail, 'Free disk space now: PostgreSQL stops when the disk is full.');
    if (free < gigabyte) return warn('disk', detail, 'Free disk space soon, or move PALIMPSEST_DATA.');
    return ok('disk', detail);
  } catch (error) {
    return failed('disk', error);
  }
}

const timeoutMs = 5_000;

/** Checks that the API is up, that its servers answer it, and that it accepts the token. */
export async function* checkApi({ url, token }: { url: string; token?: string }): AsyncGenerator<Finding> {
  const ask = (path: string) =>
    fetch(new URL(path.replace(/^\//, ''), url.endsWith('/') ? url : `${url}/`), {
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(timeoutMs),
    });
  const started = performance.now();
  try {
    const health = await ask('/healthz');
    if (!health.ok) {
      yield fail(
        'API',
        `${url}/healthz answers ${health.status}`,
        'Is this the address of `palimpsest api`?',
      );
      return;
    }
    yield ok('API', `${url} answers in ${(performance.now() - started).toFixed(0)} ms`);
    const ready = await ask('/readyz');
    if (ready.status === 401 || ready.status === 403)
      yield warn(
        'API ready',
        'from another machine /readyz answers only a token with the scope admin',
        'Give such a token, or run `palimpsest doctor` where the API runs.',
      );
    else if (ready.ok) yield ok('API ready', 'its PostgreSQL and Temporal answer');
    else
      yield fail(
        'API ready',
        `${ready.status}: ${(await ready.text()).slice(0, 300)}`,
        'Check its servers: run `palimpsest doctor` where the API runs.',
      );
    const sessions = await ask('/v1/sessions?limit=1');
    if (sessions.status === 401)
      yield fail(
        'API token',
        token === undefined ? 'a token is required' : 'the token is not accepted',
        'Give --token, or set PALIMPSEST_TOKEN.',
      );
    else if (sessions.status === 403 && token !== undefined)
      yield warn('API token', 'accepted, but without the scope read', 'Commands that read sessions need it.');
    else if (sessions.ok) yield ok('API token', token === undefined ? 'not required' : 'accepted');
    else yield fail('API token', `/v1/sessions answers ${sessions.status}`);
  } catch (error) {
    const { cause } = error as Error;
    yield failed('API', cause instanceof Error ? cause : error);
  }
}

/** Sends one request of a few tokens in the way that the workers do. */
export async function checkModel({ llm, summary }: Config, signal: AbortSignal): Promise<Finding> {
  const check = 'model';
  if (llm.apiKey === undefined)
    return warn(
      check,
      'no API key in this environment: a worker that is started with it writes all summaries by rule',
      'To check the model of a running worker, give this command the same OPENAI_API_KEY (any word if the endpoint needs none), OPENAI_BASE_URL and PALIMPSEST_SUMMARY_MODEL.',
    );
  const where = llm.baseUrl ?? 'https://api.openai.com/v1';
  const { model } = summary;
  if (model === undefined)
    return warn(
      check,
      `${where} was not asked: without PALIMPSEST_SUMMARY_MODEL each session's own model is used`,
      'Set PALIMPSEST_SUMMARY_MODEL to have it checked here.',
    );
  try {
    const client = createModelClient({ ...llm, timeoutMs: Math.min(30_000, llm.timeoutMs) });
    const request = {
      messages: [{ role: 'user' as const, content: 'Answer with the word ok.' }],
      maxTokens: 64,
    };
    const options = { model, expectedInputTokens: 12, signal };
    const answer = await client.summarize(request, options);
    return ok(
      check,
      `${model} at ${where} answered in ${seconds(answer.ms)} (${answer.inputTokens} tokens in, ${answer.outputTokens} out)`,
    );
  } catch (error) {
    if (!isFailure(error)) return failed(check, error);
    const detail = `${model} at ${where}: ${error.type}: ${error.message}`;
    // Only a warning: the endpoint answers, and a bad or refused answer to this tiny request does not mean that summaries fail.
    if (error.type === 'Llm.BadOutput' || error.type === 'Llm.RateLimited')
      return warn(check, detail, adviceFor(error.type) ?? '');
    return fail(check, detail, error.hint ?? adviceFor(error.type));
  }
}
