/** What happens to a request: it gets the context of its session, or passes as it came. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import type { AccessOf } from '../api/access.js';
import { readBodyHere, refuseEncoded } from '../api/body.js';
import { asFailure, traceOf, withoutAddresses } from '../api/failures.js';
import { needScope, Refused } from '../api/problem.js';
import { checkId } from '../contract/ids.js';
import { invalid, isFailure, networkReason, type PalimpsestError, restated } from '../errors.js';
import { isFields } from '../formats/content.js';
import { CallerGone } from '../store/connection/places.js';
import type { TokenAccess } from '../store/tokens/tokens.js';
import { Bodies } from './bodies.js';
import { answerRequest } from './exchange.js';
import { sendFailure } from './failures.js';
import { answerTo, type Forwarder, passAnswer, requestHeaders } from './forward.js';
import { inHeader, isJson, optionsOf, refuseUnknownHeaders, sessionHeader, textIn } from './own-headers.js';
import { protocolOf } from './protocols/index.js';
import type { Protocol } from './protocols/protocol.js';
import { parsed } from './reader.js';
import type { Sessions } from './session.js';
import type { GatewayRequest, GatewayService } from './settings.js';
import type { EditMode } from './stored-list.js';
import { type Target, targetOf, type Upstream } from './upstreams.js';

/** One request, from its arrival to the end of its answer. */
export interface Visit {
  incoming: IncomingMessage;
  outgoing: ServerResponse;
  /** Aborted when the client has gone. */
  signal: AbortSignal;
  began: number;
  figures: GatewayRequest;
  protocol: Protocol | null;
  access: TokenAccess | null;
}

interface Parts {
  upstreams: readonly Upstream[];
  forwarder: Forwarder;
  sessions: Sessions;
  service: GatewayService;
  accessOf: AccessOf;
  sessionField: string | undefined;
  onFailure: 'pass' | 'refuse';
  bodyLimitBytes: number;
  maxBodyBytes: number;
  log: Logger | undefined;
}

/** A request with a session. */
interface Named {
  protocol: Protocol;
  target: Target;
  session: string;
  bytes: Buffer;
}

export class Requests {
  readonly #bodies: Bodies;

  constructor(private readonly parts: Parts) {
    this.#bodies = new Bodies(parts.bodyLimitBytes, parts.maxBodyBytes);
  }

