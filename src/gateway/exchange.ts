/** A request with a session: the context goes to the model, and the model's answer to the client. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { callRecoveryTool } from '../contract/recovery-tools.js';
import type { Json } from '../conversation/message.js';
import { isFailure } from '../errors.js';
import { type Fields, isFields } from '../formats/content.js';
import { errorBodyOf, saysContextOverflow } from '../llm/refusal.js';
import type { UsageReport } from '../tokens/reported-usage.js';
import { withFields } from './fields.js';
import {
  answerHeaders,
  answerTo,
  beginAnswer,
  decompressor,
  type Forwarder,
  passAnswer,
  requestHeaders,
  write,
} from './forward.js';
import type { Answer, Call, Protocol, ReadRequest, StreamEditor } from './protocols/protocol.js';
import { isRecoveryTool, listOf, sumOfUsage } from './protocols/tools.js';
import { AnswerReader, kindOf, parsed } from './reader.js';
import type { Begun, Shortened } from './session.js';
import type { GatewayClient } from './settings.js';
import { EventSplitter, jsonIn, type SseEvent } from './sse.js';
import type { Target } from './upstreams.js';

/** Requests of the model to its archive in one answer. Later ones are answered with an error; twice as many are the last. */
const mostRounds = 10;
/** Number of times that results which are too long are read again, with half of what they had. */
const mostShortenings = 8;
const budgetStep = 1_024;
/** Bytes of a provider's error that are read. */
const mostOfRefusal = 64 * 1024;

export interface Exchange {
  forwarder: Forwarder;
  target: Target;
  protocol: Protocol;
  incoming: IncomingMessage;
  outgoing: ServerResponse;
  /** The request as it came, and its value. */
  bytes: Buffer;
  body: Fields;
  read: ReadRequest;
  client: GatewayClient;
  begun: Begun;
  /** Whether recovery tools may be offered. */
  recovery: boolean;
  /** Headers for the client. */
  own: Readonly<Record<string, string>>;
  signal: AbortSignal;
  mostAnswerBytes: number;
  /** Called for every call of a recovery tool. */
  recovered: (tool: string) => void;
}

/**
 * Throws `Llm.Unavailable` if the upstream cannot be reached; every answer of the upstream passes on. `canRepeat`: whether the
 * request may be repeated with less, if the provider finds it too long.
 */
export async function answerRequest(exchange: Exchange, canRepeat = true): Promise<void> {
  const { begun, bytes, recovery } = exchange;
  const { messages } = begun;
  // The list has all messages: there is nothing to look for.
  if (messages === null) return pass(exchange, bytes, canRepeat);
  if (recovery) return new Conversation(exchange, { ...begun, messages }).run(canRepeat);
  return pass(exchange, bodyOf(exchange, messages), canRepeat);
}

/** Passes the answer on as its bytes come, and keeps a copy. */
async function pass(exchange: Exchange, body: Buffer, canRepeat: boolean): Promise<void> {
  const { outgoing, own, protocol, begun, mostAnswerBytes, signal } = exchange;
  const answer = await ask(exchange, body, false);
  if (kindOf(answer) === null) {
    if (!isRefusal(answer)) return passAnswer(answer, outgoing, own);
    const refusal = await refusalIn(answer);
    const most = refusal.isTooLong ? begun.tooLong(begun.tokens) : null;
    const shorter = canRepeat && most !== null ? await begun.within(most) : null;
    if (shorter) return answerRequest({ ...exchange, begun: shorter }, false);
    return passRefusal(exchange, refusal);
  }
  beginAnswer(outgoing, answer, answerHeaders(answer.rawHeaders), own);
  const reader = new AnswerReader(answer, protocol, mostAnswerBytes);
  const canBeNamed = protocol.canBeNamed(exchange.body);
  let isKept = false;
  const keep = async (said: Answer | null): Promise<void> => {
    if (isKept || !said?.complete) return;
    isKept = true;
    const { items, usage } = said;
    const messages = Promise.resolve(protocol.again(items, exchange.body));
    const characters = JSON.stringify(items).length;
    await begun.answered({ messages, isPart: false, characters, usage, canBeNamed });
  };
  for await (const chunk of answer) {
    await reader.take(chunk as Buffer);
    // The client can name the answer as soon as it has this chunk.
    if (canBeNamed) await keep(reader.answer());
    await write(outgoing, chunk as Buffer, signal);
  }
  await keep(await reader.end());
  outgoing.end();
}

