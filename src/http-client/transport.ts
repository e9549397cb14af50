/** One request to the HTTP API: timeouts, retries, and the failures that the library throws. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Problem } from '../contract/problem.js';
import type { LoggedMessage } from '../conversation/message.js';
import { invalid, isFailure, isFailureType, networkReason, PalimpsestError } from '../errors.js';
import { type Answered, type Fetch, nodeFetch } from './node-fetch.js';

export interface TransportOptions {
  /** URL of the API, e.g. `https://palimpsest.example`. Its path becomes a prefix of the API's paths. */
  url: string;
  /** Token of the tenant. @default none, for an API on this machine that has no tokens */
  token?: string;
  /** Milliseconds within which an answer must arrive, in addition to the time that a call itself waits. @default 30,000 */
  timeoutMs?: number;
  /** Sends the requests, for a proxy, certificates or a connection pool. @default Node's own HTTP, with kept connections */
  fetch?: typeof globalThis.fetch;
}

export interface Exchange {
  method: 'GET' | 'POST' | 'PUT' | 'DELETE';
  path: string;
  query?: Readonly<Record<string, string | number | boolean | undefined>>;
  body?: object;
  headers?: Readonly<Record<string, string>>;
  /** Milliseconds added to the timeout for this request. */
  waitMs?: number;
  /** Whether the request may be sent again if it is unknown whether the first one arrived. @default true for GET */
  repeatable?: boolean;
}

/** Milliseconds before each retry of a repeatable request. After the last one, its failure is final. */
const pauses = [100, 400, 1_600];
const longestPauseMs = 5_000;
/** Failures that may be over a moment later. All but the first have a `retry-after`. */
const passing: ReadonlySet<string> = new Set([
  'Api.Unavailable',
  'Api.Overloaded',
  'Store.Busy',
  'Tenant.LimitReached',
]);

export class Transport {
  private readonly base: string;
  private readonly isNear: boolean;
  private readonly token: string | undefined;
  private readonly timeoutMs: number;
  private readonly fetch: Fetch;

  /**
   * Throws `Input.Invalid`, which names the option.
   *
   * @param from the option or the variable that contains the URL
   */
  constructor(
    { url, token, timeoutMs = 30_000, fetch }: TransportOptions,
    from: 'url' | 'PALIMPSEST_URL' = 'url',
  ) {
    this.base = baseOf(url, from);
    this.isNear = /^(?:localhost|127(?:\.\d+){3}|\[::1\])$/.test(new URL(this.base).hostname);
    if (token !== undefined && (typeof token !== 'string' || !/^[\x21-\x7e]+$/.test(token)))
      throw invalid('token must be printable ASCII without spaces', 'token');
    if (fetch !== undefined && typeof fetch !== 'function')
      throw invalid('fetch must be a function', 'fetch', 'Leave it out for the HTTP of Node.');
    if (!Number.isSafeInteger(timeoutMs) || timeoutMs < 1)
      throw invalid('timeoutMs must be a whole number of milliseconds, at least 1', 'timeoutMs');
    this.token = token;
    this.timeoutMs = timeoutMs;
    this.fetch = fetch ?? nodeFetch;
  }

  /**
   * Status and text of the answer. Throws the failure in the API's answer; `Api.Unavailable` if there is no answer;
   * `Api.Unauthorized` or `Api.Failed` if the answer does not come from the API.
   */
  text(exchange: Exchange): Promise<{ response: Answered; text: string }> {
    return this.repeated(exchange, async () => {
      const { response, signal, arrived } = await this.begin(exchange);
      try {
        return { response, text: await this.connected(signal, () => response.text()) };
      } finally {
        arrived();
      }
    });
  }

  async json<Answer>(exchange: Exchange): Promise<Answer> {
    const { response, text } = await this.text(exchange);
    return response.status === 204 ? (undefined as Answer) : (parsed(text, response) as Answer);
  }

