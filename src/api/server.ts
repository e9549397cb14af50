/** The HTTP API: operations as routes, failures as problems, limits, and a shutdown that lets requests finish. */
import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import type { ServerResponse } from 'node:http';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { invalid } from '../errors.js';
import { asCaller, type Caller, CallerGone } from '../store/connection/places.js';
import type { TokenAccess } from '../store/tokens/tokens.js';
import { accessOf, isLocal } from './access.js';
import { Admission, closeQueued, type Load } from './admission.js';
import { longBodyBytes, readBody, refuseEncoded, shortBodyBytes } from './body.js';
import { answerRaw, asFailure, notThere, traceOf, withoutAddresses } from './failures.js';
import { openApiDocument } from './openapi.js';
import { operations } from './operations/index.js';
import { JsonPieces, linesMediaType, type Operation, Streamed } from './operations/operation.js';
import { headersOf, needScope, problemMediaType, problemOf, stopping } from './problem.js';
import { sendJson } from './send-json.js';
import { addServiceRoutes } from './service.js';
import { type ApiService, type ApiSettings, checkedSettings, type CompleteSettings } from './settings.js';

declare module 'fastify' {
  interface FastifyRequest {
    access: TokenAccess | null;
    /** Failure type of the answer. */
    failure: string | null;
  }
}

/** As long as request line and headers may be together, so that the router never refuses an id before the id is checked. */
const longestParameter = 16 * 1024;
const keepAliveMs = 72_000;

/** Starts to listen. Throws `Input.Invalid` naming the wrong setting, also if the port is in use. */
export async function startApi(given: ApiSettings, service: ApiService): Promise<RunningApi> {
  const settings = checkedSettings(given);
  const inFlight = new InFlight();
  const admission = new Admission(settings);
  const app = Fastify({
    logger: false,
    bodyLimit: settings.bodyLimitBytes,
    requestTimeout: settings.requestTimeoutMs,
    keepAliveTimeout: keepAliveMs,
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: longestParameter },
    // By default Node checks for late requests only every 30 s.
    http: { connectionsCheckingInterval: Math.min(1_000, Math.ceil(settings.headersTimeoutMs / 4)) },
    genReqId: ({ headers }) => requestIdOf(headers['x-request-id']),
    clientErrorHandler: answerRaw,
    frameworkErrors: (error, request, reply) => fail(settings, error, request, reply),
  });
  // Node applies the larger of the two to the whole request.
  app.server.headersTimeout = Math.min(settings.headersTimeoutMs, settings.requestTimeoutMs);
  closeQueued(app.server);
  admission.watch(app.server);
  app.decorateRequest('access', null);
  app.decorateRequest('failure', null);
  readExactly(app);
  watchRequests(app, settings);
  app.setErrorHandler((error, request, reply) => fail(settings, error, request, reply));
  app.setNotFoundHandler((request) => {
    throw notThere(operations, request.method, request.url);
  });
  const accessBy = accessOf(settings, service);
  addServiceRoutes(app, {
    service,
    isLocal: ({ raw }) => isLocal(raw),
    needScope: async ({ raw }, scope) => needScope(await accessBy(raw), scope),
    metrics: settings.metrics,
    document: documentOf(settings),
    ending: () => inFlight.ending,
  });
  for (const operation of operations)
    app.route({
      method: operation.method,
      url: operation.path.replace(/\{(\w+)\}/g, ':$1'),
      bodyLimit: Math.min(mostBodyBytes(operation), settings.bodyLimitBytes),
      onRequest: async (request, reply) => {
        inFlight.enter(reply.raw);
        const access = await accessBy(request.raw);
        request.access = access;
        admission.enter(access.tenant, request.raw, reply.raw);
        needScope(access, operation.scope);
        refuseEncoded(request.headers['content-encoding']);
      },
      preParsing: (request, reply, body, done) =>
        done(null, admission.counted(request.access!.tenant, request.raw, body, reply.raw)),
      handler: (request, reply) => answer(operation, service, admission, request, reply),
    });
  await listen(app, settings);
  return {
    address: addressOf(app.server.address() as AddressInfo),
    requiresToken: settings.requireToken,
    load: () => admission.load(),
    async close() {
      await inFlight.end(settings.shutdownGraceMs);
      admission.stop();
      await app.close();
    },
  };
}

