/**
 * Turns of megabytes and of very many messages: refused early if they are too large, otherwise stored exactly while other work
 * continues.
 */
import { once } from 'node:events';
import net from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readBody } from '../../../src/api/body.js';
import { type ChatMessage, type Json, MessagesText, sharedText } from '../../../src/conversation/message.js';
import { defaultTurnLimits, MOST_VALUES } from '../../../src/conversation/turn-limits.js';
import { isFailure } from '../../../src/errors.js';
import { Palimpsest } from '../../../src/library/palimpsest.js';
import { turnToCount } from '../../../src/intake/count.js';
import { registerCounter } from '../../../src/tokens/counter.js';
import { digestOf, startApiStack, type ApiStack } from '../../support/api.js';
import { replayed } from '../../support/sessions.js';

const messagesOf = (count: number, characters: number): ChatMessage[] =>
  Array.from({ length: count }, (_, index) => ({
    role: index % 2 === 0 ? 'user' : 'assistant',
    content: `${index} "é\u{1F600}\u0000\\ ${'words and 4096 numbers\n'.repeat(Math.ceil(characters / 23))}`,
  }));

let server: ApiStack;
const otherToken = 'token-of-another-tenant';
const other = { tenant: `other-${process.pid}`, sha256: digestOf(otherToken) };

beforeAll(
  async () =>
    void (server = await startApiStack({
      bodyLimitBytes: 8_000_000,
      tenantBodyBytes: 24_000_000,
      tokens: [other],
    })),
);

afterAll(() => server.stop());

const turnsOf = (session: string) => `/v1/sessions/${session}/turns`;

const tooLarge = (path: string, details: Record<string, number>) =>
  expect.objectContaining({
    failure: 'Input.TooLarge',
    status: 413,
    path,
    details: expect.objectContaining(details),
  });

async function refusal(work: () => unknown): Promise<unknown> {
  try {
    return await work();
  } catch (error) {
    if (isFailure(error)) return error;
    throw error;
  }
}

/** How often everything else had its turn while this was done. */
async function turnsBeside(work: () => Promise<unknown>): Promise<number> {
  let turns = 0;
  let over = false;
  const tick = () => {
    turns += 1;
    if (!over) setImmediate(tick);
  };
  setImmediate(tick);
  try {
    await work();
    return turns;
  } finally {
    over = true;
  }
}

describe('an oversized request is refused with the limit, and nothing is stored', () => {
  test('a body, by its length, before it arrives', async () => {
    const { hostname, port } = new URL(server.api.address);
    const socket = net.connect(Number(port), hostname);
    await once(socket, 'connect');
    socket.write(
      [
        `POST ${turnsOf('declared')} HTTP/1.1`,
        `Host: ${hostname}`,
        `Authorization: Bearer ${server.token}`,
        'Content-Type: application/json',
        'Content-Length: 8000001',
        '\r\n',
      ].join('\r\n'),
    );
    let answer = '';
    for await (const chunk of socket) {
      answer += String(chunk);
      if (answer.includes('"requestId"')) break;
    }
    expect(answer).toMatch(/^HTTP\/1.1 413 /);
    expect(answer).toContain('Input.TooLarge');
    expect(answer).toContain('"bodyLimitBytes":8000000');
  });

  test('a body of another operation', async () => {
    const body: Json = { policy: { overhead: 'x'.repeat(1_100_000) } };
    const { json } = await server.ask('/v1/policy', { method: 'PUT', body });
    expect(json).toEqual(tooLarge('body', { bodyLimitBytes: 1_048_576 }));
    for (const path of ['/v1/sessions/s/search', '/v1/sessions/s/fork', '/v1/tokens', '/v1/backfills']) {
      const long: Json = { unknown: 'x'.repeat(70_000) };
      expect((await server.ask(path, { method: 'POST', body: long })).json).toEqual(
        tooLarge('body', { bodyLimitBytes: 65_536 }),
      );
    }
  });

  test('values beside the messages, in any operation', async () => {
    const policy: Json = { overhead: new Array<number>(40_000).fill(1) };
    const turn = { turnId: 't-1', messages: [{ role: 'user', content: 'x' }], policy };
    for (const { json } of [
      await server.ask(turnsOf('values-beside'), { method: 'POST', body: turn }),
      await server.ask('/v1/policy', { method: 'PUT', body: { policy } }),
    ])
      expect(json).toEqual(tooLarge('body', { maxValues: 20_000 }));
  });

  test('messages, over HTTP and in the library', async () => {
    const { palimpsest } = server.stack;
    const messages = messagesOf(defaultTurnLimits.maxMessages + 1, 1);
    const details = { messages: 10_001, maxMessages: 10_000 };
    const body = { turnId: 't-1', messages } as unknown as Json;
    expect((await server.ask(turnsOf('many'), { method: 'POST', body })).json).toEqual(
      tooLarge('messages', details),
    );
    const turn = { session: 'many', turnId: 't-1', messages };
    await expect(palimpsest.appendTurn(turn)).rejects.toMatchObject({ type: 'Input.TooLarge', details });
    await expect(palimpsest.status({ session: 'many' })).rejects.toMatchObject({
      type: 'Store.SessionNotFound',
    });
  });

  test('values, however short', async () => {
    const body = `{"turnId":"t-1","messages":[{"role":"user","content":"x","extra":[${'0,'.repeat(MOST_VALUES)}0]}]}`;
    const { json } = await server.ask(turnsOf('values'), { method: 'POST', body });
    expect(json).toEqual(tooLarge('body', { maxValues: MOST_VALUES }));
  });

  test('other fields than the messages', async () => {
    const body = { turnId: 't-1', messages: [{ role: 'user', content: 'x' }], other: 'x'.repeat(1_100_000) };
    expect((await server.ask(turnsOf('beside'), { method: 'POST', body })).json).toEqual(
      tooLarge('body', { maxCharacters: 1_048_576 }),
    );
  });

  test('by the limits that the operator set', async () => {
    const { databaseUrl, temporal, queuePrefix } = server.stack;
    const turnLimits = { maxMessages: 3, maxBytes: 200 };
    const palimpsest = await Palimpsest.connect({ databaseUrl, temporal, queuePrefix, turnLimits });
    try {
      const append = (messages: ChatMessage[]) =>
        palimpsest.appendTurn({ session: 'limited', turnId: 't-1', messages });
      await expect(append(messagesOf(4, 1))).rejects.toMatchObject({ details: { maxMessages: 3 } });
      await expect(append(messagesOf(1, 300))).rejects.toMatchObject({ details: { maxBytes: 200 } });
    } finally {
      await palimpsest.close();
    }
  });
});

