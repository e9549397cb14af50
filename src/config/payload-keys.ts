import { z } from 'zod';

/** A key of the payload codec. The first key of a list encrypts; all of them decrypt. */
export interface PayloadKey {
  /** Stands in plain text beside each payload that the key has encrypted: 1–64 letters, digits, `.`, `_` and `-`. */
  id: string;
  /** 32 bytes in base64. */
  key: string;
}

const keyBytes = 32;
const writeIt =
  'Write `id:key`, with an id of 1–64 letters, digits, `.`, `_` and `-`, and the base64 of 32 bytes.';
const makeIt = 'Make one with `openssl rand -base64 32`.';

function isPayloadKey(entry: unknown): entry is PayloadKey {
  if (typeof entry !== 'object' || entry === null) return false;
  const { id, key, ...rest } = entry as Record<string, unknown>;
  return (
    typeof id === 'string' &&
    /^[\w.-]{1,64}$/.test(id) &&
    typeof key === 'string' &&
    Object.keys(rest).length === 0
  );
}

/** The 32 bytes of a checked key. */
export const bytesOf = ({ key }: PayloadKey): Buffer => Buffer.from(key, 'base64');

/** Its errors name the entry and never repeat a key. */
export const payloadKeysSchema = z
  .custom<readonly PayloadKey[]>((keys) => Array.isArray(keys), {
    error: 'is not a list of keys',
    params: { hint: writeIt },
  })
  .superRefine((keys: readonly unknown[], context) => {
    for (const [index, entry] of keys.entries()) {
      const refuse = (message: string, hint: string) =>
        context.addIssue({ code: 'custom', path: [index], message, params: { hint } });
      const earlier = keys.slice(0, index).filter(isPayloadKey);
      if (!isPayloadKey(entry)) refuse('is not `id:key`', writeIt);
      else if (!/^[A-Za-z0-9+/]+={0,2}$/.test(entry.key)) refuse(`(${entry.id}) is not base64`, makeIt);
      else if (bytesOf(entry).length !== keyBytes)
        refuse(`(${entry.id}) has ${bytesOf(entry).length} bytes; AES-256 needs ${keyBytes}`, makeIt);
      else if (earlier.some(({ id }) => id === entry.id))
        refuse(`(${entry.id}) has the id of an earlier key`, 'Give each key an id of its own.');
      else if (earlier.some((other) => bytesOf(other).equals(bytesOf(entry))))
        refuse(`(${entry.id}) is the same key as an earlier entry`, 'Name each key once.');
    }
  });
