/** A TCP relay on loopback whose connections can be cut, silenced, or broken around a COMMIT of PostgreSQL. */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** When the connection that sends the next COMMIT breaks, and how. */
export interface CommitFault {
  /** The next transaction that stores a compaction, instead of the next one of any kind. */
  ofCompaction: boolean;
  when: 'before' | 'after';
  how: 'cut' | 'silent';
  /** How long a silent connection stays silent, milliseconds; then its bytes arrive after all. */
  silentMs: number;
}

interface Pair {
  client: Socket;
  server: Socket;
  /** Its open transaction has stored a compaction. */
  storesCompaction: boolean;
}

/** A simple query message `commit`, as node-postgres sends it. */
const commitMessage = Buffer.from('Q\0\0\0\x0bcommit\0', 'latin1');
const compactionInsert = Buffer.from('insert into "palimpsest"."compactions"', 'latin1');

export class FaultyProxy {
  private readonly pairs = new Set<Pair>();
  private armed: CommitFault | null = null;
  private awaited: { text: string; then: () => void } | null = null;
  private silentUntil = 0;

  private constructor(
    private readonly listener: Server,
    readonly port: number,
  ) {}

  /** @param target answers host:port at each connection: a server that was restarted may have moved. */
  static async open(target: () => string): Promise<FaultyProxy> {
    const listener = createServer();
    listener.listen(0, '127.0.0.1');
    await once(listener, 'listening');
    const proxy = new FaultyProxy(listener, (listener.address() as AddressInfo).port);
    listener.on('connection', (client) => proxy.relay(client, target()));
    return proxy;
  }

  /** Ends every connection at once. */
  cut(): void {
    for (const pair of this.pairs) this.destroy(pair);
  }

  /** No byte passes for this long, in neither direction; connections stay open, new ones are taken and stay silent. */
  silence(ms: number): void {
    this.silentUntil = Date.now() + ms;
    for (const pair of this.pairs) this.hold(pair, ms);
  }

  breakNextCommit(fault: CommitFault): void {
    this.armed = fault;
  }

  /** Once a client sends these bytes, `then` runs, and they do not arrive. */
  whenSent(text: string, then: () => void): void {
    this.awaited = { text, then };
  }

  close(): void {
    this.listener.close();
    this.cut();
  }

  private relay(client: Socket, target: string): void {
    const [host, port] = target.split(':');
    const server = connect(Number(port), host);
    const pair: Pair = { client, server, storesCompaction: false };
    this.pairs.add(pair);
    for (const socket of [client, server]) {
      socket.on('error', () => this.destroy(pair));
      socket.on('close', () => this.destroy(pair));
    }
    client.on('data', (bytes: Buffer) => {
      if (this.awaited !== null && bytes.includes(this.awaited.text)) {
        const { then } = this.awaited;
        this.awaited = null;
        then();
        return this.destroy(pair);
      }
      pair.storesCompaction ||= bytes.includes(compactionInsert);
      const { armed } = this;
      const commits = bytes.includes(commitMessage);
      if (commits && armed !== null && (pair.storesCompaction || !armed.ofCompaction))
        this.commitWith(armed, pair, bytes);
      else server.write(bytes);
      if (commits) pair.storesCompaction = false;
    });
    server.on('data', (bytes: Buffer) => client.write(bytes));
    const left = this.silentUntil - Date.now();
    if (left > 0) this.hold(pair, left);
  }

  private commitWith({ when, how, silentMs }: CommitFault, pair: Pair, bytes: Buffer): void {
    this.armed = null;
    if (when === 'before') {
      if (how === 'cut') return this.destroy(pair);
      this.hold(pair, silentMs);
      setTimeout(() => pair.server.destroyed || pair.server.write(bytes), silentMs).unref();
      return;
    }
    // The answer never reaches the client, though PostgreSQL has committed.
    pair.server.removeAllListeners('data');
    pair.server.pause();
    pair.server.write(bytes);
    const answers: Buffer[] = [];
    pair.server.on('data', (answer: Buffer) => {
      if (how === 'cut') return this.destroy(pair);
      answers.push(answer);
    });
    pair.server.resume();
    if (how === 'silent')
      setTimeout(() => {
        if (pair.client.destroyed) return;
        pair.server.removeAllListeners('data');
        pair.server.on('data', (answer: Buffer) => pair.client.write(answer));
        for (const answer of answers) pair.client.write(answer);
      }, silentMs).unref();
  }

  private hold({ client, server }: Pair, ms: number): void {
    client.pause();
    server.pause();
    setTimeout(() => {
      client.resume();
      server.resume();
    }, ms).unref();
  }

  private destroy(pair: Pair): void {
    this.pairs.delete(pair);
    pair.client.destroy();
    pair.server.destroy();
  }
}
