/** Calls that can take longer than a proxy lets a connection stay silent. Each is made as a series of shorter waits. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { CompactionOutcome } from '../contract/compactions.js';
import type { PalimpsestClient } from '../contract/client.js';
import { isFailure, isFailureType, PalimpsestError } from '../errors.js';
import { parsed, type Transport } from './transport.js';

/** Proxies commonly close a connection after a minute without a byte. */
const sliceMs = 45_000;

/** If a wait ends earlier than this before its timeout, the timeout was not the reason. */
const slackMs = 1_000;

/** Milliseconds between two waits of {@link atRest}. */
const pauseMs = 1_000;

/** Throws `Temporal.Unavailable` if the session does not come to rest in time. */
export async function settledBy(transport: Transport, path: string, timeoutMs: number): Promise<void> {
  const until = Date.now() + timeoutMs;
  for (;;) {
    const timeout = Math.max(0, Math.min(sliceMs, Math.ceil(until - Date.now())));
    const since = Date.now();
    try {
      return await transport.json({ method: 'GET', path, query: { timeout }, waitMs: timeout });
    } catch (error) {
      const timeIsUp = isFailure(error, 'Temporal.Unavailable') && Date.now() - since >= timeout - slackMs;
      if (!timeIsUp || Date.now() >= until) throw error;
    }
  }
}

/**
 * Requests a compaction and returns its outcome. If the compaction takes longer than `sliceMs`, it continues without a
 * connection. Its outcome is read from the session once the session is at rest.
 */
export async function compactionBy(
  palimpsest: Pick<PalimpsestClient, 'status' | 'settled' | 'compactions'>,
  transport: Transport,
  path: string,
  session: string,
  wait = true,
): Promise<CompactionOutcome | null> {
  const { generation: before } = wait ? await palimpsest.status({ session }) : { generation: 0 };
  const query = { wait: wait ? sliceMs : false };
  const { response, text } = await transport.text({
    ...{ method: 'POST', path, query, waitMs: sliceMs },
  });
  if (response.status !== 202) return parsed(text, response) as CompactionOutcome | null;
  if (!wait) return null;
  await atRest(palimpsest, session);
  const made = (await palimpsest.compactions({ session })).find(({ generation }) => generation > before);
  if (made) return made;
  const { lastError } = await palimpsest.status({ session });
  if (lastError && isFailureType(lastError.type))
    throw new PalimpsestError(lastError.type, lastError.message);
  return null;
}

/**
 * Waits without a limit, as the library does, also while no worker runs. The compaction's own deadline ends the compaction and
 * so the wait.
 */
async function atRest(palimpsest: Pick<PalimpsestClient, 'settled'>, session: string): Promise<void> {
  for (;;) {
    try {
      return await palimpsest.settled({ session, timeoutMs: sliceMs });
    } catch (error) {
      if (!isFailure(error, 'Temporal.Unavailable')) throw error;
      await sleep(pauseMs);
    }
  }
}
