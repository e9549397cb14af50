/** A session whose row is locked as by a worker that was stopped inside its commit, and agents that repeat their appends. */
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { send, type Attack } from './target.js';

const agents = 40;
const session = 'stopped';

export const stoppedWorker: Attack = {
  description: `a session's row is held by transactions that say nothing until the server ends them; ${agents} appends to it are repeated without a pause`,
  async run(target, signal, note) {
    const append = (turn: string) => {
      const body = JSON.stringify({ turnId: turn, messages: [{ role: 'user', content: turn }] });
      return send(target, 'POST', `/v1/sessions/${session}/turns`, body, signal);
    };
    note(`append: ${await append('first')}`);
    const agent = async (number: number) => {
      for (let n = 0; !signal.aborted; n++) note(`append: ${await append(`t-${number}-${n}`)}`);
    };
    await Promise.all([
      holding(target.databaseUrl, signal, note),
      ...Array.from({ length: agents }, (_, number) => agent(number)),
    ]);
  },
};

/** One transaction after another, each until it is ended. */
async function holding(url: string, signal: AbortSignal, note: (what: string) => void): Promise<void> {
  while (!signal.aborted) {
    // As a worker's connections are set.
    const client = new pg.Client({ connectionString: url, idle_in_transaction_session_timeout: 10_000 });
    const ended = new Promise<void>((resolve) => client.once('end', resolve));
    client.on('error', () => undefined);
    await client.connect();
    await client.query('begin');
    await client.query('select from palimpsest.sessions where session_id = $1 for no key update', [session]);
    const over = new Promise<void>((resolve) =>
      signal.addEventListener('abort', () => resolve(), { once: true }),
    );
    await Promise.race([ended, over]);
    note(signal.aborted ? 'held to the end' : 'held until the server ended it');
    await client.end().catch(() => undefined);
    await sleep(100);
  }
}
