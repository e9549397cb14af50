import { readFileSync } from 'node:fs';
import {
  Client,
  Connection,
  defaultGrpcRetryOptions,
  isGrpcServiceError,
  makeGrpcRetryInterceptor,
  type TLSConfig,
} from '@temporalio/client';
import { z } from 'zod';
import { type PayloadKey, payloadKeysSchema } from '../config/payload-keys.js';
import { invalid, networkReason, PalimpsestError } from '../errors.js';
import { complain } from '../policy/issues.js';
import { reasonOf, typed } from './calls.js';
import { endCallsOnceClosed } from './closed-calls.js';
import { searchAttributeTypes } from './names.js';
import { dataConverterOf } from './payload-codec.js';

export interface TemporalSettings {
  /** host:port of the frontend. */
  address: string;
  /** @default 'default' */
  namespace?: string;
  /** API key of Temporal Cloud; turns TLS on. */
  apiKey?: string;
  /** TLS. @default true with an API key or one of the fields below, otherwise false */
  tls?: boolean;
  /** File (PEM) of the certificate authority of the server. @default the system's authorities */
  caFile?: string;
  /** File (PEM) of the certificate that this client shows, for servers that demand one (mTLS). */
  certFile?: string;
  /** File (PEM) of the key of `certFile`. */
  keyFile?: string;
  /** Name in the server's certificate, if it is not the host of `address`. */
  serverName?: string;
  /**
   * Keys of the payload codec; workers and all clients of a deployment need the same keys. The first one encrypts, all of them
   * decrypt. @default payloads stay in plain text
   */
  payloadKeys?: readonly PayloadKey[];
}

export const connectTimeoutMs = 5_000;
const example = "e.g. { address: 'localhost:7233' }";

/** Throws `Input.Invalid` if a file cannot be read, or if the settings contradict each other. */
export function connectionOptions({ address, apiKey, tls, ...own }: TemporalSettings) {
  const { caFile, certFile, keyFile, serverName } = own;
  if ((certFile === undefined) !== (keyFile === undefined))
    throw invalid(
      'certFile and keyFile belong together, and only one of them is set',
      certFile === undefined ? 'temporal.certFile' : 'temporal.keyFile',
      'Set both to use a client certificate.',
    );
  const isOwn = caFile !== undefined || certFile !== undefined || serverName !== undefined;
  if (isOwn && tls === false)
    throw invalid('tls is false, but there are settings for TLS', 'temporal.tls', 'Leave tls out.');
  if (!isOwn) return { address, apiKey, tls: tls ?? apiKey !== undefined };
  const certificates: TLSConfig = {
    ...(serverName === undefined ? {} : { serverNameOverride: serverName }),
    ...(caFile === undefined ? {} : { serverRootCACertificate: fileOf('caFile', caFile) }),
    ...(certFile === undefined || keyFile === undefined
      ? {}
      : { clientCertPair: { crt: fileOf('certFile', certFile), key: fileOf('keyFile', keyFile) } }),
  };
  return { address, apiKey, tls: certificates };
}

function fileOf(field: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    throw invalid(`${file} cannot be read: ${reasonOf(error).message}`, `temporal.${field}`);
  }
}

const settingsSchema = z.strictObject({
  address: z
    .string()
    .regex(/^[^\s/]+$/, 'must be host:port')
    .describe("Address of the server's frontend, e.g. 'localhost:7233'."),
  namespace: z.string().min(1).optional(),
  apiKey: z.string().min(1).optional(),
  tls: z.boolean().optional(),
  caFile: z.string().min(1).optional(),
  certFile: z.string().min(1).optional(),
  keyFile: z.string().min(1).optional(),
  serverName: z.string().min(1).optional(),
  payloadKeys: payloadKeysSchema.optional(),
});

/** Throws `Input.Invalid`, which names the field. */
export function checkTemporalSettings(settings: unknown): void {
  const { error } = settingsSchema.safeParse(settings);
  if (error)
    throw complain(error, settingsSchema.describe(example), settings, 'temporal', ['temporal.apiKey']);
}

export function unreachable(settings: TemporalSettings, cause: unknown): PalimpsestError {
  const { address, apiKey, tls = apiKey !== undefined, caFile, certFile, serverName } = settings;
  const reason = networkReason(cause) ?? reasonOf(cause).message;
  const encrypted = tls || [caFile, certFile, serverName].some((given) => given !== undefined);
  return new PalimpsestError('Temporal.Unavailable', `Temporal at ${address} does not answer: ${reason}`, {
    hint: encrypted
      ? 'Check TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, the API key, and the certificates and server name of TEMPORAL_TLS_*: a failed TLS handshake looks like a server that does not answer.'
      : 'Start a server there, correct TEMPORAL_ADDRESS / TEMPORAL_NAMESPACE, or unset TEMPORAL_ADDRESS to use the embedded one.',
    cause,
  });
}

/** Connects a client. Throws `Temporal.Unavailable` within seconds if the server does not answer for the namespace. */
export async function connectClient(settings: TemporalSettings): Promise<Client> {
  checkTemporalSettings(settings);
  const namespace = settings.namespace ?? 'default';
  const options = connectionOptions(settings);
  let connection: Connection | undefined;
  try {
    connection = await Connection.connect({
      ...options,
      connectTimeout: connectTimeoutMs,
      interceptors: [makeGrpcRetryInterceptor(defaultGrpcRetryOptions()), endCallsOnceClosed],
    });
    await connection.workflowService.describeNamespace({ namespace });
  } catch (error) {
    await connection?.close();
    throw unreachable(settings, error);
  }
  return new Client({ connection, namespace, dataConverter: dataConverterOf(settings) });
}

/** `IndexedValueType` of the server's API (temporal/api/enums/v1/common.proto). */
const kinds = { Keyword: 2, Int: 3 } as const;

/**
 * Registers the missing search attributes; without them no session can start. Throws `Temporal.Unavailable`, which gives the
 * command to run, if this client may not register them.
 */
export async function ensureSearchAttributes(client: Client): Promise<void> {
  const { operatorService } = client.connection as Pick<Connection, 'operatorService'>;
  const namespace = client.options.namespace;
  const present = await typed(() => operatorService.listSearchAttributes({ namespace }));
  const missing = Object.entries(searchAttributeTypes).filter(
    ([name]) => !(name in (present.customAttributes ?? {})),
  );
  if (missing.length === 0) return;
  try {
    await operatorService.addSearchAttributes({
      namespace,
      searchAttributes: Object.fromEntries(missing.map(([name, type]) => [name, kinds[type]])),
    });
  } catch (error) {
    // Two workers that start together both find them missing.
    if (isGrpcServiceError(error) && /already exist/i.test(error.message)) return;
    const flags = missing.map(([name, type]) => `--name ${name} --type ${type}`).join(' ');
    throw new PalimpsestError(
      'Temporal.Unavailable',
      `search attributes are not registered in namespace ${namespace}`,
      {
        hint: `Run: temporal operator search-attribute create --namespace ${namespace} ${flags}`,
        cause: error,
      },
    );
  }
}