function mostBodyBytes({ takesTurns, longBody }: Operation): number {
  if (takesTurns) return Infinity;
  return longBody ? longBodyBytes : shortBodyBytes;
}

async function answer(
  operation: Operation,
  service: ApiService,
  admission: Admission,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { params, query, body, headers } = request;
  const access = request.access!;
  const { tenant } = access;
  const { method, lane = 'hot', abandon = method === 'GET' } = operation;
  const hold = admission.holder(tenant, reply.raw);
  const caller: Caller = { tenant, lane, hold, ...(abandon ? { signal: goneSignal(reply) } : {}) };
  const client = service.forTenant(tenant);
  const startWaiting = () => admission.wait(tenant, reply.raw);
  const made = await asCaller(caller, () =>
    operation.run({ client, access, params, query, body, headers, startWaiting }),
  );
  reply.header('cache-control', 'private, no-cache');
  if (made instanceof Streamed) return send(made, caller, request, reply);
  reply.code(made.status).headers(made.headers).header('vary', 'accept-encoding');
  if (made.body === undefined) return reply.send();
  const pieces = made.body instanceof JsonPieces ? made.body.pieces : [JSON.stringify(made.body)];
  return sendJson(pieces, headers['accept-encoding'], reply);
}

/** One for all requests, because every request ends with it, and an error with its stack takes time. */
const callerGone = new CallerGone();

/** Aborted when the answer is sent or its caller has gone: the remaining work has no use. */
function goneSignal({ raw }: FastifyReply): AbortSignal {
  const gone = new AbortController();
  if (raw.closed) gone.abort(callerGone);
  else raw.once('close', () => gone.abort(callerGone));
  return gone.signal;
}

/** A failure before the first text is answered as a problem. */
async function send(
  { texts, mediaType }: Streamed,
  caller: Caller,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  // The stream asks for the next text when its socket has room, outside the awaits of this request.
  const next = () => asCaller(caller, () => texts.next());
  const first = await next();
  if (first.done) return reply.header('content-type', mediaType).send('');
  return reply.header('content-type', mediaType).send(Readable.from(all()));

  async function* all(): AsyncGenerator<string> {
    try {
      for (let text = first; !text.done; text = await next()) yield text.value;
    } catch (error) {
      if (error instanceof CallerGone) throw error;
      const failure = asFailure(error);
      const problem = problemOf(isLocal(request.raw) ? failure : withoutAddresses(failure), request.id);
      request.failure = problem.failure;
      if (mediaType === linesMediaType) yield `${JSON.stringify({ problem })}\n`;
      // Lets the line go out before the connection is closed.
      await new Promise((resolve) => setImmediate(resolve));
      throw error;
    } finally {
      await texts.return(undefined);
    }
  }
}

function fail(
  settings: CompleteSettings,
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  // Nobody reads this answer. Status 499 marks it in logs and metrics, as in nginx.
  if (error instanceof CallerGone) return void reply.code(499).send();
  const mediaType = request.headers['content-type'];
  const { bodyLimit = settings.bodyLimitBytes } = request.routeOptions;
  const failure = asFailure(error, { mediaType, bodyLimit });
  if (failure.type === 'Api.Failed')
    settings.log?.error({ requestId: request.id, ...traceOf(failure) }, 'unexpected error');
  if (failure.type === 'Api.Unauthorized' && failure.cause !== undefined)
    settings.log?.info({ requestId: request.id, ...reasonOf(failure.cause) }, 'token refused');
  if (failure.type === 'Identity.Unavailable' && failure.cause instanceof Error)
    settings.log?.warn({ requestId: request.id, reason: failure.cause.message }, failure.message);
  if (failure.type === 'Temporal.Unavailable' || failure.type === 'Store.Unavailable')
    settings.log?.warn({ requestId: request.id, ...failure.details }, failure.message);
  if (failure.forTenants)
    settings.log?.warn({ requestId: request.id, reason: failure.message }, failure.forTenants.message);
  request.failure = failure.type;
  if (typeof failure.details?.['limit'] === 'string') settings.observeRefusal?.(failure.details['limit']);
  const problem = problemOf(isLocal(request.raw) ? failure : withoutAddresses(failure), request.id);
  reply
    .code(problem.status)
    .headers({ ...headersOf(failure, problem.status), 'x-request-id': request.id })
    .header('cache-control', 'no-store')
    .header('content-type', problemMediaType)
    .send(JSON.stringify(problem));
}

