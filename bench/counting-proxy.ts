import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

/** What has passed between clients and PostgreSQL. */
interface Traffic {
  /** Answers that a client waits for before it goes on: messages ReadyForQuery. */
  trips: number;
  /** Messages Query and Execute. */
  statements: number;
  sent: number;
  received: number;
}

export interface CountingProxy {
  url: string;
  /** What has passed since the last call. */
  take(): Traffic;
  close(): Promise<void>;
}

const none = (): Traffic => ({ trips: 0, statements: 0, sent: 0, received: 0 });

/** Forwards connections to the server of the URL, and counts their messages. */
export async function startCountingProxy(url: string): Promise<CountingProxy> {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  let traffic = none();
  const server = createServer((client) => {
    const upstream = connect({ host: target.hostname, port: Number(target.port) });
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true);
      sockets.add(socket);
      socket.on('error', () => undefined);
    }
    client.once('close', () => upstream.destroy());
    upstream.once('close', () => client.destroy());
    // The first message of a client has no type.
    const asked = framesOf((type) => void (traffic.statements += Number(type === 'Q' || type === 'E')), true);
    const answered = framesOf((type) => void (traffic.trips += Number(type === 'Z')), false);
    client.on('data', (bytes: Buffer) => {
      traffic.sent += bytes.length;
      asked(bytes);
      upstream.write(bytes);
    });
    upstream.on('data', (bytes: Buffer) => {
      traffic.received += bytes.length;
      answered(bytes);
      client.write(bytes);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: Object.assign(new URL(url), { hostname: '127.0.0.1', port: String(port) }).toString(),
    take: () => {
      const taken = traffic;
      traffic = none();
      return taken;
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Calls `seen` with the type of each message of a stream, whatever its packets. */
function framesOf(seen: (type: string) => void, untypedFirst: boolean): (bytes: Buffer) => void {
  let untyped = untypedFirst;
  let head = Buffer.alloc(0);
  /** Bytes of the present message that are still to come. */
  let rest = 0;
  return (bytes) => {
    let at = 0;
    while (at < bytes.length) {
      const skipped = Math.min(rest, bytes.length - at);
      rest -= skipped;
      at += skipped;
      if (at === bytes.length) return;
      const headLength = untyped ? 4 : 5;
      const taken = Math.min(headLength - head.length, bytes.length - at);
      head = Buffer.concat([head, bytes.subarray(at, at + taken)]);
      at += taken;
      if (head.length < headLength) return;
      rest = head.readInt32BE(headLength - 4) - 4;
      if (!untyped) seen(String.fromCharCode(head[0] ?? 0));
      untyped = false;
      head = Buffer.alloc(0);
    }
  };
}
