/** The measure of the quality bench: the definition of an identifier, of a needed one, and of a kept one. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { counterFor } from '../../../src/tokens/counter.js';
import type { ChatMessage } from '../../../src/conversation/message.js';
import { classes, identifiersOf, type IdentifierClass } from '../../../bench/quality/grammar.js';
import { pooled } from '../../../bench/quality/intervals.js';
import { holds, indexed, neededAfter, scoreOf } from '../../../bench/quality/needs.js';
import { lossyOracle } from '../../../bench/quality/summarizers.js';

const user = (content: string): ChatMessage => ({ role: 'user', content });
const tool = (content: string): ChatMessage => ({ role: 'tool', tool_call_id: 'c', content });

const call = (args: object): ChatMessage => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id: 'c', type: 'function', function: { name: 'get', arguments: JSON.stringify(args) } }],
});

describe('grammar', () => {
  test.each<[string, string, IdentifierClass]>([
    ['see https://example.org/a?b=1.', 'https://example.org/a?b=1', 'url'],
    ['mail ann@example.org,', 'ann@example.org', 'email'],
    ['in `src/a/b.ts`:', 'src/a/b.ts', 'path'],
    ['open setup.py now', 'setup.py', 'path'],
    ['on 2024-05-15', '2024-05-15', 'date'],
    ['node v20.19.4', 'v20.19.4', 'version'],
    ['commit 9f8c2d1e4b', '9f8c2d1e4b', 'hash'],
    ['order #W2378156?', '#W2378156', 'id'],
    ['user mia_li_3668', 'mia_li_3668', 'id'],
    ['item 1725100896,', '1725100896', 'id'],
    ['call getUserById()', 'getUserById', 'symbol'],
    ['set max_retries', 'max_retries', 'symbol'],
  ])('%j: %s', (text, name, kind) => {
    expect(identifiersOf(text).get(name)).toBe(kind);
  });

  test.each(['and/or', '12 of 300', '100ms 2nd 40px', 'self-contained', 'Hello, world.', 'in 2024'])(
    '%j holds none',
    (text) => {
      expect([...identifiersOf(text)]).toEqual([]);
    },
  );

  test('every identifier of a text is held by that text, and has a known class', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (noise) => {
        const text = `src/a/b.ts ${noise} user_42x`;
        for (const [name, kind] of identifiersOf(text)) {
          expect(text).toContain(name);
          expect(classes).toContain(kind);
        }
      }),
    );
  });
});

describe('needed', () => {
  const session = (...messages: ChatMessage[]) => indexed(messages);

  test('is an identifier that an action names before any other message does', () => {
    const index = session(
      user('Orders #W100200 and #W300400.'),
      tool('ok'),
      user('Go on.'),
      call({ order: '#W100200' }),
    );
    expect([...neededAfter(index, 1, 3).keys()]).toEqual(['#W100200']);
  });

  test('is not an identifier that a user or a tool repeats before the action', () => {
    const index = session(user('Order #W100200.'), user('It is #W100200.'), call({ order: '#W100200' }));
    expect(neededAfter(index, 1, 1).size).toBe(0);
    expect(neededAfter(index, 1, 2).size).toBe(1);
  });

  test('is not an identifier of the leading system messages, which are never evicted', () => {
    const system: ChatMessage = { role: 'system', content: 'Shop id shop_7781.' };
    const index = session(system, user('Ask shop_7781.'), user('Now!'), call({ shop: 'shop_7781' }));
    expect(neededAfter(index, 2, 3).size).toBe(0);
  });

  test('keys of arguments are not identifiers; numbers among the values are', () => {
    const index = session(user('order_id_1 is 4711004711'), user('Go.'), call({ order_id_1: 4711004711 }));
    expect([...neededAfter(index, 1, 2).keys()]).toEqual(['4711004711']);
  });

  test("without calls, the assistant's text counts as an action", () => {
    const index = session(user('Open src/a/b.ts'), user('Go.'), {
      role: 'assistant',
      content: 'cat src/a/b.ts',
    });
    expect([...neededAfter(index, 1, 2).keys()]).toEqual(['src/a/b.ts']);
  });
});

describe('kept', () => {
  test('word for word and whole', () => {
    expect(holds('see item_1, then', 'item_1')).toBe(true);
    expect(holds('see item_10', 'item_1')).toBe(false);
    expect(holds('see my_item_1', 'item_1')).toBe(false);
    expect(holds('see item_10 and item_1', 'item_1')).toBe(true);
    expect(holds('in /work/src/a.ts', 'src/a.ts')).toBe(true);
  });

  test('a context without anything keeps nothing, one with everything keeps all', () => {
    const needed = new Map<string, IdentifierClass>([
      ['src/a/b.ts', 'path'],
      ['getUser', 'symbol'],
    ]);
    expect(scoreOf(needed, '', '').identifiers).toEqual({ needed: 1, kept: 0 });
    const full = scoreOf(needed, 'src/a/b.ts getUser', 'src/a/b.ts');
    expect(full.identifiers).toEqual({ needed: 1, kept: 1 });
    expect(full.beyondTail).toEqual({ needed: 0, kept: 0 });
    expect(full.symbols).toEqual({ needed: 1, kept: 1 });
  });
});

describe('intervals', () => {
  test('the share is pooled over identifiers and lies within its interval', () => {
    const counts = [
      { needed: 10, kept: 10 },
      { needed: 30, kept: 15 },
      { needed: 0, kept: 0 },
    ];
    const share = pooled(counts);
    expect(share).toMatchObject({ share: 25 / 40, sessions: 2, needed: 40 });
    expect(share!.low).toBeLessThan(share!.share);
    expect(share!.high).toBeGreaterThan(share!.share);
    expect(pooled(counts)).toEqual(share);
    expect(pooled([{ needed: 0, kept: 0 }])).toBeNull();
  });
});

describe('lossy oracle', () => {
  const counter = counterFor('o200k_base');
  const names = Array.from({ length: 400 }, (_, index) => `order_${1000 + index}`);
  const ask = (q: number, content: string) =>
    lossyOracle(q, counter)(
      { messages: [{ role: 'user', content }], maxTokens: 8_000 },
      { kind: 'fold', maxTokens: 8_000 },
    );
  const keptOf = async (answer: string | Promise<string>) => {
    const text = await answer;
    return names.filter((name) => holds(text, name)).length;
  };

  test('keeps about the given share: equal for equal requests, different for others', async () => {
    const content = names.join(' ');
    expect(await keptOf(ask(1, content))).toBe(400);
    expect(await keptOf(ask(0, content))).toBe(0);
    const kept = await keptOf(ask(0.9, content));
    expect(kept).toBeGreaterThan(340);
    expect(kept).toBeLessThan(385);
    expect(await ask(0.9, content)).toBe(await ask(0.9, content));
    expect(await ask(0.9, content)).not.toBe(await ask(0.9, `${content} `.repeat(2)));
  });

  test('stays within the limit and adds nothing to the request', async () => {
    const answer = await lossyOracle(1, counter)(
      { messages: [{ role: 'user', content: names.join(' ') }], maxTokens: 300 },
      { kind: 'chunk', maxTokens: 300 },
    );
    expect(counter.count(answer)).toBeLessThanOrEqual(300);
    for (const name of identifiersOf(answer).keys()) expect(names).toContain(name);
  });
});
