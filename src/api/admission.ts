/**
 * Bounds on the work of each tenant in this process. A request counts for its tenant from its headers on; before that
 * its connection is one of few that have shown no token.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { type Readable, Transform } from 'node:stream';
import type { Socket } from 'node:net';
import { PalimpsestError } from '../errors.js';
import { answerRaw } from './failures.js';
import type { CompleteSettings } from './settings.js';

/** Present use of each limit, all tenants together. */
export type Load = Record<LimitName | 'unknownConnections', number>;

const slowBodyLookMs = 5_000;
/** In which a body is counted that does not say how long it is. */
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
        Object.assign(new Error('the body is too slow'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }),
        socket,
      ),
    );
  }

  /** Counts connections from the first on. */
  watch(server: Server): void {
    this.#sockets.watch(server);
  }

  /** Until the answer is out or its caller has gone. Throws `Tenant.LimitReached` or `Api.Overloaded`. */
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

  /** The body as it comes, counted where its headers do not say how long it is. */
  counted(tenant: string, request: IncomingMessage, body: Readable, response: ServerResponse): Readable {
    if (request.headers['transfer-encoding'] === undefined) return body;
    // One for all chunks: of one byte each, they are millions.
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
          // What is still to come is not read.
          response.setHeader('connection', 'close');
          done(error as Error);
        }
      },
    });
    body.once('error', (error) => counting.destroy(error));
    return body.pipe(counting);
  }

  /** The request is answered when something has happened in its session. */
  wait(tenant: string, response: ServerResponse): void {
    this.#take('waits', tenant, response);
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
  requests: 'requests in work',
  bodyBytes: 'bytes of bodies in work',
  waits: 'requests that wait for compactions',
  connections: 'connections',
};

interface ShareLimits {
  /** Of all tenants together. */
  most: number;
  /** Of one tenant. */
  tenantMost: number;
}

/**
 * One kind of thing. A tenant holds at most its share, and the last tenth of all goes to tenants that hold little: several
 * that ask for everything leave something to the next.
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

  /** Answers what gives it back, once. Throws `Tenant.LimitReached` or `Api.Overloaded`. */
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

  /** A tenant that holds nothing gets whatever it asks for, where there is room: no body is too large to be alone. */
  #check(own: number, amount: number): void {
    const all = this.#all + amount;
    if (own === 0 && (all <= this.#most || this.#all === 0)) return;
    if (own === 0)
      throw new PalimpsestError('Api.Overloaded', `The API has ${this.#all} ${held[this.limit]} already.`, {
        hint: 'Repeat the request a moment later.',
        details: { limit: this.limit, most: this.#most },
      });
    const shared = this.#tenantMost < this.#most;
    const scarce = shared && all > this.#most - Math.floor(this.#most / 10);
    if (own + amount <= this.#tenantMost && all <= this.#most && !(scarce && own >= this.#tenantMost / 10))
      return;
    throw new PalimpsestError(
      'Tenant.LimitReached',
      `The tenant has ${own} ${held[this.limit]}, as many as it may have now.`,
      {
        hint: 'Repeat the request a moment later, with fewer at once.',
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
  /** Bytes of its connection at the last look; null before the first, which comes early for it. */
  seen: number | null;
}

/** Gives up bodies that arrive more slowly than a minimum, long before the time of a whole request is over. */
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

  /** Nothing for a request whose body is here already, or that has none. */
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
class Sockets {
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
