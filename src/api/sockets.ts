/** Connections, before and after they show whose they are. */
import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Share } from './shares.js';

/**
 * Node tells only the answer whose turn it is that its connection has closed. Those to requests sent behind it, without
 * waiting for it, are told here.
 */
export function closeQueued(server: Server): void {
  const answers = new WeakMap<Socket, Set<ServerResponse>>();
  server.on('request', ({ socket }, response) => {
    const known = answers.get(socket);
    const open = known ?? new Set<ServerResponse>();
    if (!known) {
      answers.set(socket, open);
      socket.once('close', () =>
        setImmediate(() => {
          for (const queued of open) queued.destroy().emit('close');
        }),
      );
    }
    open.add(response);
    response.once('close', () => open.delete(response));
  });
}

/** Of the connections that have shown no token, at most this part may come from one address. */
const addressPart = 4;

interface Claim {
  tenant: string;
  release: () => void;
}

/**
 * A connection belongs to the tenant of the last token it showed. Those that have shown none are few: beyond the limit the
 * oldest is closed, which an honest caller, whose headers arrive within milliseconds, never is.
 */
export class Sockets {
  /** In the order in which they came. */
  readonly #unknown = new Map<string, Set<Socket>>();
  readonly #claims = new WeakMap<Socket, Claim>();
  #unknownCount = 0;

  constructor(
    private readonly connections: Share,
    private readonly mostUnknown: number,
  ) {}

  get unknown(): number {
    return this.#unknownCount;
  }

  watch(server: Server): void {
    server.on('connection', (socket: Socket) => {
      const address = socket.remoteAddress ?? '';
      this.#add(address, socket);
      socket.once('close', () => {
        this.#remove(address, socket);
        this.#claims.get(socket)?.release();
      });
      this.#makeRoom(address);
    });
  }

  /** Throws `Tenant.LimitReached` where the tenant has as many connections as it may. */
  claim(socket: Socket, tenant: string): void {
    const claim = this.#claims.get(socket);
    if (claim?.tenant === tenant || socket.destroyed) return;
    const release = this.connections.take(tenant);
    claim?.release();
    this.#claims.set(socket, { tenant, release });
    this.#remove(socket.remoteAddress ?? '', socket);
  }

  #add(address: string, socket: Socket): void {
    const known = this.#unknown.get(address);
    if (known) known.add(socket);
    else this.#unknown.set(address, new Set([socket]));
    this.#unknownCount++;
  }

  #remove(address: string, socket: Socket): void {
    const known = this.#unknown.get(address);
    if (!known?.delete(socket)) return;
    if (known.size === 0) this.#unknown.delete(address);
    this.#unknownCount--;
  }

  #makeRoom(address: string): void {
    const own = this.#unknown.get(address);
    if (own && own.size > Math.max(1, Math.floor(this.mostUnknown / addressPart))) this.#closeOldest(address);
    // Of the address that has most: one that is new to this machine is not put out by a crowd.
    if (this.#unknownCount > this.mostUnknown) {
      const [crowd] = [...this.#unknown].reduce((most, one) => (one[1].size > most[1].size ? one : most));
      this.#closeOldest(crowd);
    }
  }

  #closeOldest(address: string): void {
    const [oldest] = this.#unknown.get(address) ?? [];
    if (!oldest) return;
    this.#remove(address, oldest);
    oldest.destroy();
  }
}