/** An answer that is none of the model. */
interface Refusal {
  head: IncomingMessage;
  /** Its beginning, as it came. */
  bytes: Buffer;
  type: string;
  message: string;
  /** Whether a shorter request would have been answered. */
  isTooLong: boolean;
}

const isRefusal = ({ statusCode = 0 }: IncomingMessage): boolean => statusCode >= 400;

async function refusalIn(head: IncomingMessage): Promise<Refusal> {
  const chunks: Buffer[] = [];
  let size = 0;
  // The rest can still be passed on.
  for await (const chunk of head.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > mostOfRefusal) break;
  }
  const bytes = Buffer.concat(chunks);
  const plain = await decompressedWhole(head, bytes, mostOfRefusal);
  const { code, type, message } = errorBodyOf(parsed(plain) ?? plain.toString('utf8'));
  const { statusCode = 0 } = head;
  return {
    ...{ head, bytes, type: type || 'api_error' },
    message: message || `The provider answered with status ${statusCode}.`,
    isTooLong: saysContextOverflow(statusCode, `${code} ${type} ${message}`),
  };
}

async function passRefusal({ outgoing, own, signal }: Exchange, { head, bytes }: Refusal): Promise<void> {
  beginAnswer(outgoing, head, answerHeaders(head.rawHeaders), own);
  await write(outgoing, bytes, signal);
  for await (const chunk of head as AsyncIterable<Buffer>) await write(outgoing, chunk, signal);
  outgoing.end();
}

async function ask(
  { forwarder, target, incoming, signal }: Exchange,
  body: Buffer,
  plain: boolean,
): Promise<IncomingMessage> {
  const { key } = target.upstream;
  const headers = requestHeaders(incoming.rawHeaders, { key, plain, length: body.length });
  const request = forwarder.open(target, 'POST', headers, signal);
  request.end(body);
  return answerTo(request, target.upstream);
}

/** The request with the context in place of its list; everything else keeps its bytes. */
function bodyOf(
  { bytes, protocol, read: { leading, trailing } }: Exchange,
  messages: readonly Json[],
  others: Fields = {},
): Buffer {
  const list = [...leading, ...messages, ...trailing];
  const fields = { [protocol.field]: list, ...others };
  return Buffer.from(withFields(bytes.toString('utf8'), fields));
}

/** A call of ours, and its content for the model. */
interface Result {
  call: Call;
  content: string;
}

/** One answer of the upstream, as it was read. */
interface Round {
  kind: 'stream' | 'json';
  head: IncomingMessage;
  said: Answer;
  /** The body of an answer that is no stream: as it came, its text, and its value. */
  bytes: Buffer;
  text: string;
  body: Fields;
}

/** An answer in which the model may call recovery tools, so that it may take several requests. */
class Conversation {
  readonly #exchange: Exchange;
  readonly #tools: Json[];
  readonly #editor: StreamEditor;
  /** A call that the request did not offer is none of ours, and passes. */
  readonly #isOurs = (name: string): boolean => this.#offers && isRecoveryTool(name);
  #offers = true;
  #begun: Shortened;
  /** Tokens of the messages of a request, at most. */
  #limit: number;
  /** What the model has said since, with the results of its calls except the newest ones. */
  #said: Json[] = [];
  #results: Result[] = [];
  /** The first request, and what the provider reports of it. */
  #first: { begun: Begun; usage: UsageReport | null } | null = null;
  #usage: Json = null;

