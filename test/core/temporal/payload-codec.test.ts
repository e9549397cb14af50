import { createDecipheriv } from 'node:crypto';
import { ApplicationFailure, defaultPayloadConverter, type Payload } from '@temporalio/common';
import { describe, expect, test } from 'vitest';
import { payloadCodec } from '../../../src/index.js';
import { dataConverterOf } from '../../../src/temporal/payload-codec.js';
import { readConfig } from '../../../src/config/config.js';

const keyOf = (byte: number) => Buffer.alloc(32, byte).toString('base64');
const first = { id: '2026-11', key: keyOf(1) };
const second = { id: '2026-12', key: keyOf(2) };
const plain = defaultPayloadConverter.toPayload({ content: 'the planted text', n: [1, null] });

async function encrypted(keys = [first], namespace?: string): Promise<Payload> {
  const [payload] = await payloadCodec(keys, { namespace }).encode([plain]);
  return payload!;
}

const valueOf = (payload: Payload | undefined): unknown => defaultPayloadConverter.fromPayload(payload!);
const bytes = (text: string) => Buffer.from(text);

describe('the payload codec', () => {
  test('returns what it encrypted, and hides it', async () => {
    const payload = await encrypted();
    expect(Buffer.from(payload.metadata!['encoding']!).toString()).toBe('binary/encrypted');
    expect(Buffer.from(payload.metadata!['encryption-key-id']!).toString()).toBe('2026-11');
    expect(Buffer.from(payload.data!).includes('planted')).toBe(false);
    const [back] = await payloadCodec([first]).decode([payload]);
    expect(valueOf(back)).toEqual(valueOf(plain));
    // Equal payloads must not look equal.
    expect((await encrypted()).data).not.toEqual(payload.data);
  });

  test.each([undefined, null, 'text', new Uint8Array([0, 255, 3])])(
    'keeps the kind of a value: %s',
    async (value) => {
      const codec = payloadCodec([first]);
      const [back] = await codec.decode(await codec.encode([defaultPayloadConverter.toPayload(value)]));
      expect(valueOf(back)).toEqual(value);
    },
  );

  test('has the documented format: nonce, ciphertext, tag, and the namespace as additional data', async () => {
    const { data } = await encrypted([first], 'agents');
    const all = Buffer.from(data!);
    const decipher = createDecipheriv('aes-256-gcm', Buffer.alloc(32, 1), all.subarray(0, 12))
      .setAAD(bytes('agents'))
      .setAuthTag(all.subarray(-16));
    const message = Buffer.concat([decipher.update(all.subarray(12, -16)), decipher.final()]);
    // Field 2 of the payload's message is its data.
    expect(message.includes(Buffer.concat([Buffer.from([0x12, plain.data!.length]), plain.data!]))).toBe(
      true,
    );
  });

  test('encrypts with the first key and decrypts with every key', async () => {
    const before = await encrypted([first]);
    const rotated = payloadCodec([second, first]);
    const [after] = await rotated.encode([plain]);
    expect(Buffer.from(after!.metadata!['encryption-key-id']!).toString()).toBe('2026-12');
    expect((await rotated.decode([before, after!])).map(valueOf)).toEqual([valueOf(plain), valueOf(plain)]);
  });

  test('returns plain text unchanged, between encrypted payloads too', async () => {
    const decoded = await payloadCodec([first]).decode([plain, await encrypted(), plain]);
    expect(decoded.map(valueOf)).toEqual([valueOf(plain), valueOf(plain), valueOf(plain)]);
    expect(decoded[0]).toBe(plain);
  });

  test.each<[string, (payload: Payload) => Payload]>([
    ['a changed byte', ({ metadata, data }) => ({ metadata, data: changed(data!, data!.length >> 1) })],
    ['a changed nonce', ({ metadata, data }) => ({ metadata, data: changed(data!, 0) })],
    ['a changed tag', ({ metadata, data }) => ({ metadata, data: changed(data!, data!.length - 1) })],
    ['truncated data', ({ metadata, data }) => ({ metadata, data: data!.subarray(0, 20) })],
    ['no data', ({ metadata }) => ({ metadata })],
    [
      'the id of another key',
      ({ metadata, data }) => ({ metadata: { ...metadata, 'encryption-key-id': bytes('2026-12') }, data }),
    ],
  ])('refuses %s', async (_, change) => {
    const decoded = payloadCodec([first, second]).decode([change(await encrypted())]);
    await expect(decoded).rejects.toMatchObject({
      type: 'Payload.Unreadable',
      message: expect.stringContaining('does not open it'),
    });
  });

  test('refuses a payload of another namespace', async () => {
    const decoded = payloadCodec([first], { namespace: 'other' }).decode([
      await encrypted([first], 'agents'),
    ]);
    await expect(decoded).rejects.toMatchObject({ type: 'Payload.Unreadable' });
  });

  test('names an unknown key and the setting, also if no key is set', async () => {
    const payload = await encrypted([second]);
    for (const codec of [payloadCodec([first]), dataConverterOf({}).payloadCodecs![0]!]) {
      const error: unknown = await codec.decode([payload]).catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(ApplicationFailure);
      expect(error).toMatchObject({ type: 'Payload.Unreadable', details: [{ keyId: '2026-12' }] });
      expect((error as Error).message).toMatch(/"2026-12".*PALIMPSEST_PAYLOAD_KEYS/);
    }
  });

  test('encrypts nothing without keys', async () => {
    expect(await dataConverterOf({}).payloadCodecs![0]!.encode([plain])).toEqual([plain]);
  });
});

