/** What the adapters share that keep a session's context at hand: they read it at any size, and store after other writers. */
import { setTimeout as wait } from 'node:timers/promises';
import type { PalimpsestClient } from '../contract/client.js';
import { orSmallest } from '../contract/smallest-context.js';
import type { Synced, SyncRequest } from '../contract/sync.js';
import { isFailure, PalimpsestError } from '../errors.js';

/** A `sync` without its messages. */
export type HeldRequest = Omit<SyncRequest, 'messages' | 'budget'> & { session: string };

type SyncClient = Pick<PalimpsestClient, 'sync'>;

/** Number of times that other processes may come first. */
const attempts = 50;

/** The longest wait in milliseconds before a further attempt. */
const longestWait = 640;

/** The context of a session, the smallest one if none fits its budget; null if there is no such session. */
export async function heldContext<Message, System>(
  client: SyncClient,
  request: HeldRequest,
): Promise<Synced<Message, System> | null> {
  try {
    return await orSmallest((shape) => client.sync<Message, System>({ ...request, ...shape, messages: [] }));
  } catch (error) {
    if (isFailure(error, 'Store.SessionNotFound')) return null;
    throw error;
  }
}

/** Repeats what fails with `Store.ListEdited`, because other processes add to the session at the same time. */
export async function afterOthers<Result>(
  session: string,
  attempt: (number: number) => Promise<Result>,
): Promise<Result> {
  for (let number = 1; ; number++) {
    try {
      return await attempt(number);
    } catch (error) {
      if (!isFailure(error, 'Store.ListEdited')) throw error;
      if (number === attempts)
        throw new PalimpsestError(
          'Store.StaleAppend',
          `other calls add to session ${session} all the time: nothing of this call is stored`,
          { hint: 'Repeat the call.', cause: error },
        );
      await wait(Math.random() * Math.min(longestWait, 10 * 2 ** number));
    }
  }
}

const queues = new WeakMap<SyncClient, Map<string, Promise<void>>>();

/** Calls of this process for one session, one after another. */
export async function inTurn<Result>(
  client: SyncClient,
  session: string,
  call: () => Promise<Result>,
): Promise<Result> {
  const queue = queues.get(client) ?? new Map<string, Promise<void>>();
  queues.set(client, queue);
  const result = (queue.get(session) ?? Promise.resolve()).then(call);
  const ended = result.then(
    () => undefined,
    () => undefined,
  );
  queue.set(session, ended);
  try {
    return await result;
  } finally {
    if (queue.get(session) === ended) queue.delete(session);
  }
}
