/**
 * The caller that this code works for: set once where a request enters, read where shared things are given out. It
 * follows the request through every await, so that no function in between has to pass it on.
 */
import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * `hot`: what an agent waits for between two model calls, in milliseconds. `heavy`: what reads or writes whole sessions,
 * such as search and replay; it takes half of the connections at most, and a fifth of a tenant's.
 */
export type Lane = 'hot' | 'heavy';

export interface Caller {
  tenant: string;
  lane: Lane;
  /** Aborted with a `CallerGone` when nobody waits for the answer any more. Absent: what is begun is done. */
  signal?: AbortSignal;
}

/** Nobody waits for this answer any more. */
export class CallerGone extends Error {
  constructor() {
    super('the caller has gone');
    this.name = 'CallerGone';
  }
}

const callers = new AsyncLocalStorage<Caller>();

/** Undefined in a worker, in the library and on the command line, where one process serves one owner. */
export function currentCaller(): Caller | undefined {
  return callers.getStore();
}

export function asCaller<T>(caller: Caller, work: () => T): T {
  return callers.run(caller, work);
}

/** For work that several callers share: none of them ends it, and none of them is charged for it. */
export function asNobody<T>(work: () => T): T {
  return callers.exit(work);
}
