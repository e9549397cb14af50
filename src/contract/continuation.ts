/** Ids of the forks in which a session goes on. */
import { createHash } from 'node:crypto';
import { idFault } from './ids.js';

const hashOf = (origin: string): string => createHash('sha256').update(origin).digest('hex');

/**
 * Id of a fork in which the session `origin` goes on after the session `from`, which is `origin` itself or such a fork: `s` →
 * `s~1`, `s~2`. `step` is 1, or more if that id is used already. A long id is replaced by its hash.
 */
export function continuationId(origin: string, from: string, step: number): string {
  const before = from === origin ? 0 : Number(/~(\d+)$/.exec(from)?.[1] ?? 0);
  const id = `${origin}~${before + step}`;
  if (idFault(id) === null) return id;
  return `${hashOf(origin)}~${before + step}`;
}

/** What the ids of these forks begin with, before `~` and a number. */
export const continuationNames = (origin: string): string[] => [origin, hashOf(origin)];
