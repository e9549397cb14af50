/**
 * The context of a session: what the model is sent. A projection of what is stored that is valid for an OpenAI-compatible
 * endpoint at any moment, whatever the log holds: unanswered calls, orphan results, reused ids, empty turns.
 */
import { atOnce, type Steps } from '../../steps.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { ChatMessage, LoggedMessage, MessageMeta, Role } from '../../conversation/message.js';
import { showPlain } from './projection.js';
import { TailView } from './tail-view.js';
import { metaOf } from '../../conversation/validate.js';

/** What stands for everything before the tail: the summary turn, its acknowledgment, and the carried request if there is one (last). */
export interface Head {
  messages: ChatMessage[];
  /** Tokens of each of `messages`. */
  tokens: number[];
  /** Seq of the carried request, null when the head holds none. */
  carriedSeq: number | null;
}

/** A shorter stand-in, inside the context only, for one message or (`omitted`) for a range of messages. The originals stay in the log. */
export interface Reduction {
  fromSeq: number;
  throughSeq: number;
  /** `summary`: a model summarized this message by itself; what was paid for is not made anew. */
  kind: 'tool_result' | 'arguments' | 'message' | 'omitted' | 'summary';
  /**
   * JSON of the stand-in message. Ids in it are replaced by those the context gives to the original. `null` (of kind `omitted`
   * only): nothing stands for the range, the context does not show it at all.
   */
  body: string;
  tokens: number;
}

export interface ContextSource {
  /** The leading system (and developer) messages of the log. */
  system: LoggedMessage[];
  head: Head | null;
  /** The log after the head's `throughSeq`, or after the leading system messages. */
  tail: LoggedMessage[];
  /** In the order in which they were made. A later `omitted` range replaces what it covers. */
  reductions: Reduction[];
  /** Metas of `tail`, in its order, where the caller has them; computed otherwise. */
  metas?: MessageMeta[];
}

export type ViewSource =
  | 'system'
  | 'summarization'
  | 'acknowledgment'
  | 'carried'
  | 'log'
  | 'synthetic'
  | 'orphan'
  | 'reduced'
  | 'omitted'
  | 'media';

/** One message of the context, and where it comes from. */
export interface ViewItem {
  /** First and last seq that this item shows; 0 and 0 for the head and for synthetic results. */
  fromSeq: number;
  throughSeq: number;
  message: ChatMessage;
  tokens: number;
  source: ViewSource;
  /** Items with the same number belong together: the seq of the group's first message; negative for the head. */
  group: number;
  /** Role of the logged message (an orphan result is shown as a user message, yet stays a tool's); otherwise that of `message`. */
  role: Role;
  /** Of a result: the tool that made it, by its call or its own word; null where neither tells, and for everything else. */
  tool: string | null;
}

/**
 * The view in request order: leading system messages, head, tail. In the tail every assistant message with calls is followed directly by one
 * result per call, in call order; results recorded later move up to their call, missing ones are synthetic. Appending messages only adds
 * items at the end, except that a late result replaces its synthetic one.
 */
export function buildView(source: ContextSource, counter: TokenCounter): ViewItem[] {
  return atOnce(viewing(source, counter));
}

/** The same in steps. */
export function* viewing(source: ContextSource, counter: TokenCounter): Steps<ViewItem[]> {
  return [
    ...source.system.filter(({ message }) => !metaOf(message).empty).map(systemItem),
    ...(source.head ? headItems(source.head) : []),
    ...(yield* TailView.items(source, counter)),
  ];
}

function systemItem({ seq, message, tokens }: LoggedMessage): ViewItem {
  const shown = showPlain(message);
  return {
    fromSeq: seq,
    throughSeq: seq,
    message: shown,
    tokens,
    source: 'system',
    group: seq,
    role: message.role,
    tool: null,
  };
}

function headItems({ messages, tokens, carriedSeq }: Head): ViewItem[] {
  return messages.map((message, index) => ({
    fromSeq: 0,
    throughSeq: 0,
    message,
    tokens: tokens[index] ?? 0,
    source:
      carriedSeq !== null && index === messages.length - 1
        ? 'carried'
        : index === 0
          ? 'summarization'
          : 'acknowledgment',
    group: -1 - index,
    role: message.role,
    tool: null,
  }));
}

/** Tokens of a view. */
export function sizeOf(view: readonly ViewItem[]): number {
  return view.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** Tokens of what a view shows of the messages after `seq`. */
export function sizeBeyond(seq: number, view: readonly ViewItem[]): number {
  return sizeOf(view.filter(({ fromSeq }) => fromSeq > seq));
}
