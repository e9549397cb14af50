import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** A TCP proxy of a server, whose connections a test can cut. */
export class Way {
  private server: Server | undefined;
  private readonly sockets = new Set<Socket>();
  private readonly incoming = new Set<Socket>();

  /** @param target host:port */
  constructor(private readonly target: string) {}

  async open(port = 0): Promise<number> {
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
    this.server.listen(port, '127.0.0.1');
    await once(this.server, 'listening');
    return (this.server.address() as AddressInfo).port;
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
