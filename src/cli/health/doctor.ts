/** `palimpsest doctor`: what is wrong with a deployment, and what to do about it. */
import { apiOf, findServers } from '../command/connect.js';
import { checkApi } from './doctor-api.js';
import { failed, ok, type Finding, type Level } from './doctor-finding.js';
import { checkDisk, checkNode } from './doctor-machine.js';
import { checkModel } from './doctor-model.js';
import { exitCodes, type Run } from '../command/run.js';
import { plural } from '../terminal/numbers.js';
import { padded, printable, wrapped } from '../terminal/width.js';

/** Exit code 1 where a check failed; warnings do not count. */
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
    // Whoever asks over HTTP need not reach the servers behind it.
    if (run.globals.databaseUrl === undefined && !process.env.DATABASE_URL) return;
  }
  yield* checkServers(run);
  if (model) yield await checkModel(run.config, run.signal);
}

async function* checkServers(run: Run): AsyncGenerator<Finding> {
  const { config } = run;
  if (config.configFile !== null) yield ok('settings', `${config.configFile} and the environment`);
  let servers;
  try {
    servers = await findServers(config);
  } catch (error) {
    yield failed('servers', error);
    return;
  }
  const { checkPostgres } = await import('./doctor-postgres.js');
  const { checkTemporal } = await import('./doctor-temporal.js');
  const embedded = config.databaseUrl === undefined;
  yield* checkPostgres(servers.databaseUrl, embedded ? 'embedded' : 'DATABASE_URL');
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
