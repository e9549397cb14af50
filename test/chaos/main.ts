/**
 * `npm run chaos -- --seed N --minutes M`: agents append, operators act and everything breaks; then the faults end, the system
 * settles for three sweeps, and a checker reads the database. The exit code is 1 if it finds a violation. The journal of
 * acknowledged turns and the logs of all processes stay in the folder that the report names.
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Client, Connection } from '@temporalio/client';
import { HttpPalimpsest } from '../../src/http-client/index.js';
import { startModelServer, type ModelServer } from '../support/model-server.js';
import { Agent } from './agents.js';
import { checkDatabase, type Checked } from './checker.js';
import { Deployment, type Tenant } from './deployment.js';
import { junk, misbehavingEndpoint, type Endpoint } from './endpoint.js';
import { breakThings } from './faults.js';
import { Journal } from './journal.js';
import { Observations } from './observations.js';
import { operate, tidyUp } from './operators.js';
import { Random } from './random.js';

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    minutes: { type: 'string', default: '2' },
    sessions: { type: 'string', default: '6' },
    operators: { type: 'string', default: '2' },
    json: { type: 'boolean', default: false },
  },
});
const seed = wholeNumber('seed', values.seed);
const minutes = Number(values.minutes);
const sessionsPerTenant = wholeNumber('sessions', values.sessions);
if (!(minutes > 0 && minutes <= 24 * 60)) fail('--minutes must be more than 0 and at most 1440');

const sweepEveryMs = 5_000;
/** Waits for the product's retries do not count as stuck: additional time after three sweeps without progress. */
const settleWithinMs = 180_000;
/** A backfill of many sessions takes long; one that never ends is also stuck. */
const settleAtMostMs = 1_200_000;
const tenants: Tenant[] = [
  { tenant: 'a', token: randomBytes(32).toString('hex') },
  { tenant: 'b', token: randomBytes(32).toString('hex') },
];