/** The reason why a JWT was refused: the library's code and the claim, never a value. */
function reasonOf(cause: unknown): object {
  const { code, claim } = cause as { code?: unknown; claim?: unknown };
  return {
    reason: code ?? (cause instanceof Error ? cause.message : ''),
    ...(claim === undefined ? {} : { claim }),
  };
}

function readExactly(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer' },
    async (request: FastifyRequest, bytes: Buffer) =>
      readBody(bytes, request.headers['content-type'] ?? '', request.access?.tenant),
  );
}

/** Covers requests whose caller has gone. Logs path patterns only, never ids or queries. */
function watchRequests(app: FastifyInstance, { log, observe }: CompleteSettings): void {
  app.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id);
    // Node warns from the eleventh listener on, and a chunked request that waits has that many.
    reply.raw.setMaxListeners(20);
    const began = performance.now();
    reply.raw.once('close', () => {
      const { id: requestId, method, access, failure } = request;
      const tenant = access?.tenant ?? null;
      const route = request.routeOptions.url ?? null;
      const status = reply.raw.statusCode;
      const took = performance.now() - began;
      observe?.({ method, route, status, seconds: took / 1000 });
      const line = { method, route, status, ms: Math.round(took * 10) / 10, tenant };
      const aborted = reply.raw.writableFinished ? {} : { aborted: true };
      const level = status >= 500 ? 'warn' : route?.startsWith('/v1/') ? 'info' : 'debug';
      log?.[level]({ ...line, ...(failure === null ? {} : { failure }), ...aborted, requestId }, 'request');
    });
    done();
  });
}

/** Uses the caller's own request id if it is safe in a log. */
function requestIdOf(header: string | string[] | undefined): string {
  return typeof header === 'string' && /^[\w.:-]{1,64}$/.test(header) ? header : randomUUID();
}

/** The document is made on first use. */
function documentOf({ requireToken }: CompleteSettings): () => string {
  let text: string | undefined;
  return () => (text ??= JSON.stringify(openApiDocument(operations, { secured: requireToken })));
}

async function listen(app: FastifyInstance, { host, port }: CompleteSettings): Promise<void> {
  try {
    await app.listen({ host, port });
  } catch (error) {
    await app.close();
    const { code } = error as NodeJS.ErrnoException;
    if (code === undefined || !/^E[A-Z]+$/.test(code)) throw error;
    const hint =
      code === 'EADDRINUSE'
        ? 'Another process uses the port. Choose another one, or 0 for a free one.'
        : undefined;
    throw invalid(`cannot listen on ${host}:${port}: ${code}`, code === 'EADDRINUSE' ? 'port' : 'host', hint);
  }
}

function addressOf({ address, family, port }: AddressInfo): string {
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

export interface RunningApi {
  /** Address with the assigned port, e.g. `http://127.0.0.1:7280`. */
  address: string;
  /** Whether every request needs a token. */
  requiresToken: boolean;
  /** Present use of each limit, by name. */
  load(): Load;
  /** Makes `/readyz` answer 503, refuses new requests, and lets running ones finish within the grace period. */
  close(): Promise<void>;
}

/** Counts the running requests, and lets a shutdown wait for them. */
class InFlight {
  private requests = 0;
  private drained: (() => void) | undefined;
  private over = false;

  get ending(): boolean {
    return this.over;
  }

  /** Counts a request until its answer is sent or its caller has gone. Throws `Api.Unavailable`. */
  enter(response: ServerResponse): void {
    if (this.over) throw stopping('API');
    this.requests++;
    response.once('close', () => {
      this.requests--;
      if (this.over && this.requests === 0) this.drained?.();
    });
  }

  /** Refuses new requests. Resolves when no request is running, or when the time is over. */
  async end(graceMs: number): Promise<void> {
    this.over = true;
    if (this.requests === 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, graceMs);
      this.drained = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}
