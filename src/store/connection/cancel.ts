import { connect } from 'node:net';
import type { PoolClient } from 'pg';

/** As the protocol writes it: 1234 and 5678 in place of a version. */
const cancelCode = 80_877_102;
const withinMs = 2_000;

/**
 * Cancels the statement that a connection is running when `signal` is aborted. Answers what ends this; the connection
 * may be given to somebody else once that has resolved, so that no later statement is cancelled in place of this one.
 */
export function cancelOnAbort(client: PoolClient, signal: AbortSignal): () => Promise<void> {
  let cancelling: Promise<void> | undefined;
  const cancel = () => void (cancelling = requestCancel(client));
  signal.addEventListener('abort', cancel, { once: true });
  return async () => {
    signal.removeEventListener('abort', cancel);
    await cancelling;
  };
}

/**
 * PostgreSQL's own request, over a connection that it closes when it has passed it on. Like libpq's, it is not encrypted: it
 * holds nothing but the key of this one backend. Where it does not arrive, the statement ends with its timeout.
 */
function requestCancel(client: PoolClient): Promise<void> {
  const backend = backendOf(client);
  if (!backend) return Promise.resolve();
  const request = Buffer.alloc(16);
  [16, cancelCode, backend.processId, backend.secretKey].forEach((word, at) =>
    request.writeInt32BE(word, at * 4),
  );
  return new Promise((resolve) => {
    const { host, port } = backend;
    const socket = connect(host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port });
    socket.setTimeout(withinMs, () => socket.destroy());
    // `close` follows.
    socket.on('error', () => undefined);
    socket.once('close', () => resolve());
    socket.resume().end(request);
  });
}

interface Backend {
  host: string;
  port: number;
  processId: number;
  secretKey: number;
}

/** What pg keeps of a connection; its types leave out the key. */
function backendOf(client: PoolClient): Backend | null {
  if (!('host' in client && 'port' in client && 'processID' in client && 'secretKey' in client)) return null;
  const { host, port, processID: processId, secretKey } = client;
  return typeof host === 'string' &&
    typeof port === 'number' &&
    typeof processId === 'number' &&
    typeof secretKey === 'number'
    ? { host, port, processId, secretKey }
    : null;
}
