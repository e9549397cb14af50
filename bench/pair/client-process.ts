/**
 * The agents: a process with the library of one checkout, which makes the calls that the parent asks for and reports when they
 * began and ended. It uses only what every version's library has.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { PalimpsestClient } from '../../src/contract/client.js';
import type { ChatMessage } from '../../src/conversation/message.js';
import type { PolicyInput } from '../../src/policy/schema.js';
import { agentTurn } from '../conversation.js';
import { timed } from '../figures.js';

interface Settings {
  library: string;
  http: string;
  connect: { databaseUrl: string; temporal: { address: string } };
}

interface Connecting<Options> {
  connect(options: Options): Promise<PalimpsestClient & { close(): Promise<void> }>;
}

const settings = JSON.parse(process.env['PAIR'] ?? '{}') as Settings;
const { Palimpsest } = (await import(settings.library)) as { Palimpsest: Connecting<object> };
const palimpsest = await Palimpsest.connect(settings.connect);

/** Then an agent begins another session, so that contexts stay of the same size. */
const turnsPerSession = 20;

interface Turns {
  prefix: string;
  agents: number;
  ms: number;
  /** Of an API to use in place of the library. */
  apiUrl?: string;
}

interface Compaction {
  session: string;
  policy: PolicyInput;
  turns: number;
  messageTokens: number;
  /** How the caller learns of the end; without it the caller does not wait. */
  waitBy?: 'context' | 'compact';
}

async function clientFor(apiUrl: string | undefined): Promise<PalimpsestClient> {
  if (apiUrl === undefined) return palimpsest;
  const { HttpPalimpsest } = (await import(settings.http)) as { HttpPalimpsest: Connecting<object> };
  return HttpPalimpsest.connect({ url: apiUrl });
}

function smallTurn(seed: number): ChatMessage[] {
  return agentTurn(60, seed).filter((_, index) => index % 5 === 0);
}

async function appendAndRead(client: PalimpsestClient, prefix: string, agent: number, turn: number) {
  const session = `${prefix}-${agent}-${Math.floor(turn / turnsPerSession)}`;
  const messages = smallTurn(agent * 10_000 + turn);
  const policy = { contextWindow: 128_000 };
  const append = await timed(() => client.appendTurn({ session, turnId: `t-${turn}`, messages, policy }));
  return { append, context: await timed(() => client.context({ session })) };
}