  /** Answers a request. Throws the failure that the client is to be told, before or within the answer. */
  async answer(visit: Visit): Promise<void> {
    const { incoming, figures } = visit;
    const { upstreams, sessionField } = this.parts;
    const target = targetOf(upstreams, incoming.url ?? '');
    figures.upstream = target.upstream.name;
    const protocol = protocolOf(incoming.method ?? '', target.path.split('?', 1)[0] ?? '');
    visit.protocol = protocol;
    refuseUnknownHeaders(incoming);
    // Nobody spends the key of the operator without access.
    if (target.upstream.key !== null) await this.#access(visit);
    if (protocol === null) return this.#pass(visit, target);
    const session = sessionHeader(incoming);
    if (session !== undefined) {
      await this.#knownAccess(visit);
      return this.#bodies.read(incoming, (bytes) =>
        this.#exchange(visit, { protocol, target, session, bytes }),
      );
    }
    if (sessionField === undefined || !isJson(incoming)) return this.#pass(visit, target);
    return this.#bodies.read(incoming, async (bytes) => {
      const named = textIn(parsed(bytes), sessionField);
      if (named === undefined) return this.#pass(visit, target, bytes);
      await this.#exchange(visit, { protocol, target, session: named, bytes });
    });
  }

  /** Tells the client of a failure. */
  fail({ outgoing, incoming, signal, protocol, figures }: Visit, error: unknown): void {
    const { log } = this.parts;
    if (signal.aborted || outgoing.destroyed) return void outgoing.destroy();
    if (outgoing.headersSent) {
      if (outgoing.writableEnded) return;
      // The client learns from the broken connection that the answer is not whole.
      outgoing.destroy();
      const reason = networkReason(error) ?? (error instanceof Error ? error.message : String(error));
      return log?.warn(
        { upstream: figures.upstream, reason },
        'an answer broke off, or nothing more of it came',
      );
    }
    const failure = asFailure(error);
    const told = withoutAddresses(failure);
    const requestId = sendFailure(outgoing, told, protocol ?? undefined);
    this.#bodies.discardRest(incoming);
    if (told !== failure) log?.warn({ requestId, failure: failure.type }, failure.message);
    if (failure.type === 'Api.Failed') log?.error({ requestId, ...traceOf(failure) }, 'unexpected error');
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
    const request = this.parts.forwarder.open(target, incoming.method ?? 'GET', headers, signal);
    const answered = answerTo(request, target.upstream);
    // Not by a pipeline: it would end the client's connection if the upstream fails.
    if (bytes === undefined) incoming.pipe(request);
    else request.end(bytes);
    const answer = await answered;
    request.once('close', () => this.#bodies.discardRest(incoming));
    await passAnswer(answer, outgoing, own);
  }

  async #exchange(visit: Visit, named: Named): Promise<void> {
    const { incoming, outgoing, signal, figures, began } = visit;
    const { protocol, target, session, bytes } = named;
    checkId(session, 'headers.x-palimpsest-session');
    const options = optionsOf(incoming);
    refuseEncoded(incoming.headers['content-encoding']);
    figures.endpoint = protocol.name;
    const opened = await this.#open(visit, named, options).catch((error: unknown) =>
      this.#bypass(visit, error, options.onEdit),
    );
    if (opened === null || typeof opened === 'string') {
      const own: Record<string, string> = opened === null ? {} : { 'x-palimpsest-bypassed': opened };
      return this.#pass(visit, target, bytes, own);
    }
    figures.ownSeconds = (performance.now() - began) / 1000;
    const { session: used } = opened.begun;
    await answerRequest({
      ...{ forwarder: this.parts.forwarder, target, protocol, incoming, outgoing, bytes, signal, ...opened },
      own: used === session ? {} : { 'x-palimpsest-session': inHeader(used) },
      mostAnswerBytes: this.parts.bodyLimitBytes,
      recovered: () => figures.recovered++,
    });
  }

  /** Stores the list of a request. Null if there is nothing to store. */
  async #open(
    visit: Visit,
    { protocol, session, bytes }: Named,
    { onEdit, recovery }: { onEdit: EditMode | undefined; recovery: boolean },
  ) {
    const { tenant, ...access } = await this.#access(visit);
    needScope(access, 'append');
    needScope(access, 'read');
    // The list is stored, and tools may be added to those of the client; all else passes as bytes.
    const exactIn = [protocol.field, 'tools'];
    const body = readBodyHere(bytes, visit.incoming.headers['content-type'] ?? '', exactIn);
    if (!isFields(body)) throw invalid('The body is no object.', 'body', 'Send a request to a model.');
    const read = protocol.read(body);
    if (read.list.length === 0 && read.heldByProvider === null) return null;
    const client = this.parts.service.forTenant(tenant);
    const offers = recovery && read.trailing.length === 0 && protocol.takesTools(body);
    const caller = { tenant, session, client, onEdit, signal: visit.signal };
    const begun = await this.parts.sessions.begin(protocol, read, offers ? protocol.tools : [], caller);
    return { body, read, client, begun, recovery: offers };
  }

  /** Throws `Api.Unauthorized`, and `Store.Unavailable` or `Identity.Unavailable` if a token cannot be checked now. */
  async #access(visit: Visit): Promise<TokenAccess> {
    return (visit.access ??= await this.#accessOf(visit.incoming));
  }

  /** No body is read for nobody; every other failure is met when the session is opened. */
  async #knownAccess(visit: Visit): Promise<void> {
    await this.#access(visit).catch((error: unknown) => {
      if (isFailure(error, 'Api.Unauthorized')) throw error;
    });
  }

  async #accessOf({ headers: given, socket }: IncomingMessage): Promise<TokenAccess> {
    const { 'x-palimpsest-key': key, authorization: _provider, ...others } = given;
    // A client whose variable is not set sends an empty header.
    const token = String(key ?? '').replace(/^bearer +/i, '');
    const bearer = token === '' ? {} : { authorization: `Bearer ${token}` };
    try {
      return await this.parts.accessOf({ headers: { ...others, ...bearer }, socket });
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
    const { log, onFailure } = this.parts;
    const failure = asFailure(error);
    const { type, path } = failure;
    const isOfCaller =
      type === 'Api.Unauthorized' ||
      type === 'Api.Forbidden' ||
      (type === 'Store.ListEdited' && onEdit === 'refuse');
    if (isOfCaller || onFailure === 'refuse') throw withHeader(failure);
    const trace = type === 'Api.Failed' ? traceOf(failure) : {};
    log?.warn({ failure: type, path, ...trace }, 'a request passed without its session');
    visit.figures.bypassed = type;
    return type;
  }
}

function withHeader(failure: PalimpsestError): PalimpsestError {
  if (failure.type !== 'Store.ListEdited') return failure;
  const hint =
    'Send the whole list, use another session, or say with the header x-palimpsest-on-edit what it means: fork or append.';
  return restated(failure, { hint });
}
