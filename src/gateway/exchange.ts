/** A request with a session: the context goes to the model, and the model's answer to the client. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { callRecoveryTool } from '../contract/recovery-tools.js';
import type { Json } from '../conversation/message.js';
import { isFailure } from '../errors.js';
import { type Fields, isFields, textOr } from '../formats/content.js';
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
import type { Begun } from './session.js';
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

/** Throws `Llm.Unavailable` if the upstream cannot be reached; every answer of the upstream passes on. */
export async function answerRequest(exchange: Exchange): Promise<void> {
  const { begun, bytes, recovery } = exchange;
  // The list has all messages: there is nothing to look for.
  if (begun.messages === null) return pass(exchange, bytes);
  if (recovery) return new Conversation(exchange, begun.messages).run();
  return pass(exchange, bodyOf(exchange, begun.messages));
}

/** Passes the answer on as its bytes come, and keeps a copy. */
async function pass(exchange: Exchange, body: Buffer): Promise<void> {
  const { outgoing, own, protocol, begun, mostAnswerBytes, signal } = exchange;
  const answer = await ask(exchange, body, false);
  if (kindOf(answer) === null) return passOther(exchange, answer, true);
  beginAnswer(outgoing, answer, answerHeaders(answer.rawHeaders), own);
  const reader = new AnswerReader(answer, protocol, mostAnswerBytes);
  for await (const chunk of answer) {
    reader.take(chunk as Buffer);
    await write(outgoing, chunk as Buffer, signal);
  }
  const read = await reader.end();
  if (read?.complete) {
    const { items, usage } = read;
    const messages = Promise.resolve(protocol.again(items, exchange.body));
    begun.answered({ messages, isPart: false, characters: JSON.stringify(items).length, usage });
  }
  outgoing.end();
}

/** Passes an answer on that is none of the model. A request that the provider found too long is repeated with less, if it can be. */
async function passOther(exchange: Exchange, answer: IncomingMessage, canRepeat: boolean): Promise<void> {
  const { outgoing, own, begun, signal } = exchange;
  const { statusCode = 0 } = answer;
  if (statusCode < 400) return passAnswer(answer, outgoing, own);
  const begin = () => {
    if (!outgoing.headersSent) beginAnswer(outgoing, answer, answerHeaders(answer.rawHeaders), own);
  };
  const held: Buffer[] = [];
  let size = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    size += chunk.length;
    held.push(chunk);
    if (size <= mostOfRefusal) continue;
    begin();
    for (const part of held.splice(0)) await write(outgoing, part, signal);
  }
  const bytes = Buffer.concat(held);
  const plain = await decompressedWhole(answer, bytes, mostOfRefusal);
  const { code, type, message } = errorBodyOf(parsed(plain) ?? plain.toString('utf8'));
  if (saysContextOverflow(statusCode, `${code} ${type} ${message}`)) {
    // The next request may follow at once.
    begun.tooLong();
    const shorter = canRepeat && !outgoing.headersSent ? await begun.shorter() : null;
    if (shorter) return answerRequest({ ...exchange, begun: shorter });
  }
  begin();
  outgoing.end(bytes);
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
  /** The body of an answer that is no stream, as it came, and its value. */
  bytes: Buffer;
  body: Fields;
}

/** An answer in which the model may call recovery tools, so that it may take several requests. */
class Conversation {
  readonly #exchange: Exchange;
  readonly #tools: Json[];
  readonly #editor: StreamEditor;
  #context: readonly Json[];
  /** What the model has said since, and the results of its calls. */
  #said: Json[] = [];
  #contextTokens: number;
  #usage: { first: UsageReport | null; sum: Json } = { first: null, sum: null };

  constructor(exchange: Exchange, context: readonly Json[]) {
    const { protocol, body, begun } = exchange;
    this.#exchange = exchange;
    this.#context = context;
    this.#contextTokens = begun.tokens;
    this.#tools = [...listOf(body.tools), ...protocol.tools];
    this.#editor = protocol.editor(isRecoveryTool);
  }

