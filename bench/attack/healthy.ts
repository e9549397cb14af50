/** A well-behaved client at a fixed rate, independent of response times, with concurrent health probes. */
import { setTimeout as sleep } from 'node:timers/promises';
import { agentTurn } from '../conversation.js';

export interface Latencies {
  /** Milliseconds of every request that was answered below 500. */
  ms: number[];
  /** Requests by status, or by the error's code if there was no answer. */
  answers: Record<string, number>;
}

export interface Healthy {
  requests: Latencies;
  /** `/healthz` and `/readyz`. */
  healthz: Latencies;
  readyz: Latencies;
  /** Compactions that were asked for and waited for. */
  compactions: Latencies;
}

/** How often each is asked for. */
const everyMs = { request: 100, probe: 200, compaction: 2_500 };
/** A request that takes longer has failed. */
const patienceMs = 60_000;
const turnsPerSession = 20;

/** Asks for `seconds`, then waits for what is under way. @param name begins the ids of its sessions, new for each run */
export async function healthyClient(
  address: string,
  token: string,
  name: string,
  seconds: number,
): Promise<Healthy> {
  const healthy: Healthy = { requests: none(), healthz: none(), readyz: none(), compactions: none() };
  const ask = (kept: Latencies, method: string, path: string, body?: unknown) =>
    timedRequest(kept, address, token, method, path, body);
  const session = (index: number) => `/v1/sessions/${name}-${index}`;
  const turn = (n: number) => ({ turnId: `t-${n}`, messages: agentTurn(200, n) });
  const policy = { contextWindow: 1_000_000 };
  await ask(none(), 'POST', `${session(0)}/turns`, { ...turn(0), policy });
  // What holds a session to be compacted; small windows, so that there is always something to do.
  const compacted = `/v1/sessions/${name}-compacted`;
  await ask(none(), 'POST', `${compacted}/turns`, {
    ...turn(0),
    policy: { contextWindow: 16_000, keep: { messages: 2 } },
  });
  await Promise.all([
    paced(seconds, everyMs.request, async (n) => {
      const written = Math.floor(n / (2 * turnsPerSession));
      // The session before is there, however long the first turn of the next one takes.
      const read = session(Math.max(0, written - 1));
      if (n % 2 === 0)
        await ask(healthy.requests, 'POST', `${session(written)}/turns`, { ...turn(n + 1), policy });
      else await ask(healthy.requests, 'GET', `${read}/${n % 10 === 9 ? 'status' : 'context'}`);
    }),
    paced(seconds, everyMs.probe, () => ask(healthy.healthz, 'GET', '/healthz')),
    paced(seconds, everyMs.probe, () => ask(healthy.readyz, 'GET', '/readyz')),
    paced(seconds, everyMs.compaction, async (n) => {
      await ask(none(), 'POST', `${compacted}/turns`, turn(n + 1));
      await ask(healthy.compactions, 'POST', `${compacted}/compact`);
    }),
  ]);
  return healthy;
}

function none(): Latencies {
  return { ms: [], answers: {} };
}

/** Starts `work` at a fixed pace, also where earlier work is not done. */
async function paced(seconds: number, everyMsOf: number, work: (n: number) => Promise<void>): Promise<void> {
  const started = performance.now();
  const open: Promise<void>[] = [];
  for (let n = 0; n * everyMsOf < seconds * 1_000; n++) {
    await sleep(Math.max(0, started + n * everyMsOf - performance.now()));
    open.push(work(n));
  }
  await Promise.all(open);
}

async function timedRequest(
  kept: Latencies,
  address: string,
  token: string,
  method: string,
  path: string,
  body?: unknown,
): Promise<void> {
  const start = performance.now();
  let answer: string;
  try {
    const response = await fetch(`${address}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(patienceMs),
    });
    await response.arrayBuffer();
    answer = String(response.status);
    if (response.status < 500) kept.ms.push(performance.now() - start);
  } catch (error) {
    const { cause, name } = error as { cause?: { code?: string }; name: string };
    answer = cause?.code ?? name;
  }
  kept.answers[answer] = (kept.answers[answer] ?? 0) + 1;
}
