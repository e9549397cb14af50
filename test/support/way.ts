import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { freePort } from '../../src/runtime/ports.js';

/** A TCP proxy of a server, whose connections a test can cut. */
export class Way {
  private server: Server | undefined;
  private readonly sockets = new Set<Socket>();
  private readonly incoming = new Set<Socket>();

  /** @param target host:port */
  constructor(private readonly target: string) {}

  /** Returns its port. While the way is cut, the system gives this port to nobody. */
  async open(port?: number): Promise<number> {
    const own = port ?? (await freePort());
    const [host, targetPort] = this.target.split(':');
    this.server = createServer((incoming) => {
      const outgoing = connect(Number(targetPort), host);
      for (const socket of [incoming, outgoing]) {
        this.sockets.add(socket);
        socket.on('error', () => socket.destroy());
      }
      this.incoming.add(incoming);
      incoming.pipe(outgoing).pipe(incoming);
    });
    this.server.listen(own, '127.0.0.1');
    await once(this.server, 'listening');
    return own;
  }

  /** Makes the present connections stay open but pass no more data; later connections work. */
  swallow(): void {
    for (const socket of this.incoming) socket.unpipe().resume();
    this.incoming.clear();
  }

  /** Number of connections that are open. */
  get connections(): number {
    return [...this.incoming].filter((socket) => !socket.destroyed).length;
  }

  cut(): void {
    this.server?.close();
    for (const socket of this.sockets) socket.destroy();
    this.sockets.clear();
    this.incoming.clear();
  }
}
