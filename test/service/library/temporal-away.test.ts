/** An absent Temporal server does not delay the agent: its turn is stored, and signalled when the server is back. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { dialogue } from '../../support/dialogue.js';
import type { PolicyInput } from '../../../src/policy/schema.js';
import { startStack, type Stack } from '../../support/stack.js';
import { Way } from '../../support/way.js';

let stack: Stack;

beforeAll(async () => {
  stack = await startStack();
});

afterAll(() => stack.stop());

test('a turn is stored while Temporal is away, the context is readable, and the repeated turn is signalled', async () => {
  const way = new Way(stack.temporal.address);
  const port = await way.open();
  const { databaseUrl, queuePrefix } = stack;
  const temporal = { address: `127.0.0.1:${port}` };
  const palimpsest = await Palimpsest.connect({ databaseUrl, temporal, tenant: queuePrefix, queuePrefix });
  try {
    const [first, second] = dialogue(2) as [ReturnType<typeof dialogue>[0], ReturnType<typeof dialogue>[0]];
    const policy: PolicyInput = { trigger: { messages: 40 }, signal: 'always' };
    expect(await palimpsest.appendTurn({ session: 's', turnId: '1', messages: first, policy })).toMatchObject(
      {
        signalled: true,
      },
    );
    way.cut();
    expect(await palimpsest.appendTurn({ session: 's', turnId: '2', messages: second })).toMatchObject({
      signalled: false,
    });
    expect((await palimpsest.context({ session: 's' })).messages).toEqual([...first, ...second]);
    await expect(palimpsest.compact({ session: 's' })).rejects.toMatchObject({
      type: 'Temporal.Unavailable',
    });
    await way.open(port);
    await expect
      .poll(() => palimpsest.appendTurn({ session: 's', turnId: '2', messages: second }))
      .toMatchObject({ signalled: true, repeated: true });
  } finally {
    await palimpsest.close();
    way.cut();
  }
});