  /** The answer's text as it arrives. The timeout applies to its beginning only. */
  async *stream(exchange: Exchange): AsyncGenerator<string> {
    const { response, signal, arrived } = await this.repeated(exchange, () => this.begin(exchange));
    arrived();
    const decoder = new TextDecoder();
    try {
      for await (const bytes of response.body ?? []) {
        const text = decoder.decode(bytes, { stream: true });
        if (text !== '') yield text;
      }
    } catch (error) {
      throw this.lost(signal, error);
    }
  }

  private async repeated<T>(exchange: Exchange, attempt: () => Promise<T>): Promise<T> {
    const { repeatable = exchange.method === 'GET' } = exchange;
    for (const pause of repeatable ? pauses : []) {
      try {
        return await attempt();
      } catch (error) {
        if (!isFailure(error) || !passing.has(error.type)) throw error;
        if (error.details?.['timedOut'] === true) throw error;
        const asked = error.details?.['retryAfterMs'];
        // A random pause: otherwise all callers that lost the same server return at the same moment.
        await sleep(
          typeof asked === 'number' ? Math.min(asked, longestPauseMs) : pause * (0.5 + Math.random()),
        );
      }
    }
    return attempt();
  }

  /** Resolves to the answer once its headers have arrived. Throws if the answer is a failure. */
  private async begin({ method, path, query = {}, body, headers, waitMs = 0 }: Exchange) {
    const url = new URL(this.base + path);
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, String(value));
    const given = new AbortController();
    const { signal } = given;
    const withinMs = this.timeoutMs + waitMs;
    const timer = setTimeout(
      () => given.abort(this.silent(`timed out after ${withinMs} ms`, true)),
      withinMs,
    );
    const arrived = () => clearTimeout(timer);
    try {
      const response = await this.connected(signal, () =>
        this.fetch(url, {
          method,
          signal,
          headers: {
            accept: 'application/json, */*;q=0.1',
            // To compress costs more time than it saves on the way to another process of this machine.
            ...(this.isNear ? { 'accept-encoding': 'identity' } : {}),
            ...(this.token === undefined ? {} : { authorization: `Bearer ${this.token}` }),
            ...(body === undefined ? {} : { 'content-type': 'application/json' }),
            ...headers,
          },
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        }),
      );
      if (response.ok || response.status === 304) return { response, signal, arrived };
      throw this.failure(response, await this.connected(signal, () => response.text()));
    } catch (error) {
      arrived();
      throw error;
    }
  }

  private async connected<T>(signal: AbortSignal, call: () => Promise<T>): Promise<T> {
    try {
      return await call();
    } catch (error) {
      throw this.lost(signal, error);
    }
  }

  /** A request aborted in the middle of its body rejects with another error than the reason of the abort. */
  private lost({ reason }: AbortSignal, error: unknown): PalimpsestError {
    return isFailure(reason) ? reason : this.silent(reasonOf(error), false, error);
  }

  private silent(reason: string, timedOut: boolean, cause?: unknown): PalimpsestError {
    return new PalimpsestError('Api.Unavailable', `the API at ${this.base} does not answer: ${reason}`, {
      hint: 'Check the URL and that `palimpsest api` runs, then try again; a turn may be sent again under its id.',
      ...(timedOut ? { details: { timedOut } } : {}),
      cause,
    });
  }

  private failure(response: Answered, text: string): PalimpsestError {
    const { status } = response;
    const problem = problemIn(text);
    const retryAfter = Number(response.headers.get('retry-after') ?? NaN);
    if (problem) return errorOf(problem, Number.isFinite(retryAfter) ? retryAfter * 1_000 : undefined);
    if (status === 502 || status === 503 || status === 504)
      return this.silent(`HTTP status ${status} from a proxy or load balancer`, false);
    const what = `${response.url} answers HTTP status ${status}, but not in the form of the API`;
    const hint = 'Is this the URL of `palimpsest api`, and not of a proxy in front of it?';
    return new PalimpsestError(status === 401 || status === 403 ? 'Api.Unauthorized' : 'Api.Failed', what, {
      hint,
      details: { status },
    });
  }
}

