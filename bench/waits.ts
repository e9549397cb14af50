/**
 * Measures how soon waiting calls return: from the notice of the commit's transaction, as a connection of this process hears it,
 * to the return of `settled`, `context` with a wait, and `compact`, through the library and through HTTP.
 */
import { once } from 'node:events';
import pg from 'pg';
import type { PalimpsestClient } from '../src/contract/client.js';
import { HttpPalimpsest } from '../src/http-client/index.js';
import type { PolicyInput } from '../src/policy/schema.js';
import { noticeKey } from '../src/store/connection/notices.js';
import { agentTurn } from './conversation.js';
import { deploy, type Deployment } from './deployment.js';
import { figure, type BenchResult, type Figure } from './figures.js';
import { startApiProcess, token } from './http.js';
import { summarizer } from './model-script.js';
import type { Servers } from './servers.js';

const policy: PolicyInput = { contextWindow: 8_000, debounceMs: 0 };
/** A context of this many turns is due. */
const dueTurns = 14;
const modelMs = 300;
const rounds = 15;
const barMs = 20;

type Wait = (client: PalimpsestClient, session: string) => Promise<unknown>;

const waits: Record<string, { turns: number; wait: Wait }> = {
  settled: { turns: dueTurns, wait: (client, session) => client.settled({ session }) },
  'context with a wait': {
    turns: dueTurns,
    wait: (client, session) => client.context({ session, waitMs: 30_000 }),
  },
  compact: { turns: dueTurns / 2, wait: (client, session) => client.compact({ session }) },
};

export async function waiting(servers: Servers): Promise<BenchResult> {
  const deployment = await deploy(servers, { script: summarizer(modelMs) });
  const api = await startApiProcess(servers, deployment);
  const commits = await Commits.of(deployment);
  try {
    const http = await HttpPalimpsest.connect({ url: api.address, token });
    const figures: Figure[] = [];
    for (const [name, { turns, wait }] of Object.entries(waits))
      for (const [way, client] of [['library', deployment.palimpsest] as const, ['HTTP', http] as const]) {
        const ms: number[] = [];
        // The first round opens the connections.
        for (let round = 0; round <= rounds; round++) {
          const session = `${name}, ${way}, ${round}`;
          const committed = commits.next(session);
          await append(deployment.palimpsest, session, turns);
          await wait(client, session);
          const returned = performance.now();
          if (round > 0) ms.push(returned - (await committed));
        }
        figures.push(figure('waits', `${name} after the commit, ${way}`, 'ms', ms, barMs));
      }
    return {
      figures,
      notes: [
        `Compactions of ${modelMs} ms, one at a time; the worker and the API run in processes of their own.`,
      ],
    };
  } finally {
    await commits.close();
    api.process.disconnect();
    await once(api.process, 'exit');
    await deployment.close();
  }
}

async function append(palimpsest: PalimpsestClient, session: string, turns: number): Promise<void> {
  const messages = Array.from({ length: turns }, (_, turn) => agentTurn(100, turn)).flat();
  await palimpsest.appendTurn({ session, turnId: 't', messages, policy });
}

/** Hears the commits in a database. The first notice of a new session is that of its first commit. */
class Commits {
  private readonly awaited = new Map<string, (at: number) => void>();

  private constructor(
    private readonly client: pg.Client,
    private readonly tenant: string,
  ) {}

  static async of({ ownerUrl, tenant }: Deployment): Promise<Commits> {
    const client = new pg.Client({ connectionString: ownerUrl });
    const commits = new Commits(client, tenant);
    client.on('notification', ({ payload = '' }) => {
      commits.awaited.get(payload)?.(performance.now());
      commits.awaited.delete(payload);
    });
    await client.connect();
    await client.query('listen palimpsest');
    return commits;
  }

  next(session: string): Promise<number> {
    return new Promise((resolve) => this.awaited.set(noticeKey({ tenant: this.tenant, session }), resolve));
  }

  close(): Promise<void> {
    return this.client.end();
  }
}
