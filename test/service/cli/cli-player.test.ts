/**
 * The player of `palimpsest dev` behaves as a platform should: a short outage of the database delays a session and does not end
 * it.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { playSession } from '../../../src/cli/play/player.js';
import { PalimpsestError } from '../../../src/errors.js';
import type { Palimpsest } from '../../../src/library/palimpsest.js';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});

afterAll(() => stack?.stop());

/** Every method misses its connection the first time it is called. */
function missingOnce(palimpsest: Palimpsest): { palimpsest: Palimpsest; missed: string[] } {
  const missed: string[] = [];
  const missing = new Proxy(palimpsest, {
    get(target, name) {
      const method: unknown = Reflect.get(target, name, target);
      if (typeof method !== 'function' || typeof name !== 'string') return method;
      return (...args: unknown[]): unknown => {
        if (missed.includes(name)) return Reflect.apply(method, target, args) as unknown;
        missed.push(name);
        throw new PalimpsestError('Store.Unavailable', 'PostgreSQL: timeout exceeded when trying to connect');
      };
    },
  });
  return { palimpsest: missing, missed };
}

test('a missed connection to PostgreSQL does not end a session', async () => {
  const { palimpsest, missed } = missingOnce(stack.palimpsest);
  const notices: string[] = [];
  const messages = dialogue(18).flat();
  const played = await playSession(palimpsest, { id: 'missed', messages }, smallPolicy, {
    events: { notice: (text) => notices.push(text) },
    signal: new AbortController().signal,
  });
  expect(played.replay).toEqual({ messages: 36, identical: true });
  expect(played.compactions.length).toBeGreaterThan(0);
  expect(missed.sort()).toEqual(['appendTurn', 'compactions', 'context', 'replay', 'settled', 'status']);
  expect(notices.filter((text) => text.endsWith('trying again'))).toHaveLength(6);
});
