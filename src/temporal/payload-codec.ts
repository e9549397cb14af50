/**
 * Encrypts everything that Temporal stores for us, except ids, search attributes and failure types: arguments, results, signals,
 * memos, summaries of steps, and the messages of failures.
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { ApplicationFailure, type DataConverter, type Payload, type PayloadCodec } from '@temporalio/common';
import proto from '@temporalio/proto';
import { bytesOf, type PayloadKey, payloadKeysSchema } from '../config/payload-keys.js';
import { invalid, type FailureType } from '../errors.js';
import { complain } from '../policy/issues.js';
import { builtFile, packageRoot } from '../runtime/home.js';

const { Payload: PayloadMessage } = proto.temporal.api.common.v1;

const cipher = 'aes-256-gcm';
const encoding = 'binary/encrypted';
const keyIdField = 'encryption-key-id';
const nonceBytes = 12;
const tagBytes = 16;
const setting = 'PALIMPSEST_PAYLOAD_KEYS';

/**
 * The codec that workers, API and library use, for other clients of the same namespace: `dataConverter: { payloadCodecs:
 * [payloadCodec(keys, { namespace })] }`. The first key encrypts; every key decrypts; payloads in plain text are returned
 * unchanged. `namespace` is authenticated with each payload. @default 'default'
 *
 * An encrypted payload has the metadata `encoding: binary/encrypted` and `encryption-key-id`. Its data are a nonce of 12 bytes, the
 * ciphertext and a tag of 16 bytes. The plaintext is the original payload as a `temporal.api.common.v1.Payload`, the additional
 * data are the namespace in UTF-8.
 *
 * Throws `Input.Invalid` for wrong keys. `decode` throws an `ApplicationFailure` of the type `Payload.Unreadable` if a key is
 * missing, or if a payload was changed or belongs to another namespace.
 */
export function payloadCodec(
  keys: readonly PayloadKey[],
  { namespace = 'default' }: { namespace?: string } = {},
): PayloadCodec {
  checkPayloadKeys(keys, 'keys');
  if (keys.length === 0) throw invalid('keys is empty: nothing would be encrypted', 'keys');
  return codecOf(keys, namespace);
}

/** Throws `Input.Invalid`, which names the entry. */
function checkPayloadKeys(keys: unknown, path: string): asserts keys is readonly PayloadKey[] {
  const { error } = payloadKeysSchema.safeParse(keys);
  if (error) throw complain(error, payloadKeysSchema, keys, path);
}

/** For every client and worker of this product. Without keys it encrypts nothing, and a payload that needs one fails typed. */
export function dataConverterOf({
  payloadKeys = [],
  namespace = 'default',
}: {
  payloadKeys?: readonly PayloadKey[];
  namespace?: string;
}): DataConverter {
  return {
    payloadCodecs: [codecOf(payloadKeys, namespace)],
    ...(payloadKeys.length > 0 ? { failureConverterPath: failureConverterPath() } : {}),
  };
}

/** The module with which workers, and the bundle of the workflows, put the texts of failures into payloads. */
export function failureConverterPath(): string {
  const file = 'src/temporal/failure-converter.cjs';
  return builtFile(file) ?? join(packageRoot(), file);
}

function codecOf(keys: readonly PayloadKey[], namespace: string): PayloadCodec {
  const ring = new Map(keys.map((key) => [key.id, bytesOf(key)]));
  const [first] = keys;
  const additional = Buffer.from(namespace);

  const encrypt = (payload: Payload, { id, key }: { id: string; key: Buffer }): Payload => {
    const nonce = randomBytes(nonceBytes);
    const cipherOf = createCipheriv(cipher, key, nonce).setAAD(additional);
    const data = [
      nonce,
      cipherOf.update(PayloadMessage.encode(payload).finish()),
      cipherOf.final(),
      cipherOf.getAuthTag(),
    ];
    return {
      metadata: { encoding: Buffer.from(encoding), [keyIdField]: Buffer.from(id) },
      data: Buffer.concat(data),
    };
  };

  const decrypt = (payload: Payload): Payload => {
    if (textOf(payload.metadata?.['encoding']) !== encoding) return payload;
    const id = textOf(payload.metadata?.[keyIdField]);
    const key = ring.get(id);
    if (key === undefined)
      throw unreadable(`no key with the id ${JSON.stringify(id)}`, id, `Add this key to ${setting}.`);
    const data = Buffer.from(payload.data ?? []);
    try {
      const decipher = createDecipheriv(cipher, key, data.subarray(0, nonceBytes), {
        authTagLength: tagBytes,
      })
        .setAAD(additional)
        .setAuthTag(data.subarray(-tagBytes));
      const plain = [decipher.update(data.subarray(nonceBytes, -tagBytes)), decipher.final()];
      return PayloadMessage.decode(Buffer.concat(plain));
    } catch {
      throw unreadable(
        `the key ${JSON.stringify(id)} does not open it`,
        id,
        `Check this key in ${setting} and the namespace; otherwise the payload was changed in Temporal's store.`,
      );
    }
  };

  const encrypting = first && { id: first.id, key: bytesOf(first) };
  // The interface is asynchronous, so that errors reject.
  return {
    encode: (payloads) =>
      Promise.resolve(encrypting ? payloads.map((one) => encrypt(one, encrypting)) : payloads),
    decode: (payloads) => new Promise((resolve) => resolve(payloads.map(decrypt))),
  };
}

const textOf = (bytes: Uint8Array | null | undefined): string => Buffer.from(bytes ?? []).toString();

/** Retryable: the payload can be read as soon as the process has the key. */
function unreadable(why: string, keyId: string, hint: string): ApplicationFailure {
  return ApplicationFailure.create({
    type: 'Payload.Unreadable' satisfies FailureType,
    message: `An encrypted payload of Temporal cannot be read: ${why} — ${hint}`,
    details: [{ keyId }],
  });
}