function baseOf(url: string, from: string): string {
  const read = typeof url === 'string' && URL.canParse(url) ? new URL(url) : null;
  if (!read || !['http:', 'https:'].includes(read.protocol))
    throw invalid(
      `${from} is not an http(s) URL such as http://127.0.0.1:7280`,
      from,
      'Begin it with http:// or https://, then host and port.',
    );
  if (read.username !== '' || read.password !== '')
    throw invalid(`${from} contains a name or password`, from, 'Give the tenant’s token as `token`.');
  return read.origin + read.pathname.replace(/(?<!\/)\/+$/, '');
}

/**
 * The fields of a `problem+json` body that describe the failure; the other fields repeat them. `failure` is any text, because
 * the API of another version may know more failure types.
 */
type ReadProblem = Pick<Problem, 'detail' | 'path' | 'hint' | 'details' | 'requestId'> & { failure: string };

function problemIn(text: string): ReadProblem | null {
  try {
    const read: unknown = JSON.parse(text);
    return typeof read === 'object' && read !== null && 'failure' in read && 'detail' in read
      ? (read as ReadProblem)
      : null;
  } catch {
    return null;
  }
}

function errorOf(
  { failure, detail, path, hint, details, requestId }: ReadProblem,
  retryAfterMs?: number,
): PalimpsestError {
  const known = isFailureType(failure);
  const more = {
    ...details,
    ...(known ? {} : { failure }),
    ...(passing.has(failure) && retryAfterMs !== undefined ? { retryAfterMs } : {}),
    ...(failure === 'Api.Failed' && requestId !== undefined ? { requestId } : {}),
  };
  return new PalimpsestError(known ? failure : 'Api.Failed', detail, {
    path,
    hint,
    ...(Object.keys(more).length > 0 ? { details: more } : {}),
  });
}

/** Throws `Api.Failed` if the text is not JSON. */
export function parsed(text: string, { url, status }: { url: string; status: number }): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new PalimpsestError('Api.Failed', `${url} answers with text that is not JSON`, {
      hint: 'Is this the URL of `palimpsest api`, and not of a proxy in front of it?',
      details: { status },
      cause,
    });
  }
}

/**
 * `fetch` says only that it failed. The reason is in the error's cause. If the host has several addresses, that cause has only
 * a code and no message.
 */
function reasonOf(error: unknown): string {
  const reason = networkReason(error);
  if (reason !== null) return reason;
  for (let current = error; current instanceof Error; current = current.cause) {
    if (current.cause instanceof Error) continue;
    const code = 'code' in current && typeof current.code === 'string' ? current.code : '';
    return current.message || code || current.name;
  }
  return String(error);
}

/** Number of restarts of a replay that make no progress. */
const mostAttempts = 3;

/** The lines of the log as they arrive. If the connection breaks, the read is repeated and continues at the same line. */
export async function* replayed(transport: Transport, path: string): AsyncGenerator<LoggedMessage> {
  let reached = 0;
  for (let attempt = 1; ; attempt++) {
    try {
      for await (const message of messagesOf(transport, path)) {
        if (message.seq <= reached) continue;
        reached = message.seq;
        attempt = 0;
        yield message;
      }
      return;
    } catch (error) {
      if (!isFailure(error, 'Api.Unavailable') || attempt >= mostAttempts) throw error;
    }
  }
}

type Line = LoggedMessage | { problem: ReadProblem };

async function* messagesOf(transport: Transport, path: string): AsyncGenerator<LoggedMessage> {
  for await (const text of linesOf(transport.stream({ method: 'GET', path }))) {
    const line = parsed(text, { url: path, status: 200 }) as Line;
    if ('problem' in line) throw errorOf(line.problem);
    yield line;
  }
}

/** JSON has no raw line feed, so each one ends a message. */
async function* linesOf(texts: AsyncIterable<string>): AsyncGenerator<string> {
  let begun: string[] = [];
  for await (const text of texts) {
    const [first = '', ...more] = text.split('\n');
    begun.push(first);
    for (const next of more) {
      yield begun.join('');
      begun = [next];
    }
  }
  const rest = begun.join('');
  if (rest !== '') yield rest;
}