  constructor(exchange: Exchange, begun: Shortened) {
    const { protocol, body } = exchange;
    this.#exchange = exchange;
    this.#begun = begun;
    this.#limit = begun.limit;
    this.#tools = [...listOf(body.tools), ...protocol.tools];
    this.#editor = protocol.editor(this.#isOurs);
  }

  /** `canRepeat`: whether the first request may be repeated with less. */
  async run(canRepeat: boolean): Promise<void> {
    for (let number = 1; ; number++) {
      this.#offers = number < 2 * mostRounds;
      const head = await this.#ask(canRepeat || number > 1);
      if (head === null) return;
      const round = kindOf(head) === 'stream' ? await this.#readStream(head) : await this.#readWhole(head);
      if (round === null) return;
      const { said } = round;
      this.#first ??= { begun: this.#begun, usage: said.usage };
      const ours = said.calls.filter(({ name }) => this.#isOurs(name));
      const goesOn = said.complete && ours.length > 0 && ours.length === said.calls.length;
      if (!goesOn) return this.#end(round, ours);
      await this.#goOn(round, ours, number);
    }
  }

  /** What goes to the provider after the context. */
  get #since(): Json[] {
    const { protocol } = this.#exchange;
    return this.#results.length === 0 ? this.#said : [...this.#said, ...protocol.results(this.#results)];
  }

