/** The faults around the product: processes die or stop, servers disappear, connections break, the model fails. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { PolicyInput } from '../../src/policy/schema.js';
import { defaultQueuePrefix } from '../../src/temporal/names.js';
import { chaosPolicy, turnOf } from './agents.js';
import type { Deployment } from './deployment.js';
import type { Endpoint } from './endpoint.js';
import { acknowledged, type Journal } from './journal.js';
import type { Observations } from './observations.js';
import type { Random } from './random.js';

interface Scene {
  deployment: Deployment;
  endpoint: Endpoint;
  journal: Journal;
  random: Random;
}

const faults = {
  'worker killed': async ({ deployment, random }: Scene) =>
    random.pick(deployment.processes.workers).signal('SIGKILL'),
  'worker terminated': async ({ deployment, random }: Scene) =>
    random.pick(deployment.processes.workers).signal('SIGTERM'),
  'api killed': async ({ deployment }: Scene) => deployment.processes.api.signal('SIGKILL'),
  'process stopped and continued': async ({ deployment, random }: Scene) => {
    const one = random.pick(deployment.all());
    one.signal('SIGSTOP');
    await sleep(random.between(500, 15_000));
    one.signal('SIGCONT');
  },
  'postgres killed': ({ deployment }: Scene) => deployment.killPostgres(),
  'temporal killed': ({ deployment, random }: Scene) => deployment.killTemporal(random.between(0, 6_000)),
  'database connections cut': async ({ deployment, random }: Scene) =>
    random.pick(deployment.all()).database.cut(),
  'temporal connections cut': async ({ deployment, random }: Scene) =>
    random.pick(deployment.all()).temporal.cut(),
  'database silent': async ({ deployment, random }: Scene) =>
    random.pick(deployment.all()).database.silence(random.between(500, 12_000)),
  'temporal silent': async ({ deployment, random }: Scene) =>
    random.pick(deployment.all()).temporal.silence(random.between(500, 12_000)),
  'cut before COMMIT': async (scene: Scene) => commitFault(scene, 'before', 'cut'),
  'cut after COMMIT': async (scene: Scene) => commitFault(scene, 'after', 'cut'),
  'silent before COMMIT': async (scene: Scene) => commitFault(scene, 'before', 'silent'),
  'silent after COMMIT': async (scene: Scene) => commitFault(scene, 'after', 'silent'),
  'killed between a due append and its signal': ({ deployment, journal, random }: Scene) =>
    appendUnsignalled(deployment, journal, random),
  'sweep killed': async ({ deployment, random }: Scene) => {
    const step = random.pick(['palimpsest.overdue_sessions', 'palimpsest.postpone_overdue']);
    for (const worker of deployment.processes.workers)
      worker.database.whenSent(step, () => worker.signal('SIGKILL'));
  },
  'model outage': async ({ endpoint, random }: Scene) => endpoint.failFor(random.between(2_000, 30_000)),
} satisfies Record<string, (scene: Scene) => Promise<void>>;

/** A session of a process that ends before its due turn is signalled, and does not repeat it: only the sweep can find it. */
async function appendUnsignalled(deployment: Deployment, journal: Journal, random: Random): Promise<void> {
  const { tenant } = random.pick(journal.all());
  const entry = journal.begin(tenant, `unsignalled-${journal.all().length}`);
  const { session } = entry;
  const [first, ...others] = Array.from({ length: 40 }, (_, turn) => turnOf(entry, turn, random));
  const turns = [first!, others.flat()];
  const policy: PolicyInput = { ...chaosPolicy, trigger: { messages: 40 } };
  const settings = { queuePrefix: defaultQueuePrefix, tenant, session, turns, policy };
  await deployment.appendUntilKilled(settings);
  for (const [index, messages] of turns.entries())
    acknowledged(entry, `t-${index}`, messages, entry.messages.length + messages.length);
}

function commitFault({ deployment, random }: Scene, when: 'before' | 'after', how: 'cut' | 'silent'): void {
  const ofCompaction = random.chance(0.5);
  const { database } = random.pick(ofCompaction ? deployment.processes.workers : deployment.all());
  database.breakNextCommit({ ofCompaction, when, how, silentMs: random.between(500, 8_000) });
}

const weights: Record<keyof typeof faults, number> = {
  ...{ 'worker killed': 5, 'worker terminated': 1, 'api killed': 1, 'process stopped and continued': 3 },
  ...{
    'postgres killed': 1,
    'temporal killed': 1,
    'database connections cut': 3,
    'temporal connections cut': 2,
  },
  ...{ 'database silent': 2, 'temporal silent': 1, 'cut before COMMIT': 5, 'cut after COMMIT': 5 },
  ...{ 'silent before COMMIT': 3, 'silent after COMMIT': 3, 'model outage': 1 },
  ...{ 'killed between a due append and its signal': 2, 'sweep killed': 3 },
};

/** One fault after the other until the signal says so; resolves once the last one is over. */
export async function breakThings(scene: Scene, seen: Observations, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const name = scene.random.weighted(weights);
    seen.act(name);
    await faults[name](scene);
    await sleep(scene.random.between(300, 2_500));
  }
}