test('a large policy is stored as it was given', async () => {
  const policy: Json = { overhead: { tools: [{ name: 'search', text: 'x'.repeat(200_000) }] } };
  const path = '/v1/sessions/large-policy/policy';
  await server.ask(turnsOf('large-policy'), {
    body: { turnId: 't', messages: [{ role: 'user', content: 'x' }] },
  });
  expect((await server.ask(path, { method: 'PUT', body: { policy } })).status).toBe(200);
  expect((await server.ask(path)).json).toMatchObject({ policy });
});

describe('a large turn', () => {
  const large = messagesOf(2_000, 1_500);

  test('over HTTP is stored exactly, in any form of repetition', async () => {
    const { palimpsest } = server.stack;
    const body = { turnId: 't-1', messages: large } as unknown as Json;
    const { json } = await server.ask(turnsOf('large'), { method: 'POST', body });
    expect(json).toMatchObject({ fromSeq: 1, throughSeq: 2_000, repeated: false });
    expect(await replayed(palimpsest, 'large')).toEqual(large.map((message) => JSON.stringify(message)));
    const again = await palimpsest.appendTurn({ session: 'large', turnId: 't-1', messages: large });
    expect(again).toMatchObject({ repeated: true, throughSeq: 2_000 });
  });

  test('has the same tokens, hashes and warnings as a short one with the same messages', async () => {
    const given = [...messagesOf(40, 10), { role: 'assistant', content: '' }, { role: 'tool', content: 'r' }];
    const short = await turnToCount({ messages: given }, 'openai-chat', defaultTurnLimits).counted(
      'o200k_base',
    );
    const text = new MessagesText(sharedText(JSON.stringify(given)), given.length);
    const long = await turnToCount({ messages: text }, 'openai-chat', defaultTurnLimits).counted(
      'o200k_base',
    );
    expect({ ...long, bodies: long.bodies.toString() }).toEqual(short);
    expect(short.warnings).toHaveLength(2);
  });

  test('is counted by a custom counter of this process', async () => {
    registerCounter('characters-here', (text) => text.length);
    const text = new MessagesText(sharedText(JSON.stringify(large)), large.length);
    const counted = await turnToCount({ messages: text }, 'openai-chat', defaultTurnLimits).counted(
      'custom:characters-here',
    );
    expect(counted.tokens[7]).toBe((large[7]!.content as string).length + 4);
  });

  test.each([
    ['a role', { role: 'robot', content: 'x' }, /messages\[1500\]\.role "robot" is not known/],
    [
      'a number beyond double precision',
      '{"role":"user","content":"x","n":9007199254740993}',
      /cannot be kept exactly/,
    ],
    ['a duplicate key', '{"role":"user","content":"x","content":"y"}', /appears twice/],
  ])('with invalid %s is refused like a short one', async (_what, wrong, problem) => {
    const texts = large.map((message) => JSON.stringify(message));
    texts[1_500] = typeof wrong === 'string' ? wrong : JSON.stringify(wrong);
    const body = `{"turnId":"t-1","messages":[${texts.join(',')}]}`;
    const { status, json } = await server.ask(turnsOf('wrong'), { method: 'POST', body });
    expect(status).toBe(400);
    expect(json).toMatchObject({ failure: 'Input.Invalid', detail: expect.stringMatching(problem) });
    expect((json as { path: string }).path).toMatch(/^messages\[1500\]\./);
  });

  test.each([
    ['[1,2,3]'.padEnd(100_000), /must be a JSON object/],
    [`{"turnId":"t-1","messages":"${'x'.repeat(100_000)}"}`, /must be a list of messages/],
    [`{"turnId":"t-1","nothing":"${'x'.repeat(100_000)}"}`, /not a known field/],
    [`{"turnId":"t-1","messages":[${' '.repeat(100_000)}`, /expected/],
  ])('that is not a turn is refused like a short one: %#', async (body, problem) => {
    const { status, json } = await server.ask(turnsOf('wrong'), { method: 'POST', body });
    expect(status).toBe(400);
    expect(json).toMatchObject({ failure: 'Input.Invalid', detail: expect.stringMatching(problem) });
  });

  test('is read, checked and counted while other work continues', async () => {
    const messages = messagesOf(9_000, 600);
    const bytes = Buffer.from(JSON.stringify({ turnId: 't-1', messages }));
    let read: unknown;
    expect(
      await turnsBeside(async () => {
        read = await readBody(bytes, 'application/json');
      }),
    ).toBeGreaterThan(5);
    expect(read).toMatchObject({ turnId: 't-1', messages: { count: 9_000 } });
    const { messages: text } = read as { messages: MessagesText };
    const turn = turnToCount({ messages: text }, 'openai-chat', defaultTurnLimits);
    expect(await turnsBeside(() => turn.counted('o200k_base'))).toBeGreaterThan(5);
  });

  test('does not delay short ones, and one that ends a thread does not affect the others', async () => {
    const bytes = () => Buffer.from(JSON.stringify({ turnId: 't', messages: messagesOf(9_000, 600) }));
    const done: string[] = [];
    const long = Array.from({ length: 6 }, () =>
      readBody(bytes(), 'application/json').then(() => done.push('long')),
    );
    const short = Buffer.from(JSON.stringify({ turnId: 't', messages: messagesOf(70, 1_000) }));
    await readBody(short, 'application/json').then(() => done.push('short'));
    expect(done.filter((one) => one === 'long').length).toBeLessThan(6);
    await Promise.all(long);
    expect(done).toHaveLength(7);
    expect(await refusal(() => readBody(Buffer.alloc(70_000, 0xff), 'application/json'))).toMatchObject({
      message: expect.stringContaining('UTF-8'),
    });
  });
});