  /** Null if the model did not answer: the client then has what the provider said instead. */
  async #ask(canRepeat: boolean): Promise<IncomingMessage | null> {
    const { outgoing, own } = this.#exchange;
    const head = await this.#send();
    const kind = kindOf(head);
    if (kind === 'stream' || (kind === 'json' && !outgoing.headersSent)) return head;
    if (!outgoing.headersSent && !isRefusal(head)) {
      await passAnswer(head, outgoing, own);
      return null;
    }
    const refusal = await refusalIn(head);
    if (refusal.isTooLong) {
      this.#limit = this.#begun.tooLong(this.#begun.tokens + this.#begun.count(this.#since));
      // Nothing of this answer has reached the client yet.
      if (canRepeat && (await this.#makeRoom())) return this.#ask(false);
    }
    if (outgoing.headersSent) await this.#fail(refusal);
    else await passRefusal(this.#exchange, refusal);
    return null;
  }

  /** The last request of an answer leaves the model no choice but to answer. */
  async #send(): Promise<IncomingMessage> {
    const offered = { tools: this.#tools };
    const fields = this.#offers ? offered : this.#exchange.protocol.withoutCalls(offered);
    const body = bodyOf(this.#exchange, [...this.#begun.messages, ...this.#since], fields);
    try {
      return await ask(this.#exchange, body, true);
    } catch (error) {
      if (!this.#exchange.outgoing.headersSent || !isFailure(error)) throw error;
      await this.#fail({ type: error.type, message: error.message });
      throw error;
    }
  }

  async #readStream(head: IncomingMessage): Promise<Round> {
    const { protocol, outgoing, own, signal, mostAnswerBytes } = this.#exchange;
    if (!outgoing.headersSent)
      beginAnswer(outgoing, head, answerHeaders(head.rawHeaders, { read: true }), own);
    const collector = protocol.collector();
    const splitter = new EventSplitter(mostAnswerBytes);
    let left = mostAnswerBytes;
    const pass = async (event: SseEvent) => {
      left -= event.text.length;
      const data = jsonIn(event);
      if (isFields(data) && left >= 0) collector.take(data);
      for (const text of this.#editor.edit(event)) await write(outgoing, text, signal);
    };
    for await (const bytes of plainBytes(head)) for (const event of splitter.take(bytes)) await pass(event);
    const last = splitter.end();
    if (last) await pass(last);
    const said = collector.answer();
    const complete = said.complete && left >= 0;
    return { kind: 'stream', head, said: { ...said, complete }, bytes: Buffer.alloc(0), text: '', body: {} };
  }

  /** Null if the answer was too long to be read, and has passed on as it came. */
  async #readWhole(head: IncomingMessage): Promise<Round | null> {
    const { protocol, outgoing, own, signal, mostAnswerBytes } = this.#exchange;
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of head as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      size += chunk.length;
      if (size <= mostAnswerBytes) continue;
      if (!outgoing.headersSent) beginAnswer(outgoing, head, answerHeaders(head.rawHeaders), own);
      for (const part of chunks.splice(0)) await write(outgoing, part, signal);
    }
    const bytes = Buffer.concat(chunks);
    if (outgoing.headersSent) {
      outgoing.end(bytes);
      return null;
    }
    const plain = await decompressedWhole(head, bytes, mostAnswerBytes);
    const value = parsed(plain);
    const body = isFields(value) ? value : {};
    this.#usage = sumOfUsage(this.#usage, body.usage ?? null);
    return { kind: 'json', head, said: protocol.answer(body), bytes, text: plain.toString('utf8'), body };
  }

  /** Answers our calls, for the next request of this answer. */
  async #goOn({ kind, said }: Round, ours: readonly Call[], number: number): Promise<void> {
    const { protocol, body } = this.#exchange;
    this.#said = [...this.#since, ...protocol.again(said.items, body)];
    this.#results =
      number > mostRounds ? ours.map((call) => ({ call, content: noMore })) : await this.#answersTo(ours);
    await this.#makeRoom();
    if (kind === 'stream') this.#editor.goOn();
  }

  #answersTo(calls: readonly Call[]): Promise<Result[]> {
    return Promise.all(
      calls.map(async (call) => {
        this.#exchange.recovered(call.name);
        return { call, content: await this.#answerTo(call) };
      }),
    );
  }

  /** The results with half of what they had, each with the place at which it goes on. Null if none can be shorter. */
  async #shorter(results: readonly Result[]): Promise<Result[] | null> {
    const halves = results.map(({ call, content }) => halfOf(call, content));
    if (halves.every((half) => half === null)) return null;
    return Promise.all(
      results.map(async ({ call, content }, index) => {
        const half = halves[index];
        return { call, content: half ? await this.#answerTo(half) : content };
      }),
    );
  }

  #answerTo({ name, arguments: given }: Call): Promise<string> {
    const { client } = this.#exchange;
    const begun = this.#begun;
    return begun
      .as('heavy', () => callRecoveryTool(client, begun.session, name, given))
      .catch((error: unknown) => {
        if (isFailure(error)) return unreadable;
        throw error;
      });
  }

  /** Shortens the context, then the newest results. Returns false if the next request has too much all the same. */
  async #makeRoom(): Promise<boolean> {
    for (let step = 0; ; step++) {
      if (await this.#shortenContext()) return true;
      if (this.#results.every(({ content }) => content === noRoom)) return false;
      const shorter = step < mostShortenings ? await this.#shorter(this.#results) : null;
      this.#results = shorter ?? this.#results.map(({ call }) => ({ call, content: noRoom }));
    }
  }

  /** Shortens the context, so that what was said since has room. Returns false if it has none. */
  async #shortenContext(): Promise<boolean> {
    const room = this.#limit - this.#begun.count(this.#since);
    if (this.#begun.tokens <= room) return true;
    const budget = room > 2 * budgetStep ? Math.floor(room / budgetStep) * budgetStep : room;
    const shorter = budget < 1 ? null : await this.#begun.within(budget);
    if (shorter) this.#begun = shorter;
    return shorter !== null;
  }

  /** Keeps the answer before the client has its end: the next request may follow at once. */
  async #end({ kind, head, said, bytes, text, body }: Round, ours: readonly Call[]): Promise<void> {
    const { protocol, outgoing, own, signal } = this.#exchange;
    const isPart = this.#said.length > 0 || ours.length > 0;
    if (said.complete && this.#first) {
      const { begun, usage } = this.#first;
      const characters = JSON.stringify([...this.#since, ...said.items]).length;
      const canBeNamed = protocol.canBeNamed(this.#exchange.body);
      await begun.answered({ messages: this.#whole(said, ours), isPart, characters, usage, canBeNamed });
    }
    if (kind === 'stream') {
      for (const text of this.#editor.end()) await write(outgoing, text, signal);
      return void outgoing.end();
    }
    const shown = isPart
      ? JSON.stringify(protocol.shown(body, this.#isOurs, this.#usage))
      : protocol.withoutTools(text, body, this.#isOurs);
    if (shown === text) {
      beginAnswer(outgoing, head, answerHeaders(head.rawHeaders), own);
      return void outgoing.end(bytes);
    }
    const length = { 'Content-Length': String(Buffer.byteLength(shown)) };
    beginAnswer(outgoing, head, answerHeaders(head.rawHeaders, { read: true }), { ...own, ...length });
    outgoing.end(shown);
  }

  /** The answer with the results of those calls that the client does not see. */
  async #whole({ items }: Answer, ours: readonly Call[]): Promise<Json[]> {
    const { protocol, body } = this.#exchange;
    const said = [...this.#since, ...protocol.again(items, body)];
    return ours.length === 0 ? said : [...said, ...protocol.results(await this.#answersTo(ours))];
  }

  /** Tells the client that the rest of its answer does not come. */
  async #fail({ type, message }: Pick<Refusal, 'type' | 'message'>): Promise<void> {
    const { protocol, outgoing, signal } = this.#exchange;
    await write(outgoing, protocol.failureEvent(type, message), signal);
    outgoing.end();
  }
}

const failed = (error: string, hint: string): string => JSON.stringify({ error, hint });
const noMore = failed('There were too many calls in this answer.', 'Answer with what you have.');
const noRoom = failed(
  'The result is too long for the context.',
  'Ask for less, or answer with what you have.',
);
const unreadable = failed('The history cannot be read now.', 'Answer with what you have.');

/** A call that asks for half of what its result has; null if the result has nothing to divide. */
function halfOf(call: Call, content: string): Call | null {
  const given = typeof call.arguments === 'string' ? parsed(Buffer.from(call.arguments)) : call.arguments;
  const result = parsed(Buffer.from(content));
  if (!isFields(result)) return null;
  // Characters of a text, messages, or hits.
  const shown = result.content ?? result.messages ?? result.hits;
  const limit = typeof shown === 'string' || Array.isArray(shown) ? Math.floor(shown.length / 2) : 0;
  return limit < 1 ? null : { ...call, arguments: { ...(isFields(given) ? given : {}), limit } };
}

async function* plainBytes(answer: IncomingMessage): AsyncGenerator<Buffer> {
  const decompress = decompressor(answer);
  if (decompress === null) yield* answer as AsyncIterable<Buffer>;
  else {
    // Only one of both is read, and it fails for both.
    answer.once('error', (error) => decompress.destroy(error));
    yield* answer.pipe(decompress) as AsyncIterable<Buffer>;
  }
}

async function decompressedWhole(answer: IncomingMessage, bytes: Buffer, most: number): Promise<Buffer> {
  const decompress = decompressor(answer);
  if (decompress === null) return bytes;
  decompress.on('error', () => undefined).end(bytes);
  const chunks: Buffer[] = [];
  let left = most;
  try {
    for await (const chunk of decompress as AsyncIterable<Buffer>) {
      left -= chunk.length;
      if (left < 0) break;
      chunks.push(chunk);
    }
  } catch {
    // Its value is then unknown, and it passes on as it came.
  }
  return Buffer.concat(chunks);
}