function changed(data: Uint8Array, at: number): Uint8Array {
  const copy = Uint8Array.from(data);
  copy[at]! ^= 1;
  return copy;
}

describe('PALIMPSEST_PAYLOAD_KEYS', () => {
  const read = (value: string) =>
    readConfig({ PALIMPSEST_PAYLOAD_KEYS: value }, '/nowhere').temporal.payloadKeys;

  test('is a list in the order of the variable', () => {
    expect(read(`2026-12:${second.key}, 2026-11:${first.key}`)).toEqual([second, first]);
    expect(read('')).toBeUndefined();
  });

  test.each([
    ['no id', first.key, 'PALIMPSEST_PAYLOAD_KEYS[0]', 'is not `id:key`'],
    ['a bad id', `a b:${first.key}`, 'PALIMPSEST_PAYLOAD_KEYS[0]', 'is not `id:key`'],
    ['no base64', `a:${'?'.repeat(44)}`, 'PALIMPSEST_PAYLOAD_KEYS[0]', '(a) is not base64'],
    [
      'a short key',
      `a:${keyOf(1)},b:c2hvcnQ=`,
      'PALIMPSEST_PAYLOAD_KEYS[1]',
      '(b) has 5 bytes; AES-256 needs 32',
    ],
    [
      'an id twice',
      `a:${keyOf(1)},a:${keyOf(2)}`,
      'PALIMPSEST_PAYLOAD_KEYS[1]',
      '(a) has the id of an earlier key',
    ],
    [
      'a key twice',
      `a:${keyOf(1)},b:${keyOf(1)}`,
      'PALIMPSEST_PAYLOAD_KEYS[1]',
      '(b) is the same key as an earlier entry',
    ],
  ])('refuses %s and does not repeat it', (_, value, path, message) => {
    let refused: unknown;
    try {
      read(value);
    } catch (error) {
      refused = error;
    }
    expect(refused).toMatchObject({ type: 'Input.Invalid', path, message: expect.stringContaining(message) });
    const { message: text, hint } = refused as Error & { hint: string };
    expect(hint).not.toBe('');
    for (const secret of [keyOf(1), keyOf(2), 'c2hvcnQ', '????'])
      expect(`${text} ${hint}`).not.toContain(secret);
  });

  test('is checked in the library too', () => {
    expect(() => payloadCodec([])).toThrow('nothing would be encrypted');
    expect(() => payloadCodec([{ id: 'a', key: 'c2hvcnQ=' }])).toThrow('keys[0] (a) has 5 bytes');
  });
});
