import { createHash } from 'node:crypto';
import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ok, type Reply, type Script } from './model-replies.js';

/**
 * A model endpoint for tests: a real HTTP server on 127.0.0.1 with the shape of OpenAI chat completions, whose answers and
 * faults are scripted. It records every request with a key of its content, so that a test can show how often the same request
 * was paid.
 */
export interface ChatBody {
  model: string;
  messages: { role: string; content: string }[];
  max_tokens?: number;
  max_completion_tokens?: number;
  temperature?: number;
  response_format?: { type: string; json_schema?: { name: string; strict: boolean; schema: object } };
}

export interface RecordedRequest {
  /** From 1, in order of arrival. */
  number: number;
  /** Hash of model, messages and output limit. Requests with the same key are the same request, sent again. */
  key: string;
  body: ChatBody;
  headers: IncomingHttpHeaders;
  /** The client's port, which requests over one connection share. */
  clientPort: number | undefined;
  /** Unix milliseconds of its arrival. */
  at: number;
  /** Status of the answer once it was sent whole; null before that, and for faults. */
  answered: number | null;
  /** The client closed the connection before the answer was sent. */
  aborted: boolean;
}

export interface ModelServer {
  /** Base URL, ending in `/v1`. */
  readonly url: string;
  readonly requests: RecordedRequest[];
  /**
   * Replaces the script. One script answers every further request; of a list, each script answers one request, and `ok()` all
   * requests after these.
   */
  reply(script: Script | Script[]): void;
  /** Number of requests that were neither answered nor given up. */
  inFlight(): number;
  /** Maximum number of requests that were in flight at once. */
  mostInFlight(): number;
  /** Resolves once this many requests have arrived in total. */
  waitForRequests(count: number): Promise<void>;
  /** Resolves once the condition is true; it is checked whenever a request arrives, is answered or is aborted. */
  waitUntil(condition: () => boolean, what: string): Promise<void>;
  /** From now on, answers wait until they are released. */
  hold(): void;
  /** Releases the oldest `count` delayed answers; without a count all of them, and ends the delay. */
  release(count?: number): void;
  /** Content keys that were answered with status 200 more than once. */
  paidTwice(): string[];
  close(): Promise<void>;
}

export interface ModelServerOptions {
  /** The first script, as for `reply`. @default ok() */
  script?: Script | Script[];
  /** Port of the server, for a test that must find it at the same address again. @default a free port */
  port?: number;
  /** Milliseconds after which `waitForRequests` and `waitUntil` fail. @default 90,000 */
  patienceMs?: number;
}

