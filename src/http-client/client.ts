/**
 * `palimpsest/http` does everything that the library does, through `palimpsest api`. It needs neither PostgreSQL nor Temporal.
 * The client loads no package; the recovery tools, which are exported with it, load zod.
 */
import type { ArchivePart } from '../contract/archive.js';
import { asking, checkRequests } from '../contract/asking.js';
import type { Asked, OfSession, PalimpsestClient, ReadContext } from '../contract/client.js';
import type { CompactionOutcome } from '../contract/compactions.js';
import type { SessionContext } from '../contract/context.js';
import { encodeIdPart } from '../contract/ids.js';
import { checkKnown } from '../contract/options.js';
import { longestWaitMs, type OperationId, routeOf, routes } from '../contract/routes.js';
import type { LoggedMessage } from '../conversation/message.js';
import { checkPlainJson } from '../conversation/json.js';
import { invalid, isFailure } from '../errors.js';
import { compactionBy, settledBy } from './long-calls.js';
import { parsed, replayed, Transport, type TransportOptions } from './transport.js';

/** Options of {@link HttpPalimpsest.connect}. */
export interface HttpOptions extends Omit<TransportOptions, 'url'> {
  /**
   * URL of the API, e.g. `https://palimpsest.example`. Its path becomes a prefix of the API's paths.
   * @default the environment's `PALIMPSEST_URL`, with `PALIMPSEST_TOKEN` as the token
   */
  url?: string;
  /**
   * Number of contexts kept in memory, so that the API need not send an unchanged context again. Each takes as much memory as
   * its JSON.
   * @default 100
   */
  keptContexts?: number;
}

/**
 * Operations whose methods send several requests, keep answers, or return something other than one JSON value. The last two are
 * both behind the method `archive`.
 */
const special = [
  ...(['context', 'compact', 'resummarize', 'settled', 'replay', 'export', 'historyLog'] as const),
  ...(['archiveParts', 'archivePart'] as const),
];
type OrdinaryId = Exclude<OperationId, (typeof special)[number]>;

/** All other operations: each is one request of the table of routes. */
class Exchanges {
  constructor(protected readonly transport: Transport) {}

  protected async exchange(id: OperationId, request: object = {}): Promise<unknown> {
    const { method, repeatable, answer } = routeOf(id);
    const { path, rest } = addressed(id, request);
    const inBody = method === 'POST' || method === 'PUT';
    const answered = await this.transport.json<Record<string, unknown>>({
      ...{ method, path, repeatable },
      ...(inBody ? { body: sendable(rest) } : { query: rest }),
    });
    return answer === undefined ? answered : answered[answer];
  }
}

for (const id of Object.keys(routes) as OperationId[])
  if (!(special as readonly OperationId[]).includes(id))
    Object.defineProperty(Exchanges.prototype, id, {
      configurable: true,
      value(this: Exchanges, request?: object) {
        return this.exchange(id, request);
      },
    });

checkRequests(Exchanges.prototype);

const optionNames = ['url', 'token', 'timeoutMs', 'fetch', 'keptContexts'] satisfies (keyof HttpOptions)[];

/** A token of the environment is sent to the environment's URL only. */
function withUrl({ url, token, ...options }: Omit<HttpOptions, 'keptContexts'>): TransportOptions {
  if (url !== undefined) return { ...options, url, ...(token === undefined ? {} : { token }) };
  const { PALIMPSEST_URL: address, PALIMPSEST_TOKEN: ownToken } = process.env;
  if (!address)
    throw invalid(
      'url is missing',
      'url',
      'Give the URL of the API, e.g. http://127.0.0.1:7280, or set PALIMPSEST_URL.',
    );
  const given = token ?? (ownToken || undefined);
  return { ...options, url: address, ...(given === undefined ? {} : { token: given }) };
}

const Ordinary = Exchanges as unknown as new (
  transport: Transport,
) => Exchanges & Pick<PalimpsestClient, OrdinaryId>;

/**
 * The same methods, values and failures as `Palimpsest`. Requests that only read, and `appendTurn`, are repeated if the connection
 * breaks or a limit or a lock refuses them. Every other request fails at once; after `Api.Unavailable` the caller has to find out
 * whether it took effect.
 *
 * @example
 * const palimpsest = await HttpPalimpsest.connect({ url: 'http://127.0.0.1:7280', token });
 * await palimpsest.appendTurn({ session: 's-1', turnId: 't-1', messages: [{ role: 'user', content: 'Hello' }] });
 */
export class HttpPalimpsest extends Ordinary implements PalimpsestClient {
  private readonly contexts: KeptContexts;

  private constructor(transport: Transport, keptContexts: number) {
    super(transport);
    this.contexts = new KeptContexts(keptContexts);
  }

  /** Throws `Api.Unavailable` if nothing answers, `Api.Unauthorized` if the token is unknown. */
  static async connect(given: HttpOptions = {}): Promise<HttpPalimpsest> {
    checkKnown(given, optionNames);
    const { keptContexts = 100, ...options } = given;
    if (!Number.isSafeInteger(keptContexts) || keptContexts < 0)
      throw invalid('keptContexts must be a whole number, at least 0', 'keptContexts');
    const palimpsest = new HttpPalimpsest(
      new Transport(withUrl(options), options.url === undefined ? 'PALIMPSEST_URL' : 'url'),
      keptContexts,
    );
    try {
      await palimpsest.tenantPolicy();
    } catch (error) {
      // The token is valid, but without the scope `read`.
      if (!isFailure(error, 'Api.Forbidden')) throw error;
    }
    return palimpsest;
  }

