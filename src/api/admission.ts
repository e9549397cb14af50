/**
 * Bounds on each tenant's work in this process. A request counts for its tenant once its headers have arrived. Before
 * that, its connection counts towards the limit on connections that have shown no token.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { type Readable, Transform } from 'node:stream';
import type { Socket } from 'node:net';
import { PalimpsestError } from '../errors.js';
import { answerRaw } from './failures.js';
import type { CompleteSettings } from './settings.js';

/** The present use of each limit by all tenants together. */
export type Load = Record<LimitName | 'unknownConnections', number>;

const slowBodyLookMs = 5_000;
/** Step in which the bytes of a body without Content-Length are counted. */
const countedBytes = 16 * 1024;

export class Admission {
  readonly #shares: Record<LimitName, Share>;
  readonly #sockets: Sockets;
  readonly #slowBodies: SlowBodies;

  constructor(settings: CompleteSettings) {
    const { maxInFlight, requestTimeoutMs, minBodyBytesPerSecond } = settings;
    this.#shares = {
      requests: new Share('requests', { most: maxInFlight, tenantMost: settings.tenantRequests }),
      bodyBytes: new Share('bodyBytes', {
        most: settings.maxBodyBytes,
        tenantMost: settings.tenantBodyBytes,
      }),
      waits: new Share('waits', { most: maxInFlight, tenantMost: settings.tenantWaits }),
      connections: new Share('connections', { most: Infinity, tenantMost: settings.tenantConnections }),
    };
    this.#sockets = new Sockets(this.#shares.connections, settings.unknownConnections);
    const everyMs = Math.min(slowBodyLookMs, Math.ceil(requestTimeoutMs / 4));
    this.#slowBodies = new SlowBodies({ bytesPerSecond: minBodyBytesPerSecond, everyMs }, ({ socket }) =>
      answerRaw(
        Object.assign(new Error('the body arrives too slowly'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }),
        socket,
      ),
    );
  }

  /** Counts the server's connections. */
  watch(server: Server): void {
    this.#sockets.watch(server);
  }

  /** Admits a request until its answer is sent or its caller has gone. Throws `Tenant.LimitReached` or `Api.Overloaded`. */
  enter(tenant: string, request: IncomingMessage, response: ServerResponse): void {
    try {
      this.#sockets.claim(request.socket, tenant);
    } catch (error) {
      response.setHeader('connection', 'close');
      throw error;
    }
    const length = Number(request.headers['content-length'] ?? 0);
    this.#take('requests', tenant, response);
    if (length > 0) this.#take('bodyBytes', tenant, response, length);
    this.#slowBodies.watch(request);
  }

  /** Returns the body, and counts its bytes as they arrive if the headers give no length. */
  counted(tenant: string, request: IncomingMessage, body: Readable, response: ServerResponse): Readable {
    if (request.headers['transfer-encoding'] === undefined) return body;
    // One listener for all steps: a body that comes in chunks of one byte has many of them.
    const given: (() => void)[] = [];
    let left = 0;
    response.once('close', () => given.forEach((giveBack) => giveBack()));
    const counting = new Transform({
      transform: (chunk: Buffer, _encoding, done) => {
        try {
          if (!response.destroyed && chunk.length > left) {
            const more = Math.max(countedBytes, chunk.length - left);
            given.push(this.#shares.bodyBytes.take(tenant, more));
            left += more;
          }
          left -= chunk.length;
          done(null, chunk);
        } catch (error) {
          // Closes the connection, because the rest of the body is not read.
          response.setHeader('connection', 'close');
          done(error as Error);
        }
      },
    });
    body.once('error', (error) => counting.destroy(error));
    // Nobody else listens if the operation reads no body, and an error that nobody hears ends the process.
    counting.on('error', () => undefined);
    return body.pipe(counting);
  }

  /** Counts the request among those that wait for an event in their session. */
  wait(tenant: string, response: ServerResponse): void {
    this.#take('waits', tenant, response);
  }

  /** Counts what the request reads with the bodies, since both take the same memory. */
  holder(tenant: string, response: ServerResponse): (bytes: number) => void {
    let held = 0;
    return (bytes) => {
      if (bytes <= held) return;
      this.#take('bodyBytes', tenant, response, bytes - held);
      held = bytes;
    };
  }

  load(): Load {
    const { requests, bodyBytes, waits, connections } = this.#shares;
    return {
      requests: requests.all,
      bodyBytes: bodyBytes.all,
      waits: waits.all,
      connections: connections.all,
      unknownConnections: this.#sockets.unknown,
    };
  }

  stop(): void {
    this.#slowBodies.stop();
  }

  #take(limit: LimitName, tenant: string, response: ServerResponse, amount = 1): void {
    const giveBack = this.#shares[limit].take(tenant, amount);
    if (response.closed || response.destroyed) giveBack();
    else response.once('close', giveBack);
  }
}

