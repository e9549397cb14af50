import { expect } from 'vitest';
import type { PalimpsestClient } from '../../src/contract/client.js';
import type { ChatMessage } from '../../src/conversation/message.js';
import { PalimpsestError } from '../../src/errors.js';
import { dialogue } from '../support/dialogue.js';

/** What a case of the conformance suite is made of. */
export interface Case {
  name: string;
  /** Asks the client; what it answers must be the same from every client. Sessions of a case carry its own names. */
  run(client: PalimpsestClient): Promise<unknown>;
  /** What it must be, as far as it is said here. */
  expected?: unknown;
}

/** How a call fails: what a caller can act on. */
export async function failure(call: Promise<unknown>): Promise<unknown> {
  try {
    return { answered: await call };
  } catch (error) {
    if (!(error instanceof PalimpsestError)) throw error;
    const { type, path, details } = error;
    return { type, path, details };
  }
}

export const invalidAt = (path: string) => ({ type: 'Input.Invalid', path });
export const noSession = { type: 'Store.SessionNotFound' };

export async function all<T>(items: AsyncGenerator<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

/** Ten turns, none of which is ever due, so that every client compacts the same by hand. */
export async function talked(
  client: PalimpsestClient,
  session: string,
  turns: readonly ChatMessage[][] = dialogue(10),
): Promise<void> {
  for (const [index, messages] of turns.entries())
    await client.appendTurn({
      ...{ session, turnId: `t-${index}`, messages },
      ...(index === 0 ? { policy: { contextWindow: 8_000 } } : {}),
    });
}

export async function compacted(client: PalimpsestClient, session: string): Promise<void> {
  await talked(client, session);
  expect(await client.compact({ session })).toMatchObject({ generation: 1 });
  await client.settled({ session });
}

/** Without what differs from run to run: tenant, moments, runs, milliseconds, delimiters of a prompt by their tokens. */
export function comparable(value: unknown, tenant: string): unknown {
  const varying = new Set(['runId', 'modelMs', 'overheadMs', 'perSecond', 'etag', 'at', 'modelInputTokens']);
  const plain = (each: unknown): unknown => {
    if (each instanceof Date) return '<date>';
    if (typeof each === 'string')
      return each.replaceAll(tenant, '<tenant>').replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, '<moment>');
    if (Array.isArray(each)) return each.map(plain);
    if (typeof each !== 'object' || each === null) return each;
    return Object.fromEntries(
      Object.entries(each).flatMap(([key, inner]) =>
        inner === undefined ? [] : [[key, varying.has(key) ? typeof inner : plain(inner)]],
      ),
    );
  };
  return plain(value);
}
