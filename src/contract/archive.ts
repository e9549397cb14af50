import type { ChatMessage, LoggedMessage } from '../conversation/message.js';

/** The evicted range of one compaction. */
export interface ArchivePart {
  part: number;
  generation: number;
  fromSeq: number;
  throughSeq: number;
  messages: number;
  tokens: number;
  /** Bytes of the bodies in UTF-8. */
  bytes: number;
  /** Over the 32-byte sha256 of each message, in order. */
  sha256: string;
  createdAt: Date;
}

export interface ExpandRequest {
  /** Archive part; where left out, any range of the log. */
  part?: number;
  /** First message. @default the first of the part, or of the log */
  fromSeq?: number;
  /** Messages at most, up to 1,000. @default 50 */
  limit?: number;
  /** UTF-16 code units of the messages' JSON at most; a first message that is longer comes alone. @default 100,000 */
  maxCharacters?: number;
}

export interface Expansion {
  part: number | null;
  /** Originals in order, each checked against its hash. */
  messages: LoggedMessage[];
  /** Where the next page begins; null at the end of the part, or of the log. */
  nextSeq: number | null;
}

export interface Page {
  /** UTF-16 code units to leave out. @default 0 */
  offset?: number;
  /** UTF-16 code units at most; one more where a surrogate pair would not fit. @default 20,000 */
  limit?: number;
}

/** A result by its call id, as the log or as the context shows it; or any message by its seq. */
export type ResponseReference = { callId: string; seq?: undefined } | { seq: number; callId?: undefined };

export interface ToolResponse {
  seq: number;
  /** As the log has it; null for a message that answers no call. */
  callId: string | null;
  tool: string | null;
  role: ChatMessage['role'];
  /** Archive part that holds the message; null while it is in the tail. */
  part: number | null;
  /**
   * What `content` is a page of. `text`: the content, a string, exactly. `parts`: the JSON of its parts. `message`: the
   * JSON of the whole message, where it makes calls or has no content.
   */
  format: 'text' | 'parts' | 'message';
  content: string;
  /** Where `content` begins and ends, in UTF-16 code units. */
  offset: number;
  totalCharacters: number;
  /** Where the next page begins; null at the end. */
  nextOffset: number | null;
  /** Every result with this call id, newest first: ids are reused. */
  occurrences: Occurrence[];
}

/** One result with the id. */
interface Occurrence {
  seq: number;
  /** Archive part that holds it; null while it is in the tail. */
  part: number | null;
}
