/** Calls that write to the same session at the same time: one after another in a process, and again after other processes. */
import { setTimeout as wait } from 'node:timers/promises';
import { PalimpsestError } from './errors.js';

/** Number of times that other processes may come first. */
const attempts = 50;

/** The longest wait in milliseconds before a further attempt. */
const longestWait = 640;

/**
 * Repeats an attempt that others have overtaken: at once, then after waits of random length, so that the slowest gets its turn
 * too. Each attempt must read again.
 */
export async function afterOthers<Result>(
  session: string,
  isOvertaken: (error: unknown) => boolean,
  attempt: (number: number) => Promise<Result>,
): Promise<Result> {
  for (let number = 1; ; number++) {
    try {
      return await attempt(number);
    } catch (error) {
      if (!isOvertaken(error)) throw error;
      if (number === attempts)
        throw new PalimpsestError(
          'Store.StaleAppend',
          `other calls add to session ${session} all the time, and came before this one ${attempts} times`,
          {
            path: 'session',
            hint: 'Repeat the call: what it has stored already is not stored again.',
            cause: error,
          },
        );
    }
    if (number > 1) await wait(Math.random() * Math.min(longestWait, 10 * 2 ** number));
  }
}

const queues = new WeakMap<object, Map<string, Promise<void>>>();

/** Calls of this process that `owner` makes for one session, one after another. */
export async function inTurn<Result>(
  owner: object,
  session: string,
  call: () => Promise<Result>,
): Promise<Result> {
  const queue = queues.get(owner) ?? new Map<string, Promise<void>>();
  queues.set(owner, queue);
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
