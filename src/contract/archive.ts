import type { ChatMessage, LoggedMessage, Role } from '../conversation/message.js';

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

export interface SearchRequest {
  /** At most 10,000 characters; a substring, or a part in quotation marks, at most 2,000. */
  query: string;
  /**
   * `words` finds messages with any word of the query: those first that hold an identifier as it is written, then by how
   * rare their words are, and which stand side by side as in the query; a word said in the message before or after counts a little. What stands in `"…"` must occur exactly so, case aside.
   * `substring` takes the whole query so, quotation marks included. Left out: by words, and where the deployment has embeddings
   * and nothing stands in `"…"` also by meaning, both rankings as one. @default by words, and by meaning
   */
  mode?: SearchMode;
  role?: Role;
  /** `name` of a message, whatever its case: who speaks, where a role has several speakers. */
  speaker?: string;
  /** Name of a tool: its results, and the messages that call it. */
  tool?: string;
  /** Only messages of this range. Where it is one message, every place in a long text is an own hit. */
  fromSeq?: number;
  throughSeq?: number;
  /**
   * Only what was said then, or stored where nobody told when it was said: a day (`2023-05-07`), a month, a year, in UTC, or an ISO 8601 time. `through` holds all of
   * its day, month or year.
   */
  from?: string;
  through?: string;
  /** Messages behind each hit to answer with it, up to 10: what was replied. @default 0 */
  after?: number;
  /** Hits at most, up to 50. @default 10 */
  limit?: number;
  /** Hits to leave out, as `nextOffset` said. @default 0 */
  offset?: number;
}

export interface SaidBy {
  seq: number;
  role: Role;
  /** The message's `name`: who speaks, where a role has several speakers. */
  speaker: string | null;
  /** When it was said, ISO 8601 in UTC; null where nobody told. */
  at: string | null;
  /** When the message was stored, ISO 8601. */
  storedAt: string;
}

export interface FollowingMessage extends SaidBy {
  /** The beginning of its text in one line, at most 500 characters. */
  text: string;
}

export interface SearchHit extends SaidBy {
  /** Tool of a result; tools that an assistant message calls, separated by commas; null for none. */
  tool: string | null;
  /**
   * Where in the message's text the match begins, in UTF-16 code units: for a string content the same offset that
   * `toolResponse` pages by. A text is content, then calls, then reasoning.
   */
  offset: number;
  /** One line around the match, which stands between `«` and `»`; found by meaning alone: the text that means it, unmarked. */
  snippet: string;
  /** Higher is better, within one answer; substrings are all 1 and ordered newest first. */
  rank: number;
  /** The messages behind the hit, as `after` asked for. */
  following: FollowingMessage[];
}

/** What a search by meaning looked through. */
export interface SearchByMeaning {
  /** Why some of it, or all, was left to words alone: the endpoint failed. Null where it did not. */
  failure: string | null;
  /** Vectors that were compared, and the messages that they are of; null for none. */
  vectors: number;
  fromSeq: number | null;
  throughSeq: number | null;
}

export interface SearchResult {
  /** As served: a query without any letter or digit is looked for as a substring. */
  mode: SearchMode;
  /** Null where only words counted: no embeddings are configured, or the request asked for words or characters. */
  meaning: SearchByMeaning | null;
  hits: SearchHit[];
  /** Where the next page begins; null where there is none. */
  nextOffset: number | null;
}

/** `words`: any of the words, rare ones first, `"several words"` exactly so. `substring`: these characters, whatever their case. */
export type SearchMode = 'words' | 'substring';
