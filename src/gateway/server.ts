/** The gateway's HTTP server: its start, its requests in progress, and its end. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { accessOf } from '../api/access.js';
import { asFailure, traceOf } from '../api/failures.js';
import { stopping } from '../api/problem.js';
import { checkedSettings } from '../api/settings.js';
import { invalid } from '../errors.js';
import { CallerGone } from '../store/connection/places.js';
import { Answers } from './answers.js';
import { overloaded } from './failures.js';
import { Forwarder } from './forward.js';
import { Requests, type Visit } from './requests.js';
import { Sessions } from './session.js';
import type { GatewayService, GatewaySettings } from './settings.js';
import { upstreamsOf } from './upstreams.js';

const keepAliveMs = 72_000;
const mebibyte = 1024 * 1024;

type Complete = Required<Omit<GatewaySettings, 'identity' | 'sessionField' | 'log' | 'observe'>> &
  Pick<GatewaySettings, 'identity' | 'sessionField' | 'log' | 'observe'>;

export interface RunningGateway {
  /** Address with the assigned port, e.g. `http://127.0.0.1:7281`. */
  address: string;
  requiresToken: boolean;
  /** Refuses new requests, lets running ones finish within the grace period, and stores the answers that it has. */
  close(): Promise<void>;
}

/** Starts to listen. Throws `Input.Invalid` naming the wrong setting, also if the port is in use. */
export async function startGateway(given: GatewaySettings, service: GatewayService): Promise<RunningGateway> {
  const gateway = new Gateway(completed(given), service);
  return gateway.listen();
}

function completed(given: GatewaySettings): Complete {
  const named = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const { host = '127.0.0.1', tokens, identity, requireToken } = given;
  const access = checkedSettings({ host, tokens, identity, requireToken });
  return {
    ...{ port: 7281, keys: {}, onFailure: 'pass' },
    ...{ bodyLimitBytes: 32 * mebibyte, maxBodyBytes: 256 * mebibyte, maxInFlight: 1_000 },
    ...{ upstreamTimeoutMs: 600_000, storeTimeoutMs: 10_000, answerAfterMs: 60_000, shutdownGraceMs: 10_000 },
    ...(named as Pick<GatewaySettings, 'upstreams'>),
    ...{ host, tokens: access.tokens, requireToken: access.requireToken },
  };
}

class Gateway {
  readonly #answers: Answers;
  readonly #forwarder: Forwarder;
  readonly #requests: Requests;
  readonly #server = createServer((incoming, outgoing) => void this.#serve(incoming, outgoing));
  #inProgress = 0;
  #ending = false;
  #drained: () => void = () => undefined;

  constructor(
    private readonly settings: Complete,
    service: GatewayService,
  ) {
    const { log, upstreams, keys, sessionField, onFailure, bodyLimitBytes, maxBodyBytes } = settings;
    this.#answers = new Answers(settings.answerAfterMs, (error, session) => {
      const failure = asFailure(error);
      const { type, path } = failure;
      const trace = type === 'Api.Failed' ? traceOf(failure) : { error: failure.message };
      log?.warn({ session, failure: type, path, ...trace }, 'an answer was not stored');
    });
    this.#forwarder = new Forwarder(settings.upstreamTimeoutMs);
    this.#requests = new Requests({
      ...{ upstreams: upstreamsOf(upstreams, keys), forwarder: this.#forwarder, service },
      ...{ sessions: new Sessions(this.#answers, settings.storeTimeoutMs) },
      ...{
        accessOf: accessOf(settings, service),
        sessionField,
        onFailure,
        bodyLimitBytes,
        maxBodyBytes,
        log,
      },
    });
  }

  async listen(): Promise<RunningGateway> {
    const { host, port, requireToken } = this.settings;
    this.#server.keepAliveTimeout = keepAliveMs;
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', (error: NodeJS.ErrnoException) =>
        reject(
          invalid(
            `cannot listen on ${host}:${port}: ${error.code ?? error.message}`,
            error.code === 'EADDRINUSE' ? 'gateway.port' : 'gateway.host',
            'Choose a free port, or 0, and an address of this machine.',
          ),
        ),
      );
      this.#server.listen(port, host, resolve);
    });
    const { address, family, port: bound } = this.#server.address() as AddressInfo;
    return {
      address: `http://${family === 'IPv6' ? `[${address}]` : address}:${bound}`,
      requiresToken: requireToken,
      close: () => this.#close(),
    };
  }

  async #close(): Promise<void> {
    this.#ending = true;
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeIdleConnections();
    if (this.#inProgress > 0)
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, this.settings.shutdownGraceMs);
        this.#drained = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    this.#server.closeAllConnections();
    await closed;
    await this.#answers.close();
    this.#forwarder.close();
  }

  async #serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const gone = new AbortController();
    const visit: Visit = {
      ...{ incoming, outgoing, signal: gone.signal, began: performance.now(), protocol: null, access: null },
      figures: { upstream: null, endpoint: null, status: 0, ownSeconds: 0, bypassed: null, recovered: 0 },
    };
    this.#inProgress++;
    // Nobody else listens after the end of an answer.
    outgoing.on('error', () => undefined);
    outgoing.once('close', () => {
      if (!outgoing.writableFinished) gone.abort(new CallerGone());
      this.#inProgress--;
      this.#report(visit);
      if (this.#ending && this.#inProgress === 0) this.#drained();
    });
    try {
      if (this.#ending) throw stopping('gateway');
      if (this.#inProgress > this.settings.maxInFlight) throw overloaded('The gateway is busy.');
      await this.#requests.answer(visit);
    } catch (error) {
      this.#requests.fail(visit, error);
    }
  }

  #report({ incoming: { method }, outgoing, figures, began, access }: Visit): void {
    const status = outgoing.statusCode;
    const { log, observe } = this.settings;
    observe?.({ ...figures, status });
    const ms = Math.round((performance.now() - began) * 10) / 10;
    const { upstream, endpoint, ownSeconds, bypassed, recovered } = figures;
    log?.[status >= 500 ? 'warn' : 'info'](
      {
        ...{ method, upstream, endpoint, status, ms, ownMs: Math.round(ownSeconds * 10_000) / 10 },
        tenant: access?.tenant ?? null,
        ...(bypassed === null ? {} : { bypassed }),
        ...(recovered === 0 ? {} : { recovered }),
        ...(outgoing.writableFinished ? {} : { aborted: true }),
      },
      'request',
    );
  }
}
