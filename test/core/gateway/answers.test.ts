/** Answers that wait for the next request of their session. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import type { Turn } from '../../../src/contract/turns.js';
import type { Json } from '../../../src/conversation/message.js';
import { itemDigest } from '../../../src/formats/list-digest.js';
import { Answers, type Kept } from '../../../src/gateway/answers.js';
import { chat } from '../../../src/gateway/protocols/chat.js';
import { Sessions } from '../../../src/gateway/session.js';
import type { GatewayClient } from '../../../src/gateway/settings.js';

const user = (content: string): Json => ({ role: 'user', content });
const assistant = (content: string): Json => ({ role: 'assistant', content });

const answerTo = (list: readonly Json[], text: string): Kept => ({
  ...{ session: 's', protocol: chat, items: list.length, last: itemDigest(list.at(-1)!) },
  ...{ throughSeq: list.length, messages: Promise.resolve([assistant(text)]) },
  ...{ isPart: false, characters: text.length, usage: null },
});

test('an answer that comes while the one before it is being stored is not lost', async () => {
  const stored: Turn[] = [];
  const append = (turn: Turn) => Promise.resolve(stored.push(turn));
  const answers = new Answers(1_000_000, () => undefined);
  const list = [user('One')];
  answers.keep('s', answerTo(list, 'Two'), append);
  const going = await answers.continuing('s', [...list, assistant('Two'), user('Three')]);
  // Another request of the session has its answer before the first one is stored.
  answers.keep('s', answerTo([...list, assistant('Two'), user('Other')], 'Four'), append);
  going?.stored();
  await answers.close();
  expect(stored.map(({ messages }) => messages)).toContainEqual([assistant('Four')]);
});

test('an answer that waits keeps nothing else of its request in memory', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const context = { messages: [], tokens: 1, budget: 1_000, window: 1_000 };
  const client = {
    syncSizes: () => Promise.resolve({ session: 's', throughSeq: 1, unchanged: true, stored: null, context }),
    policy: () => Promise.resolve({ policy: {} }),
  };
  const answers = new Answers(1_000_000, () => undefined);
  const sessions = new Sessions(answers, 10_000);
  const asked = async (): Promise<WeakRef<Json[]>> => {
    const list = [user('One')];
    const caller = {
      ...{ tenant: 't', session: 's', onEdit: undefined, signal: new AbortController().signal },
      client: client as unknown as GatewayClient,
    };
    const request = chat.read({ messages: list });
    const begun = await sessions.begin(chat, request, [], caller);
    await begun.answered({ ...answerTo(list, 'Two'), canBeNamed: false });
    return new WeakRef(request.list);
  };
  const list = await asked();
  await expect
    .poll(() => {
      collect();
      return list.deref() === undefined;
    })
    .toBe(true);
});
