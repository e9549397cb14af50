/** What the gateway has to know about a provider's interface: its requests, its answers and its streams. */
import type { Json } from '../../conversation/message.js';
import type { Fields } from '../../formats/content.js';
import type { UsageReport } from '../../tokens/reported-usage.js';
import type { SseEvent } from '../sse.js';

/** The parts of a request that matter for a session. */
export interface ReadRequest {
  /** Instructions before the conversation, which pass as they are. */
  leading: Json[];
  /** The conversation. */
  list: Json[];
  /** The beginning of the answer, which the model is to continue; it passes as it is. */
  trailing: Json[];
  /** Everything besides the conversation that takes tokens of the window. */
  beside: Json[];
  model: string | undefined;
  /** Maximum number of tokens of the answer, if the request names it. */
  maxOutput: number | undefined;
  /** Field by which the provider adds messages that the request does not have. */
  heldByProvider: string | null;
}

/** A call of a tool by the model. */
export interface Call {
  id: string;
  name: string;
  /** JSON text, or its value. */
  arguments: Json;
}

/** An answer of the model. */
export interface Answer {
  /** The answer as items of the next request. */
  items: Json[];
  calls: Call[];
  usage: UsageReport | null;
  /** Whether the answer came to its end, and is a single one. */
  complete: boolean;
}

/** Assembles an answer from the events of its stream. */
export interface Collector {
  take(event: Fields): void;
  answer(): Answer;
}

/**
 * Passes the events of one answer to the client. The answer may come in several streams: the model calls recovery tools, and goes
 * on after their results. The client sees one stream, without these calls.
 */
export interface StreamEditor {
  /** Returns what the client gets now. The end of a stream is held back. */
  edit(event: SseEvent): string[];
  /** A further stream follows; forgets the end that was held back. */
  goOn(): void;
  /** Returns the end of the answer. */
  end(): string[];
}

/** The name of a tool that the gateway answers. */
export type IsOurs = (name: string) => boolean;

export interface Protocol {
  name: 'chat' | 'responses' | 'messages';
  format: 'openai-chat' | 'openai-responses' | 'anthropic';
  /** Field of the request with the conversation. */
  field: 'messages' | 'input';
  /** Throws `Input.Invalid` if the request has no list. */
  read(body: Fields): ReadRequest;
  /** Returns the recovery tools in the form of this interface. */
  tools: readonly Fields[];
  /** Returns whether recovery tools may be added to the request. */
  takesTools(body: Fields): boolean;
  /** Returns the fields of a request, of which `offered` has the tools with ours, in which the model cannot call ours. */
  withoutCalls(offered: Fields): Fields;
  answer(body: Fields): Answer;
  /** Returns the answer that the client sees: without our calls, and with the usage of all requests. */
  shown(body: Fields, isOurs: IsOurs, usage: Json): Fields;
  /** Returns the text of an answer without our tools, which some interfaces repeat. All else keeps its bytes. */
  withoutTools(text: string, body: Fields, isOurs: IsOurs): string;
  /** Returns whether an item of a request was said by the model. */
  isAnswer: (item: Json) => boolean;
  /** Returns whether the provider keeps the items of the answer, so that the client can name them by their ids. */
  canBeNamed(body: Fields): boolean;
  /** Returns the items of an answer as the next request may have them. */
  again(items: readonly Json[], body: Fields): Json[];
  /** Returns the items with the results of calls. */
  results(results: readonly { call: Call; content: string }[]): Json[];
  collector(): Collector;
  editor(isOurs: IsOurs): StreamEditor;
  /** The body of a refusal. */
  failure(type: string, message: string): Json;
  /** The event of a stream that ends with an error. */
  failureEvent(type: string, message: string): string;
}