  async run(): Promise<void> {
    const { outgoing, begun } = this.#exchange;
    for (let number = 1; ; number++) {
      const isLast = number === 2 * mostRounds;
      const head = await this.#ask(isLast);
      const kind = kindOf(head);
      if (kind === null || (outgoing.headersSent && kind === 'json')) {
        if (!outgoing.headersSent) return passOther(this.#exchange, head, number === 1);
        const failure = await failureIn(head);
        if (saysContextOverflow(head.statusCode ?? 0, `${failure.type} ${failure.message}`)) begun.tooLong();
        return this.#fail(failure);
      }
      const round = kind === 'stream' ? await this.#readStream(head) : await this.#readWhole(head);
      if (round === null) return;
      const { said } = round;
      if (number === 1) this.#usage.first = said.usage;
      const ours = said.calls.filter(({ name }) => isRecoveryTool(name));
      const goesOn = said.complete && ours.length > 0 && ours.length === said.calls.length;
      if (!goesOn || isLast) return this.#end(round, ours);
      await this.#goOn(round, ours, number);
    }
  }

  /** The last request of an answer leaves the model no choice but to answer. */
  async #ask(isLast: boolean): Promise<IncomingMessage> {
    const offered = { tools: this.#tools };
    const fields = isLast ? this.#exchange.protocol.withoutCalls(offered) : offered;
    const body = bodyOf(this.#exchange, [...this.#context, ...this.#said], fields);
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
    return { kind: 'stream', head, said: { ...said, complete }, bytes: Buffer.alloc(0), body: {} };
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
    const value = parsed(await decompressedWhole(head, bytes, mostAnswerBytes));
    const body = isFields(value) ? value : {};
    this.#usage.sum = sumOfUsage(this.#usage.sum, body.usage ?? null);
    return { kind: 'json', head, said: protocol.answer(body), bytes, body };
  }

  /** Answers our calls, for the next request of this answer. */
  async #goOn({ kind, said }: Round, ours: readonly Call[], number: number): Promise<void> {
    const { protocol, body } = this.#exchange;
    const before = [...this.#said, ...protocol.again(said.items, body)];
    let found =
      number > mostRounds ? ours.map((call) => ({ call, content: noMore })) : await this.#results(ours);
    this.#said = [...before, ...protocol.results(found)];
    for (let step = 1; !(await this.#makeRoom()); step++) {
      const shorter = step > mostShortenings ? null : await this.#shorter(found);
      found = shorter ?? ours.map((call) => ({ call, content: noRoom }));
      this.#said = [...before, ...protocol.results(found)];
      if (shorter === null) break;
    }
    if (kind === 'stream') this.#editor.goOn();
  }

  #results(calls: readonly Call[]): Promise<Result[]> {
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
    const { client, begun } = this.#exchange;
    return begun
      .as('heavy', () => callRecoveryTool(client, begun.session, name, given))
      .catch((error: unknown) => {
        if (isFailure(error)) return unreadable;
        throw error;
      });
  }

  /** Shortens the context, so that what was said since has room. Returns false if it has none. */
  async #makeRoom(): Promise<boolean> {
    const { begun } = this.#exchange;
    const said = begun.count(this.#said);
    if (this.#contextTokens + said <= begun.limit) return true;
    const room = begun.limit - said;
    const budget = room > 2 * budgetStep ? Math.floor(room / budgetStep) * budgetStep : room;
    if (budget < 1) return false;
    try {
      this.#context = await begun.within(budget);
      this.#contextTokens = budget;
      return true;
    } catch (error) {
      if (isFailure(error)) return false;
      throw error;
    }
  }

  /** Keeps the answer before the client has its end: the next request may follow at once. */
  async #end({ kind, head, said, bytes, body }: Round, ours: readonly Call[]): Promise<void> {
    const { protocol, begun, outgoing, own, signal } = this.#exchange;
    const isPart = this.#said.length > 0 || ours.length > 0;
    if (said.complete) {
      const characters = JSON.stringify([...this.#said, ...said.items]).length;
      const messages = this.#whole(said, ours);
      begun.answered({ messages, isPart, characters, usage: this.#usage.first });
    }
    if (kind === 'stream') {
      for (const text of this.#editor.end()) await write(outgoing, text, signal);
      return void outgoing.end();
    }
    if (!isPart) {
      beginAnswer(outgoing, head, answerHeaders(head.rawHeaders), own);
      return void outgoing.end(bytes);
    }
    const shown = JSON.stringify(protocol.shown(body, isRecoveryTool, this.#usage.sum));
    const length = { 'Content-Length': String(Buffer.byteLength(shown)) };
    beginAnswer(outgoing, head, answerHeaders(head.rawHeaders, { read: true }), { ...own, ...length });
    outgoing.end(shown);
  }

  /** The answer with the results of those calls that the client does not see. */
  async #whole({ items }: Answer, ours: readonly Call[]): Promise<Json[]> {
    const { protocol, body } = this.#exchange;
    const said = [...this.#said, ...protocol.again(items, body)];
    return ours.length === 0 ? said : [...said, ...protocol.results(await this.#results(ours))];
  }

  /** Tells the client that the rest of its answer does not come. */
  async #fail({ type, message }: { type: string; message: string }): Promise<void> {
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

/** The provider's error, of the form that OpenAI and Anthropic share. */
async function failureIn(answer: IncomingMessage): Promise<{ type: string; message: string }> {
  const chunks: Buffer[] = [];
  let left = mostOfRefusal;
  for await (const chunk of plainBytes(answer)) {
    left -= chunk.length;
    if (left < 0) break;
    chunks.push(chunk);
  }
  const body = parsed(Buffer.concat(chunks));
  const error = isFields(body) && isFields(body.error) ? body.error : {};
  return {
    type: textOr(error.type, 'api_error'),
    message: textOr(error.message, `The provider answered with status ${answer.statusCode}.`),
  };
}
