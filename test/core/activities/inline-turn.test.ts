import { describe, expect, test } from 'vitest';
import { inlineMessages, macOf } from '../../../activities/inline-turn.js';

const key = 'd41d8cd98f00b204e9800998ecf8427e';
const ids = { tenant: 'acme', session: 's', turnId: 't-1' };
const messages = [{ role: 'user', content: 'Grüße – 你好' }];
const text = JSON.stringify(messages);
const settings = { inlineTurnTenants: [], inlineTurnKeys: { acme: key } };
const mac = macOf(key, ids, text);

describe('messages inside a signal', () => {
  test('with their signature are accepted', () => {
    expect(inlineMessages({ ...ids, messages: text, mac }, settings)).toEqual(messages);
    expect(inlineMessages({ ...ids, messages: text, mac: mac.toUpperCase() }, settings)).toEqual(messages);
  });

  test('have the signature of any HMAC-SHA256', () => {
    // printf 'acme\0s\0t-1\0[]' | openssl dgst -sha256 -hmac d41d8cd98f00b204e9800998ecf8427e
    expect(macOf(key, ids, '[]')).toBe('02d127534afe0b76bbe54c32fe85380ad0a1fc4378a1baadff7125178faa4db4');
  });

  test.each<[string, object]>([
    ['no signature', { mac: undefined }],
    ['messages that are not text', { messages }],
    ['another session', { session: 'other' }],
    ['another turn id', { turnId: 't-2' }],
    ['other messages', { messages: '[]' }],
    ['the signature with another key', { mac: macOf('another key of this length', ids, text) }],
    ['half of the signature', { mac: mac.slice(0, 32) }],
    ['an id that moves the borders', { session: 's\0t-1', turnId: '' }],
  ])('are refused for a tenant with a key: %s', (_, change) => {
    expect(() => inlineMessages({ ...ids, messages: text, mac, ...change }, settings)).toThrow(
      expect.objectContaining({ type: 'Input.Invalid' }),
    );
  });

  test('under a turn id that is no text are refused with its place', () => {
    const nested = JSON.parse(`${'['.repeat(5_000)}${']'.repeat(5_000)}`) as string;
    expect(() => inlineMessages({ ...ids, turnId: nested, messages: text, mac }, settings)).toThrow(
      expect.objectContaining({ type: 'Input.Invalid', path: 'turnId' }),
    );
  });

  test('need no signature for a listed tenant without a key, and a key counts more than the list', () => {
    const listed = { inlineTurnTenants: ['*'], inlineTurnKeys: { other: key } };
    expect(inlineMessages({ ...ids, messages }, listed)).toEqual(messages);
    expect(() => inlineMessages({ ...ids, tenant: 'other', messages }, listed)).toThrow(/must sign/);
    expect(() => inlineMessages({ ...ids, messages }, { inlineTurnTenants: [] })).toThrow(/may not send/);
    expect(() =>
      inlineMessages({ ...ids, tenant: 'constructor', messages }, { inlineTurnTenants: [] }),
    ).toThrow(/may not send/);
  });

  test('that are text but not valid JSON are refused', () => {
    const broken = '[{"role":';
    expect(() =>
      inlineMessages({ ...ids, messages: broken, mac: macOf(key, ids, broken) }, settings),
    ).toThrow(/not valid JSON/);
  });
});