  /** Does nothing: no connection stays open between calls. */
  async close(): Promise<void> {}

  readonly context = asking(
    'context',
    async ({ waitMs = 0, ...request }: Asked<'context'>): Promise<SessionContext<unknown, unknown>> => {
      // The transport and the query use it, so it is checked first.
      if (!Number.isSafeInteger(waitMs) || waitMs < 0 || waitMs > longestWaitMs)
        throw invalid(`waitMs must be a whole number from 0 to ${longestWaitMs}`, 'waitMs');
      const { path, rest } = addressed('context', request);
      const key = JSON.stringify([path, rest]);
      const kept = this.contexts.get(key);
      const { response, text } = await this.transport.text({
        ...{ method: 'GET', path, waitMs },
        query: { ...rest, wait: waitMs || undefined },
        ...(kept ? { headers: { 'if-none-match': kept.etag } } : {}),
      });
      const etag = response.headers.get('etag');
      const unchanged = response.status === 304 && kept !== undefined;
      if (!unchanged && etag !== null) this.contexts.put(key, { etag, text });
      return parsed(unchanged ? kept.text : text, response) as SessionContext;
    },
  ) as ReadContext;

  async compact({ session, wait }: Asked<'compact'>): Promise<CompactionOutcome | null> {
    return compactionBy(this, this.transport, addressed('compact', { session }).path, session, wait);
  }

  async resummarize({ session, wait }: Asked<'resummarize'>): Promise<CompactionOutcome | null> {
    return compactionBy(this, this.transport, addressed('resummarize', { session }).path, session, wait);
  }

  async settled({ session, timeoutMs = 60_000 }: Asked<'settled'>): Promise<void> {
    await settledBy(this.transport, addressed('settled', { session }).path, timeoutMs);
  }

  async archive(request: OfSession): Promise<ArchivePart[]>;
  async archive(request: OfSession & { part: number }): Promise<LoggedMessage[]>;
  async archive({ session, part }: OfSession & { part?: number }): Promise<ArchivePart[] | LoggedMessage[]> {
    if (part !== undefined) return (await this.exchange('archivePart', { session, part })) as LoggedMessage[];
    const parts = (await this.exchange('archiveParts', { session })) as ArchivePart[];
    return parts.map((each) => ({ ...each, createdAt: new Date(each.createdAt) }));
  }

  replay(request: OfSession): AsyncGenerator<LoggedMessage> {
    return replayed(this.transport, addressed('replay', request).path);
  }

  export(request: OfSession): AsyncGenerator<string> {
    return this.transport.stream({ method: 'GET', path: addressed('export', request).path });
  }

  historyLog(request: OfSession): AsyncGenerator<string> {
    return this.transport.stream({ method: 'GET', path: addressed('historyLog', request).path });
  }
}

checkRequests(HttpPalimpsest.prototype);

type Rest = Readonly<Record<string, string | number | boolean | undefined>>;

/** Puts fields of the request into the path. Returns the path and the other fields. */
function addressed(id: OperationId, request: object): { path: string; rest: Rest } {
  const rest: Record<string, unknown> = { ...request };
  const path = routes[id].path.replace(/\{(\w+)\}/g, (_, field: string) => {
    const value = rest[field];
    delete rest[field];
    return typeof value === 'number' ? String(value) : idInPath(value as string, field);
  });
  return { path, rest: rest as Rest };
}

function idInPath(id: string, field: string): string {
  const encoded = encodeIdPart(id, field);
  if (encoded !== '.' && encoded !== '..') return encoded;
  throw invalid(`${field} ${id} cannot be part of a URL`, field, 'Give it another id, or use the library.');
}

/** Returns the body, or undefined if no field has a value. Throws `Input.Invalid` for values that JSON would change. */
function sendable(body: object): object | undefined {
  const given = Object.entries(body).filter(([, value]) => value !== undefined);
  for (const [field, value] of given) checkPlainJson(value, field);
  return given.length === 0 ? undefined : body;
}

/** The last answer for one context. */
interface KeptContext {
  etag: string;
  text: string;
}

/** The last answer for each context, so that the API need not send an unchanged context again. */
class KeptContexts {
  private readonly kept = new Map<string, KeptContext>();

  /** Keeps at most `most` contexts; the least recently used one is removed first. */
  constructor(private readonly most: number) {}

  get(key: string): KeptContext | undefined {
    const found = this.kept.get(key);
    if (found) this.put(key, found);
    return found;
  }

  put(key: string, context: KeptContext): void {
    // A map keeps the order of insertion, so an entry that is inserted again comes last.
    this.kept.delete(key);
    this.kept.set(key, context);
    const [oldest] = this.kept.keys();
    if (this.kept.size > this.most && oldest !== undefined) this.kept.delete(oldest);
  }
}
