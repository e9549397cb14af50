/** The gateway's HTTP server: requests with a session get its context, all others pass as they came. */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { accessOf } from '../api/access.js';
import { readBodyHere, refuseEncoded } from '../api/body.js';
import { asFailure, traceOf } from '../api/failures.js';
import { headersOf, needScope, Refused, statusOf } from '../api/problem.js';
import { checkedSettings } from '../api/settings.js';
import { checkId } from '../contract/ids.js';
import type { SyncRequest } from '../contract/sync.js';
import type { Json } from '../conversation/message.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { isFields } from '../formats/content.js';
import { CallerGone } from '../store/connection/places.js';
import type { TokenAccess } from '../store/tokens/tokens.js';
import { Answers } from './answers.js';
import { answerRequest } from './exchange.js';
import { answerTo, Forwarder, passAnswer, requestHeaders } from './forward.js';
import { chat } from './protocols/chat.js';
import { protocolOf } from './protocols/index.js';
import type { Protocol } from './protocols/protocol.js';
import { parsed } from './reader.js';
import { type Begun, Sessions } from './session.js';
import type { GatewayRequest, GatewayService, GatewaySettings } from './settings.js';
import { type Target, targetOf, type Upstream, upstreamsOf } from './upstreams.js';

const keepAliveMs = 72_000;
const mebibyte = 1024 * 1024;
const editModes = ['fork', 'append', 'refuse'] as const;

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

/** One request, from its arrival to the end of its answer. */
interface Visit {
  incoming: IncomingMessage;
  outgoing: ServerResponse;
  signal: AbortSignal;
  began: number;
  figures: GatewayRequest;
  protocol: Protocol | null;
  access: TokenAccess | null;
}

class Gateway {
  readonly #upstreams: Upstream[];
  readonly #forwarder: Forwarder;
  readonly #answers: Answers;
  readonly #sessions: Sessions;
  readonly #accessBy: ReturnType<typeof accessOf>;
  readonly #server = createServer((incoming, outgoing) => void this.#serve(incoming, outgoing));
  #requests = 0;
  #bodyBytes = 0;
  #ending = false;
  #drained: () => void = () => undefined;