describe('bodies in progress', () => {
  /** Requests that announce a body and send nothing of it yet. */
  async function announce(count: number, length: number, token: string): Promise<net.Socket[]> {
    const { hostname, port } = new URL(server.api.address);
    const open = Array.from({ length: count }, async () => {
      const socket = net.connect(Number(port), hostname);
      await once(socket, 'connect');
      const head = `POST ${turnsOf('announced')} HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: ${length}\r\n\r\n`;
      socket.write(head);
      return socket;
    });
    return Promise.all(open);
  }

  test('take bounded memory: further ones of a tenant are refused, those of another one are not', async () => {
    const sockets = await announce(3, 7_900_000, server.token);
    try {
      const large = { turnId: 't-1', messages: messagesOf(500, 1_500) } as unknown as Json;
      const asked = { method: 'POST', body: large };
      await expect
        .poll(async () => (await server.ask(turnsOf('refused'), asked)).json)
        .toMatchObject({ failure: 'Tenant.LimitReached', details: { limit: 'bodyBytes', most: 24_000_000 } });
      const other = await server.ask(turnsOf('other'), { ...asked, token: otherToken });
      expect(other.status).toBe(200);
      expect((await server.ask('/v1/policy')).status).toBe(200);
    } finally {
      for (const socket of sockets) socket.destroy();
    }
    const small = { turnId: 't-1', messages: messagesOf(500, 1_500) } as unknown as Json;
    await expect
      .poll(async () => (await server.ask(turnsOf('refused'), { method: 'POST', body: small })).status)
      .toBe(200);
  });
});
