import type { ChatMessage, MessageMeta, LoggedMessage, Role } from '../../conversation/message.js';

/** What stands for everything before the tail: the summary turn, its acknowledgment, and the carried request if there is one (last). */
export interface Head {
  messages: ChatMessage[];
  /** Tokens of each of `messages`. */
  tokens: number[];
  /** Seq of the carried request, null when the head holds none. */
  carriedSeq: number | null;
  /** Of the summary turn; null or absent where an earlier version wrote it. */
  layout?: HeadLayout | null;
}

/**
 * What a stretch of the summary turn is: entries of the journal with their headings, exact values behind them, state, pins;
 * snapshot and ledger of the other modes; and what frames them.
 */
export const headParts = ['note', 'journal', 'exact', 'pins', 'state', 'snapshot', 'ledger'] as const;
export type HeadPart = (typeof headParts)[number];

export interface HeadStretch {
  part: HeadPart;
  characters: number;
}

export interface HeadLayout {
  /** All of the turn's text, in order. */
  stretches: HeadStretch[];
  /** They are the turn's. */
  tokens: Record<HeadPart, number>;
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
  /** Where several were made one, for models whose roles alternate: what each was. */
  joined?: readonly Pick<ViewItem, 'source' | 'tokens'>[];
}