export async function startModelServer(options: ModelServerOptions = {}): Promise<ModelServer> {
  const { script = ok(), port = 0, patienceMs = 90_000 } = options;
  const requests: RecordedRequest[] = [];
  const open = new Set<RecordedRequest>();
  const turnstile = new Turnstile();
  const watchers = new Set<() => void>();
  let once: Script[] = [];
  let always: Script = ok();
  let most = 0;

  const changed = (): void => [...watchers].forEach((look) => look());

  function reply(next: Script | Script[]): void {
    once = Array.isArray(next) ? [...next] : [];
    always = Array.isArray(next) ? ok() : next;
  }

  async function serve(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await readJson(incoming);
    if (incoming.url !== '/v1/chat/completions') {
      response
        .writeHead(404, { 'content-type': 'application/json' })
        .end('{"error":{"message":"no such path"}}');
      return;
    }
    const request: RecordedRequest = {
      number: requests.length + 1,
      key: keyOf(body),
      body,
      headers: incoming.headers,
      clientPort: incoming.socket.remotePort,
      at: Date.now(),
      answered: null,
      aborted: false,
    };
    const gone = new Promise<void>((resolve) => response.once('close', resolve));
    response.once('close', () => {
      if (response.writableFinished) request.answered = response.statusCode;
      else request.aborted ||= open.has(request);
      open.delete(request);
      changed();
    });
    const script = once.shift() ?? always;
    requests.push(request);
    open.add(request);
    most = Math.max(most, open.size);
    changed();
    await turnstile.pass(gone);
    if (response.destroyed) return;
    const said = await script(request);
    if (said.delayMs !== undefined)
      await Promise.race([new Promise((resolve) => setTimeout(resolve, said.delayMs)), gone]);
    if (!response.destroyed) send(said, response, () => open.delete(request));
  }

  async function waitUntil(condition: () => boolean, what: string): Promise<void> {
    if (condition()) return;
    await new Promise<void>((resolve, reject) => {
      const settle = (finish: () => void): void => {
        clearTimeout(patience);
        watchers.delete(look);
        finish();
      };
      const look = (): void => {
        if (condition()) settle(resolve);
      };
      const state = (): string => `${requests.length} requests came, ${open.size} are in flight`;
      const patience = setTimeout(
        () => settle(() => reject(new Error(`Waited in vain for ${what}: ${state()}.`))),
        patienceMs,
      );
      watchers.add(look);
    });
  }

  reply(script);
  const server = createServer((incoming, response) => {
    serve(incoming, response).catch((error: unknown) =>
      response.destroy(error instanceof Error ? error : undefined),
    );
  });
  await new Promise<void>((resolve, reject) =>
    server.once('error', reject).listen(port, '127.0.0.1', resolve),
  );
  const { port: bound } = server.address() as AddressInfo;

  return {
    url: `http://127.0.0.1:${bound}/v1`,
    requests,
    reply,
    inFlight: () => open.size,
    mostInFlight: () => most,
    waitForRequests: (count) => waitUntil(() => requests.length >= count, `${count} requests`),
    waitUntil,
    hold: () => turnstile.close(),
    release: (count) => turnstile.open(count),
    paidTwice() {
      const paid = requests.filter(({ answered }) => answered === 200).map(({ key }) => key);
      return [...new Set(paid.filter((key, index) => paid.indexOf(key) !== index))];
    },
    close: () =>
      new Promise<void>((resolve, reject) => {
        server.close((error) => (error ? reject(error) : resolve()));
        server.closeAllConnections();
      }),
  };
}

/** Lets all requests pass until it is closed; then they wait in order. A disconnected client no longer waits. */
class Turnstile {
  #waiting: Set<() => void> | null = null;

  async pass(gone: Promise<void>): Promise<void> {
    const waiting = this.#waiting;
    if (waiting === null) return;
    await new Promise<void>((resolve) => {
      waiting.add(resolve);
      void gone.then(() => {
        waiting.delete(resolve);
        resolve();
      });
    });
  }

  close(): void {
    this.#waiting ??= new Set();
  }

  open(count = Infinity): void {
    const waiting = this.#waiting ?? new Set();
    for (const pass of [...waiting].slice(0, count)) {
      waiting.delete(pass);
      pass();
    }
    if (count === Infinity) this.#waiting = null;
  }
}

function send(
  { status, headers = {}, body, fault }: Reply,
  response: ServerResponse,
  forget: () => void,
): void {
  if (fault === 'silent') return;
  if (fault === 'drop-before-headers') {
    forget();
    response.destroy();
    return;
  }
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  const type = typeof body === 'string' ? 'text/plain' : 'application/json';
  response.writeHead(status, { 'content-type': type, 'content-length': bytes.length, ...headers });
  if (fault === undefined) {
    response.end(bytes);
    return;
  }
  if (fault === 'drop-mid-body') forget();
  response.write(bytes.subarray(0, bytes.length / 2), () => {
    if (fault === 'drop-mid-body') response.destroy();
  });
}

async function readJson(incoming: IncomingMessage): Promise<ChatBody> {
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece as Buffer);
  return JSON.parse(Buffer.concat(pieces).toString('utf8') || '{}') as ChatBody;
}

function keyOf({ model, messages, max_tokens, max_completion_tokens }: ChatBody): string {
  const content = JSON.stringify([model, messages, max_completion_tokens ?? max_tokens ?? null]);
  return createHash('sha256').update(content).digest('hex').slice(0, 16);
}
