/**
 * What each tenant may have in work in this process. A request counts for its tenant from its headers on; before that its
 * connection is one of few that have shown no token.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Transform, type Readable } from 'node:stream';
import { answerRaw } from './failures.js';
import type { CompleteSettings } from './settings.js';
import { Share, type LimitName } from './shares.js';
import { SlowBodies } from './slow-bodies.js';
import { Sockets } from './sockets.js';

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