  constructor(
    private readonly settings: Complete,
    private readonly service: GatewayService,
  ) {
    const { log, upstreams, keys, upstreamTimeoutMs, answerAfterMs, storeTimeoutMs } = settings;
    this.#upstreams = upstreamsOf(upstreams, keys);
    this.#forwarder = new Forwarder(upstreamTimeoutMs);
    this.#answers = new Answers(answerAfterMs, (error) => {
      const failure = asFailure(error);
      log?.warn({ failure: failure.type, ...traceOf(failure) }, 'an answer was not stored');
    });
    this.#sessions = new Sessions(this.#answers, storeTimeoutMs);
    this.#accessBy = accessOf(settings, service);
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
    if (this.#requests > 0)
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
    const figures = {
      upstream: null,
      endpoint: null,
      status: 0,
      ownSeconds: 0,
      bypassed: null,
      recovered: 0,
    };
    const visit: Visit = {
      ...{ incoming, outgoing, signal: gone.signal, figures, protocol: null, access: null },
      began: performance.now(),
    };
    this.#requests++;
    // Nobody else listens after the end of an answer.
    outgoing.on('error', () => undefined);
    outgoing.once('close', () => {
      if (!outgoing.writableFinished) gone.abort(new CallerGone());
      this.#requests--;
      this.#report(visit);
      if (this.#ending && this.#requests === 0) this.#drained();
    });
    try {
      await this.#answer(visit);
    } catch (error) {
      this.#fail(visit, error);
    }
  }

  async #answer(visit: Visit): Promise<void> {
    const { incoming, figures } = visit;
    if (this.#ending || this.#requests > this.settings.maxInFlight) throw overloaded(this.#ending);
    const target = targetOf(this.#upstreams, incoming.url ?? '');
    figures.upstream = target.upstream.name;
    visit.protocol = protocolOf(incoming.method ?? '', target.path.split('?', 1)[0] ?? '');
    const header = oneHeader(incoming, 'x-palimpsest-session');
    // Nobody spends the key of the operator without access.
    if (target.upstream.key !== null) await this.#access(visit);
    const { sessionField } = this.settings;
    if (visit.protocol === null || (header === undefined && sessionField === undefined))
      return this.#pass(visit, target);
    const given = header ?? (isJson(incoming) ? undefined : null);
    if (given === null) return this.#pass(visit, target);
    // No body is read for nobody; every other failure is met when the session is opened.
    if (header !== undefined)
      await this.#access(visit).catch((error: unknown) => {
        if (isFailure(error, 'Api.Unauthorized')) throw error;
      });
    await this.#withBody(visit, async (bytes) => {
      const session = given ?? fieldIn(parsed(bytes), sessionField ?? '');
      if (session === undefined) return this.#pass(visit, target, bytes);
      await this.#exchange(visit, visit.protocol ?? chat, target, session, bytes);
    });
  }

  /** Passes a request as it came, and its answer. */
  async #pass(
    { incoming, outgoing, signal, figures, began }: Visit,
    target: Target,
    bytes?: Buffer,
    own: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    const { key } = target.upstream;
    const length = bytes === undefined ? {} : { length: bytes.length };
    const headers = requestHeaders(incoming.rawHeaders, { key, ...length });
    figures.ownSeconds = (performance.now() - began) / 1000;
    const request = this.#forwarder.open(target, incoming.method ?? 'GET', headers, signal);
    const answered = answerTo(request, target.upstream);
    if (bytes === undefined) pipeline(incoming, request).catch(() => undefined);
    else request.end(bytes);
    await passAnswer(await answered, outgoing, own);
  }

  async #exchange(
    visit: Visit,
    protocol: Protocol,
    target: Target,
    session: string,
    bytes: Buffer,
  ): Promise<void> {
    const { incoming, outgoing, signal, figures, began } = visit;
    checkId(session, 'headers.x-palimpsest-session');
    const onEdit = oneOf(incoming, 'x-palimpsest-on-edit', editModes);
    const recovery = oneOf(incoming, 'x-palimpsest-recovery', ['on', 'off']) !== 'off';
    refuseEncoded(incoming.headers['content-encoding']);
    figures.endpoint = protocol.name;
    const opened = await this.#open(visit, { protocol, session, onEdit, recovery, bytes }).catch(
      (error: unknown) => this.#bypass(visit, error, onEdit),
    );
    if (opened === null || typeof opened === 'string') {
      const own: Record<string, string> = opened === null ? {} : { 'x-palimpsest-bypassed': opened };
      return this.#pass(visit, target, bytes, own);
    }
    figures.ownSeconds = (performance.now() - began) / 1000;
    await answerRequest({
      ...{ forwarder: this.#forwarder, target, protocol, incoming, outgoing, bytes, signal, ...opened },
      own:
        opened.begun.session === session ? {} : { 'x-palimpsest-session': encodeURI(opened.begun.session) },
      mostAnswerBytes: this.settings.bodyLimitBytes,
      recovered: () => figures.recovered++,
    });
  }

  /** Stores the list of a request. Null if there is nothing to store. */
  async #open(
    visit: Visit,
    {
      protocol,
      session,
      onEdit,
      recovery,
      bytes,
    }: { protocol: Protocol; session: string; onEdit?: EditMode; recovery: boolean; bytes: Buffer },
  ) {
    const access = await this.#access(visit);
    needScope(access, 'append');
    needScope(access, 'read');
    const body = readBodyHere(bytes, visit.incoming.headers['content-type'] ?? '');
    if (!isFields(body)) throw invalid('The body is no object.', 'body', 'Send a request to a model.');
    const read = protocol.read(body);
    if (read.list.length === 0 && read.heldByProvider === null) return null;
    const client = this.service.forTenant(access.tenant);
    const offers = recovery && read.trailing.length === 0 && protocol.takesTools(body);
    const caller = { tenant: access.tenant, session, client, signal: visit.signal };
    const begin = (mode: EditMode) =>
      this.#sessions.begin(protocol, read, offers ? protocol.tools : [], { ...caller, onEdit: mode });
    const begun = await (onEdit === undefined ? forkIfShared(begin) : begin(onEdit));
    return { body, read, client, begun, recovery: offers };
  }

  /** Throws `Api.Unauthorized`, and `Store.Unavailable` or `Identity.Unavailable` if a token cannot be checked now. */
  async #access(visit: Visit): Promise<TokenAccess> {
    return (visit.access ??= await this.#accessOf(visit.incoming));
  }

  async #accessOf({ headers: given, socket }: IncomingMessage): Promise<TokenAccess> {
    const { 'x-palimpsest-key': key, authorization: _provider, ...others } = given;
    // A client whose variable is not set sends an empty header.
    const bearer = key === undefined || key === '' ? {} : { authorization: `Bearer ${String(key)}` };
    try {
      return await this.#accessBy({ headers: { ...others, ...bearer }, socket });
    } catch (error) {
      if (!isFailure(error, 'Api.Unauthorized') || error.path !== 'headers.authorization') throw error;
      const hint = 'Send a token of Palimpsest in the header x-palimpsest-key.';
      const path = 'headers.x-palimpsest-key';
      throw new Refused(401, 'Api.Unauthorized', error.message, { path, hint, cause: error.cause });
    }
  }

  /** Returns the failure's type if the request passes without its session; else throws the failure. */
  #bypass(visit: Visit, error: unknown, onEdit: EditMode | undefined): string {
    if (error instanceof CallerGone || visit.signal.aborted) throw error;
    const failure = asFailure(error);
    const { type } = failure;
    const isOfCaller =
      type === 'Api.Unauthorized' ||
      type === 'Api.Forbidden' ||
      (type === 'Store.ListEdited' && onEdit === 'refuse');
    if (isOfCaller || this.settings.onFailure === 'refuse') throw withHeader(failure);
    const { log } = this.settings;
    const trace = failure.type === 'Api.Failed' ? traceOf(failure) : {};
    log?.warn(
      { failure: failure.type, path: failure.path, ...trace },
      'a request passed without its session',
    );
    visit.figures.bypassed = failure.type;
    return failure.type;
  }

  /** Reads a body and counts its bytes. Throws `Input.TooLarge`, `Api.Overloaded`. */
  async #withBody(visit: Visit, work: (bytes: Buffer) => Promise<void>): Promise<void> {
    const { bodyLimitBytes, maxBodyBytes } = this.settings;
    const chunks: Buffer[] = [];
    let size = 0;
    try {
      for await (const chunk of visit.incoming as AsyncIterable<Buffer>) {
        chunks.push(chunk);
        size += chunk.length;
        this.#bodyBytes += chunk.length;
        if (size > bodyLimitBytes) throw tooLarge(bodyLimitBytes);
        if (this.#bodyBytes > maxBodyBytes && this.#bodyBytes > size) throw overloaded(false);
      }
      await work(Buffer.concat(chunks));
    } finally {
      this.#bodyBytes -= size;
    }
  }

  #fail(visit: Visit, error: unknown): void {
    const { outgoing, incoming, signal, protocol } = visit;
    if (signal.aborted || outgoing.destroyed) return void outgoing.destroy();
    // The client learns from the broken connection that the answer is not whole.
    if (outgoing.headersSent) return void (outgoing.writableEnded || outgoing.destroy());
    const failure = asFailure(error);
    const { type, message, hint } = failure;
    const status = failure instanceof Refused ? failure.status : statusOf(type);
    const requestId = randomUUID();
    if (type === 'Api.Failed')
      this.settings.log?.error({ requestId, ...traceOf(failure) }, 'unexpected error');
    const text = JSON.stringify(
      (protocol ?? chat).failure(type, hint === undefined ? message : `${message} ${hint}`),
    );
    const again = status === 429 || status >= 500;
    outgoing.writeHead(status, {
      ...headersOf(failure, status),
      ...{ 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) },
      ...{ 'x-palimpsest-failure': type, 'x-request-id': requestId, 'x-should-retry': String(again) },
      // The rest of the body is not read.
      ...(incoming.complete ? {} : { connection: 'close' }),
    });
    outgoing.end(text);
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