type LimitName = 'requests' | 'bodyBytes' | 'waits' | 'connections';

const held: Record<LimitName, string> = {
  requests: 'requests in progress',
  bodyBytes: 'bytes of bodies and contexts in progress',
  waits: 'requests waiting for compactions',
  connections: 'connections',
};

interface ShareLimits {
  /** For all tenants together. */
  most: number;
  /** For one tenant. */
  tenantMost: number;
}

/**
 * The shares of one limit. A tenant holds at most its share. The last tenth goes to tenants that hold little, so that
 * a few tenants that use their full shares leave something to others.
 */
class Share {
  readonly #most: number;
  readonly #tenantMost: number;
  readonly #held = new Map<string, number>();
  #all = 0;

  constructor(
    private readonly limit: LimitName,
    { most, tenantMost }: ShareLimits,
  ) {
    this.#most = most;
    this.#tenantMost = Math.min(tenantMost, most);
  }

  get all(): number {
    return this.#all;
  }

  /** Takes an amount and returns the function that gives it back once. Throws `Tenant.LimitReached` or `Api.Overloaded`. */
  take(tenant: string, amount = 1): () => void {
    const own = this.#held.get(tenant) ?? 0;
    this.#check(own, amount);
    this.#count(tenant, amount);
    let given = false;
    return () => {
      if (!given) this.#count(tenant, -amount);
      given = true;
    };
  }

  /**
   * Throws `Tenant.LimitReached`, or `Api.Overloaded` for a tenant that holds nothing. Such a tenant gets any amount that is
   * free. While no tenant holds anything, it gets any amount at all, so that no body is too large by itself.
   */
  #check(own: number, amount: number): void {
    const all = this.#all + amount;
    if (own === 0 && (all <= this.#most || this.#all === 0)) return;
    if (own === 0)
      throw new PalimpsestError('Api.Overloaded', `The API already has ${this.#all} ${held[this.limit]}.`, {
        hint: 'Repeat the request after a moment.',
        details: { limit: this.limit, most: this.#most },
      });
    const shared = this.#tenantMost < this.#most;
    const scarce = shared && all > this.#most - Math.floor(this.#most / 10);
    if (own + amount <= this.#tenantMost && all <= this.#most && !(scarce && own >= this.#tenantMost / 10))
      return;
    throw new PalimpsestError(
      'Tenant.LimitReached',
      `The tenant has ${own} ${held[this.limit]} and may not have more now.`,
      {
        hint: 'Repeat the request after a moment, with fewer concurrent requests.',
        details: { limit: this.limit, most: this.#tenantMost },
      },
    );
  }

  #count(tenant: string, change: number): void {
    this.#all += change;
    const now = (this.#held.get(tenant) ?? 0) + change;
    if (now === 0) this.#held.delete(tenant);
    else this.#held.set(tenant, now);
  }
}

interface Arriving {
  request: IncomingMessage;
  /** Bytes of its connection at the last check; null before the first check, which may follow the headers at once. */
  seen: number | null;
}

/** Aborts bodies that arrive more slowly than a minimum, long before the timeout of the whole request. */
class SlowBodies {
  readonly #arriving = new Set<Arriving>();
  readonly #timer: NodeJS.Timeout;

  constructor(
    { bytesPerSecond, everyMs }: { bytesPerSecond: number; everyMs: number },
    giveUp: (request: IncomingMessage) => void,
  ) {
    const least = (bytesPerSecond * everyMs) / 1000;
    this.#timer = setInterval(() => {
      for (const one of this.#arriving) {
        const { bytesRead } = one.request.socket;
        if (one.seen !== null && bytesRead - one.seen < least) {
          this.#arriving.delete(one);
          giveUp(one.request);
        } else one.seen = bytesRead;
      }
    }, everyMs).unref();
  }

  /** Ignores a request that has no body, or whose body has arrived. */
  watch(request: IncomingMessage): void {
    const { 'content-length': length, 'transfer-encoding': encoding } = request.headers;
    if (request.complete || (encoding === undefined && (length === undefined || length === '0'))) return;
    const one: Arriving = { request, seen: null };
    this.#arriving.add(one);
    const done = () => this.#arriving.delete(one);
    request.once('end', done).once('close', done);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

/**
 * Node reports a closed connection only to the response whose turn it is. This reports it to the responses of later
 * pipelined requests.
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

/** One address may have at most a quarter of the allowed connections without a token. */
const addressPart = 4;

interface Claim {
  tenant: string;
  release: () => void;
}

/**
 * A connection belongs to the tenant of the last token that it showed. Connections without a token are limited.
 * Beyond the limit the oldest is closed; an honest caller is not affected, because its headers arrive within
 * milliseconds.
 */
class Sockets {
  /** Connections by address, in the order in which they came. */
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

  /** Throws `Tenant.LimitReached` if the tenant has no connections left. */
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
    // Closes a connection of the address that has most, so that a crowd does not push out other addresses.
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