const say = (line: string): void => void process.stderr.write(`${line}\n`);
const logDir = mkdtempSync(path.join(os.tmpdir(), `palimpsest-chaos-logs-${seed}-`));
const random = new Random(seed);
const seen = new Observations();
const journal = new Journal();
const endpoint = misbehavingEndpoint(random.fork());
const model = await startModelServer({ script: endpoint.script });
const deployment = await Deployment.start({
  tenants,
  modelUrl: model.url,
  sweepEvery: sweepEveryMs,
  logDir,
  say,
});
for (const signal of ['SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => void deployment.stop().finally(() => process.exit(130)));

let checked: Checked;
try {
  const clients = await connected(deployment.apiUrl);
  await run(clients);
  await settle(clients, deployment, model);
  checked = await checkDatabase({
    databaseUrl: deployment.databaseUrl,
    journal,
    junk,
    patienceMs: 3 * sweepEveryMs,
  });
  await readEverythingOnce(clients);
} finally {
  await deployment.stop();
  await model.close();
}
report(checked, endpoint, model);

async function connected(url: string): Promise<Map<string, HttpPalimpsest>> {
  const clients = new Map<string, HttpPalimpsest>();
  const until = Date.now() + 120_000;
  for (const { tenant, token } of tenants)
    for (;;) {
      try {
        clients.set(tenant, await HttpPalimpsest.connect({ url, token, timeoutMs: 20_000 }));
        break;
      } catch (error) {
        if (Date.now() > until) throw error;
        await sleep(250);
      }
    }
  return clients;
}

/** Agents, operators and faults, until the time is over; resolves when the last of them has ended. */
async function run(clients: ReadonlyMap<string, HttpPalimpsest>): Promise<void> {
  const agents: Agent[] = [];
  for (const [tenant, client] of clients)
    for (let n = 1; n <= sessionsPerTenant; n++) {
      const entry = journal.begin(tenant, `s${n}`);
      agents.push(new Agent(client, entry, journal, random.fork(), seen, (begun) => agents.push(begun), 700));
    }
  const over = new AbortController();
  const operators = Array.from({ length: wholeNumber('operators', values.operators) }, () =>
    operate(clients, journal, random.fork(), seen, over.signal),
  );
  const faults = breakThings({ deployment, endpoint, journal, random: random.fork() }, seen, over.signal);
  const until = Date.now() + minutes * 60_000;
  while (Date.now() < until) {
    await sleep(Math.min(30_000, until - Date.now()));
    say(`${Math.ceil((until - Date.now()) / 1000)} s left: ${progress()}`);
  }
  over.abort();
  await faults;
  endpoint.behave();
  seen.calmSince = Date.now();
  await Promise.all(operators);
  // The last turn of an agent may be a fork, which begins another.
  for (let ended = 0; ended < agents.length;) {
    const before = agents.length;
    for (const agent of agents) agent.stop();
    await Promise.all(agents.map(({ done }) => done));
    ended = before;
  }
}

/** Waits until no compaction runs, nothing is written ahead and no job is open, and then for three sweeps. */
async function settle(
  clients: ReadonlyMap<string, HttpPalimpsest>,
  { temporalAddress }: Deployment,
  { inFlight }: ModelServer,
): Promise<void> {
  await tidyUp(clients, journal, seen);
  await sleep(3 * sweepEveryMs);
  const connection = await Connection.connect({ address: temporalAddress });
  const { workflow } = new Client({ connection });
  const count = async (status: string): Promise<number> =>
    (
      await workflow.count(
        `ExecutionStatus ${status} AND WorkflowType IN ('compaction', 'ahead', 'backfill')`,
      )
    ).count;
  const began = Date.now();
  for (let ended = -1, moved = began; ;) {
    const running = await count("= 'Running'");
    if (running === 0 && inFlight() === 0) break;
    const before = ended;
    ended = await count("!= 'Running'");
    if (ended !== before) moved = Date.now();
    if (Date.now() - moved > settleWithinMs || Date.now() - began > settleAtMostMs) {
      seen.violation(
        'stuck',
        `${running} compactions and backfills are still running, the last one ended ${Date.now() - moved} ms ago; ${inFlight()} model calls in flight`,
      );
      break;
    }
    await sleep(2_000);
    await tidyUp(clients, journal, seen);
  }
  await connection.close();
  await sleep(3 * sweepEveryMs);
}

/** The product's view: every session returns its context and replays the acknowledged messages. */
async function readEverythingOnce(clients: ReadonlyMap<string, HttpPalimpsest>): Promise<void> {
  for (const { tenant, session, erased, messages } of journal.all()) {
    if (erased) continue;
    const client = clients.get(tenant)!;
    await client
      .context({ session })
      .catch((error: unknown) => seen.violation('context', `${session}: ${String(error)}`));
    const replayed: string[] = [];
    for await (const { message } of client.replay({ session })) replayed.push(JSON.stringify(message));
    if (replayed.length !== messages.length || replayed.some((text, index) => text !== messages[index]))
      seen.violation('replay', `${session} does not replay what was acknowledged`);
  }
}

function progress(): string {
  const messages = journal.all().reduce((sum, entry) => sum + entry.messages.length, 0);
  const acts = [...seen.acts.values()].reduce((sum, count) => sum + count, 0);
  return `${journal.living().length} sessions, ${messages} messages, ${acts} faults and acts, ${seen.violations.length} violations`;
}

/** Fair answers that arrived, and were asked for again with the same words: killed workers and lost answers cost them. */
function paidAgain({ fair }: Endpoint, { requests }: ModelServer): number {
  const paid = requests
    .filter(({ number, answered }) => answered === 200 && fair.has(number))
    .map(({ key }) => key);
  return paid.length - new Set(paid).size;
}

function report(found: Checked, { played, fair }: Endpoint, { requests }: ModelServer): void {
  const violations = [...seen.violations, ...found.violations];
  const { violations: _, ...figures } = found;
  const result = {
    ...{ seed, minutes, ...figures, contexts: seen.contexts, erasures: seen.erasures },
    restarts: deployment.all().reduce((sum, { restarts }) => sum + restarts, 0),
    ...{ modelRequests: requests.length, fairAnswers: fair.size, paidAgain: paidAgain(endpoint, model) },
    acts: Object.fromEntries([...seen.acts].sort()),
    misbehaviours: Object.fromEntries([...played].sort()),
    failures: Object.fromEntries([...seen.failures].sort()),
    violations,
  };
  writeFileSync(path.join(logDir, 'report.json'), `${JSON.stringify(result, null, 2)}\n`);
  writeFileSync(path.join(logDir, 'journal.json'), JSON.stringify(journal.all()));
  if (values.json) process.stdout.write(`${JSON.stringify(result)}\n`);
  else {
    for (const { kind, what } of violations.slice(0, 50)) process.stdout.write(`${kind}: ${what}\n`);
    process.stdout.write(
      `seed ${seed}, ${minutes} min: ${found.sessions} sessions, ${found.messages} messages, ${found.compactions} compactions ` +
        `(${found.byModel} by model, ${found.byModelAlone} of them without the rules, ${found.byRule} by rule; ${found.journals} journals), ${found.archiveParts} archive parts, ${seen.contexts} contexts read, ` +
        `${[...seen.acts.values()].reduce((sum, count) => sum + count, 0)} faults and acts, ${result.restarts} restarts: ` +
        `${violations.length} violations. ${logDir}\n`,
    );
  }
  process.exitCode = violations.length === 0 ? 0 : 1;
}

function wholeNumber(name: string, text: string): number {
  if (!/^\d{1,9}$/.test(text)) fail(`--${name} must be a whole number`);
  return Number(text);
}

function fail(message: string): never {
  process.stderr.write(`${message}\n`);
  process.exit(2);
}
