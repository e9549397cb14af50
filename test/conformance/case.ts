import { expect } from 'vitest';
import type { PalimpsestClient } from '../../src/contract/client.js';
import type { ChatMessage } from '../../src/conversation/message.js';
import { PalimpsestError } from '../../src/errors.js';
import { dialogue } from '../support/dialogue.js';

/** The parts of a case of the conformance suite. */
export interface Case {
  name: string;
  /** Calls the client; the result must be the same for every client. The sessions of a case have unique names. */
  run(client: PalimpsestClient): Promise<unknown>;
  /** The expected result, as far as it is given. */
  expected?: unknown;
}

/** The failure of a call: the fields on which a caller can act. */
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

/** Ten turns that are never due, so that every client compacts the same messages on request. */
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

/** Removes values that differ between runs: tenant, times, run ids, milliseconds, tokens of a prompt's delimiters. */
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