const calls = {
  /** Agents that append a turn and read the context, again and again. */
  async turns({ prefix, agents, ms, apiUrl }: Turns) {
    const client = await clientFor(apiUrl);
    const appends: number[] = [];
    const contexts: number[] = [];
    const from = performance.now();
    const agent = async (number: number): Promise<void> => {
      for (let turn = 0; performance.now() - from < ms; turn++) {
        const took = await appendAndRead(client, prefix, number, turn);
        appends.push(took.append);
        contexts.push(took.context);
      }
    };
    await Promise.all(Array.from({ length: agents }, (_, number) => agent(number)));
    return { appends, contexts, ms: performance.now() - from };
  },

  /** One agent whose turns go through the library and over HTTP alternately. */
  async bothWays({ prefix, turns, apiUrl }: { prefix: string; turns: number; apiUrl: string }) {
    const http = await clientFor(apiUrl);
    const seen = {
      library: { appends: [] as number[], contexts: [] as number[] },
      http: { appends: [] as number[], contexts: [] as number[] },
    };
    for (let turn = 0; turn < turns; turn++)
      for (const way of ['library', 'http'] as const) {
        const client = way === 'library' ? palimpsest : http;
        const took = await appendAndRead(client, `${prefix}-${way}`, 0, turn);
        seen[way].appends.push(took.append);
        seen[way].contexts.push(took.context);
      }
    return seen;
  },

  /** Fills a session up to the turn that makes its compaction due. `due` and `woken` are Unix milliseconds. */
  async compaction({ session, policy, turns, messageTokens, waitBy }: Compaction) {
    const byHand = waitBy === 'compact';
    const seed = seedOf(session);
    const all = Array.from({ length: turns }, (_, turn) => agentTurn(messageTokens, seed + turn));
    const before = byHand ? all : all.slice(0, -1);
    const trigger = { messages: byHand ? 1_000_000 : all.flat().length };
    for (let from = 0; from < before.length; from += 10) {
      const messages = before.slice(from, from + 10).flat();
      await palimpsest.appendTurn({ session, turnId: `t-${from}`, messages, policy: { ...policy, trigger } });
    }
    await palimpsest.settled({ session, timeoutMs: 120_000 });
    const due = Date.now();
    if (byHand) await palimpsest.compact({ session });
    else await palimpsest.appendTurn({ session, turnId: 'last', messages: all.at(-1) ?? [] });
    if (waitBy === 'context') await palimpsest.context({ session, waitMs: 60_000 });
    return { due, woken: Date.now() };
  },

  async outcomes({ session }: { session: string }) {
    return palimpsest.compactions({ session });
  },

  /** One turn each; resolves when every session is at rest. */
  async openSessions({ prefix, count }: { prefix: string; count: number }) {
    let next = 0;
    const opener = async (): Promise<void> => {
      for (let number = next++; number < count; number = next++) {
        const session = `${prefix}-${number}`;
        await palimpsest.appendTurn({
          ...{ session, turnId: 't-1', messages: smallTurn(number), policy: { contextWindow: 128_000 } },
        });
        await palimpsest.settled({ session, timeoutMs: 300_000 });
      }
    };
    await Promise.all(Array.from({ length: 32 }, opener));
  },

  /** Turns one after the other; the compaction, if one is due, follows the last. */
  async session({ session, turns, policy }: { session: string; turns: number; policy: PolicyInput }) {
    for (let turn = 0; turn < turns; turn++)
      await palimpsest.appendTurn({ session, turnId: `t-${turn}`, messages: agentTurn(60, turn), policy });
    await palimpsest.settled({ session, timeoutMs: 120_000 });
  },

  /** A due turn that no worker may be there to take. */
  async dueTurn({ session, policy }: { session: string; policy: PolicyInput }) {
    await palimpsest.appendTurn({ session, turnId: 't-1', messages: agentTurn(60, 1), policy });
  },

  /** `begun`: resolves when the first session is compacted. */
  async startBackfill(request: { job: string; prefix: string; concurrency: number; begun?: boolean }) {
    const { job, prefix, concurrency, begun = false } = request;
    await palimpsest.startBackfill({ job, concurrency, select: { prefix } });
    while (begun && (await palimpsest.backfill({ job })).counts.compacted === 0) await sleep(50);
  },

  async backfillEnd({ job }: { job: string }) {
    for (;;) {
      const report = await palimpsest.backfill({ job });
      if (report.endedAt !== null) return report;
      await sleep(200);
    }
  },

  async cancelBackfill({ job }: { job: string }) {
    const { counts } = await palimpsest.backfill({ job });
    await palimpsest.cancelBackfill({ job });
    return counts;
  },
};

/** Different texts for each session, so that no digest serves two of them. Below a million, as `agentTurn` needs it. */
function seedOf(session: string): number {
  return [...session].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) % 997, 7) * 1_000;
}

export type Calls = typeof calls;

interface Asked {
  id: number;
  name: keyof Calls;
  input: never;
}

process.on('message', ({ id, name, input }: Asked) => {
  const made: Promise<unknown> = calls[name](input);
  made.then(
    (value) => process.send?.({ id, value }),
    (error: unknown) => process.send?.({ id, error: error instanceof Error ? error.stack : String(error) }),
  );
});
process.once('disconnect', () => void palimpsest.close().finally(() => process.exit()));
process.send?.('ready');
