/** Invariant 11. A tenant sees its own rows only, whatever the names of its sessions and turns. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { dialogue } from '../../support/dialogue.js';
import { replayed } from '../../support/sessions.js';
import { startStack, type Stack } from '../../support/stack.js';

let stack: Stack;

/** Names that percent-encoding, a separator or a prefix could confuse. */
const names = ['acme', 'acme/s', 'acme%2Fs', 'ACME', 'acme '];
let tenants: Palimpsest[];

beforeAll(async () => {
  stack = await startStack();
  const { databaseUrl, temporal, queuePrefix } = stack;
  const connect = (name: string) =>
    Palimpsest.connect({ databaseUrl, temporal, queuePrefix, tenant: `${queuePrefix} ${name}`, poolSize: 2 });
  tenants = await Promise.all(names.map(connect));
});

afterAll(async () => {
  await Promise.all(tenants.map((tenant) => tenant.close()));
  await stack.stop();
});

function conversationOf(name: string): ChatMessage[][] {
  const turns = dialogue(16);
  for (const message of turns.flat()) message.content = `${name}: ${String(message.content)}`;
  return turns;
}

describe('invariant 11: a tenant sees its own rows only', () => {
  test.for(['s', 's/s'])('the same session and turn names in every tenant: %s', async (session) => {
    await Promise.all(
      tenants.map(async (tenant, index) => {
        const policy = { contextWindow: 4_000 };
        for (const [turn, messages] of conversationOf(names[index]!).entries())
          await tenant.appendTurn({ session, turnId: `t-${turn}`, messages, policy });
        await tenant.settled({ session });
      }),
    );
    for (const [index, tenant] of tenants.entries()) {
      const own = conversationOf(names[index]!);
      expect(await replayed(tenant, session)).toEqual(own.flat().map((message) => JSON.stringify(message)));
      expect(await tenant.compactions({ session })).toMatchObject([{ generation: 1, method: 'model' }]);
      expect(await tenant.archive({ session })).toHaveLength(1);
      const { messages } = await tenant.context({ session });
      expect(messages.slice(-2)).toEqual(own.at(-1));
    }
  });

  test("a tenant's data does not exist for another tenant", async () => {
    const [owner, other] = tenants;
    const session = 'private';
    await owner!.appendTurn({ session, turnId: 't', messages: conversationOf('acme')[0]! });
    const notFound = { type: 'Store.SessionNotFound' };
    await expect(other!.context({ session })).rejects.toMatchObject(notFound);
    await expect(other!.status({ session })).rejects.toMatchObject(notFound);
    await expect(other!.compact({ session })).rejects.toMatchObject(notFound);
    await expect(other!.configure({ session, policy: {} })).rejects.toMatchObject(notFound);
    await expect(other!.closeSession({ session })).rejects.toMatchObject(notFound);
    await expect(replayed(other!, session)).rejects.toMatchObject(notFound);
    await expect(other!.archive({ session })).rejects.toMatchObject(notFound);
    await expect(other!.compactions({ session })).rejects.toMatchObject(notFound);
    expect(await replayed(owner!, session)).toHaveLength(2);
  });
});