type EditMode = NonNullable<SyncRequest['onEdit']>;

/** An edited list goes on in a fork, unless it has nothing of the session: then it belongs to another conversation. */
async function forkIfShared(begin: (mode: EditMode) => Promise<Begun>): Promise<Begun> {
  try {
    return await begin('refuse');
  } catch (error) {
    if (!isFailure(error, 'Store.ListEdited') || error.details?.commonSeq === 0) throw error;
    return begin('fork');
  }
}

function withHeader(failure: PalimpsestError): PalimpsestError {
  if (failure.type !== 'Store.ListEdited') return failure;
  const hint =
    'Send the whole list, use another session, or say with the header x-palimpsest-on-edit what it means: fork or append.';
  return new PalimpsestError(failure.type, failure.message, { ...failure, hint });
}

function oneHeader({ headers }: IncomingMessage, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}

function oneOf<Value extends string>(
  incoming: IncomingMessage,
  name: string,
  values: readonly Value[],
): Value | undefined {
  const given = oneHeader(incoming, name)?.toLowerCase();
  if (given === undefined) return undefined;
  const value = values.find((one) => one === given);
  if (value !== undefined) return value;
  throw invalid(`The header ${name} is ${given}.`, `headers.${name}`, `Send ${values.join(' or ')}.`);
}

const isJson = ({ headers }: IncomingMessage): boolean =>
  /^application\/json\b/i.test(headers['content-type'] ?? '') && headers['content-encoding'] === undefined;

/** The text in a field, such as `metadata.session`. */
function fieldIn(body: Json, place: string): string | undefined {
  const found = place
    .split('.')
    .reduce<Json | undefined>((at, name) => (isFields(at) ? at[name] : undefined), body);
  return typeof found === 'string' && found !== '' ? found : undefined;
}

const overloaded = (ending: boolean): PalimpsestError =>
  new PalimpsestError('Api.Overloaded', ending ? 'The gateway is shutting down.' : 'The gateway is busy.', {
    hint: 'Repeat the request after a moment.',
  });

const tooLarge = (limit: number): PalimpsestError =>
  new PalimpsestError('Input.TooLarge', `The body has more than ${limit} bytes.`, {
    ...{ path: 'body', hint: 'Raise gateway.bodyLimitBytes.' },
    details: { bodyLimitBytes: limit },
  });
