/** The requests that Palimpsest answers for one tenant, and its answers. */
import type { ChatMessage, Json, LoggedMessage } from '../conversation/message.js';
import type {
  ArchivePart,
  ExpandRequest,
  Expansion,
  Page,
  ResponseReference,
  SearchRequest,
  SearchResult,
  ToolResponse,
} from './archive.js';
import type {
  Backfill,
  BackfillEstimate,
  BackfillItemList,
  BackfillItemRequest,
  BackfillRequest,
  EstimateRequest,
  ResizeRequest,
  RetryRequest,
} from './backfills.js';
import type { CompactionOutcome, Forked, ForkRequest, Timeline } from './compactions.js';
import type { ContextShape, SessionContext } from './context.js';
import type { AnthropicSystem, GeminiSystem, NativeMessage } from './native.js';
import type { Pins, PolicyRequest, PolicyVersion, SessionPolicy } from './policies.js';
import type { EraseMessagesRequest, FoundMessages, MessagesErased } from './erasing.js';
import type { Erased, ListRequest, SessionList, Status } from './sessions.js';
import type { ApiToken, CreatedToken, TokenRequest } from './tokens.js';
import type { Synced, SyncRequest } from './sync.js';
import type { AppendedTurn, Turn } from './turns.js';

export interface OfSession {
  session: string;
}

export interface OfJob {
  job: string;
}

export interface OfToken {
  id: string;
}

export type ContextRequest = OfSession & ContextShape & { waitMs?: number };

/**
 * `Message` is the type of one message in the format: a type of an SDK, or the format's default. Without `format`, the context
 * is in the session's own format, and `Message` is the type of a message in that format.
 */
export interface ReadContext {
  <Message = NativeMessage>(
    request: ContextRequest & { format: 'anthropic' },
  ): Promise<SessionContext<Message, AnthropicSystem>>;
  <Message = NativeMessage>(
    request: ContextRequest & { format: 'openai-responses' },
  ): Promise<SessionContext<Message, string>>;
  <Message = NativeMessage>(
    request: ContextRequest & { format: 'gemini' },
  ): Promise<SessionContext<Message, GeminiSystem>>;
  <Message = NativeMessage>(
    request: ContextRequest & { format: 'langchain' | 'ai-sdk' },
  ): Promise<SessionContext<Message, undefined>>;
  <Message = ChatMessage>(request: ContextRequest): Promise<SessionContext<Message>>;
}

/** `Message` and `System` are types of the session's format: see `ReadContext`. */
export type Sync = <Message = ChatMessage, System = Json>(
  request: OfSession & SyncRequest,
) => Promise<Synced<Message, System>>;

/** With `wait: false` the call resolves to null as soon as the session's workflow has accepted the request. @default true */
export type CompactRequest = OfSession & { wait?: boolean };

/** The request of a method. */
export type Asked<Method extends keyof PalimpsestClient> = Parameters<PalimpsestClient[Method]>[0];

/**
 * The methods for an agent platform or an operator, for one tenant. Two classes implement them: `Palimpsest` over PostgreSQL
 * and Temporal, and `HttpPalimpsest` (`palimpsest/http`) over HTTP. Every failure is a `PalimpsestError` with a `type` of
 * docs/failures.md. A call that fails stores nothing, unless its method says so.
 */
export interface PalimpsestClient {
  /**
   * Stores one turn and signals the session's workflow. Returns once the turn is durable; never waits for a compaction. Throws
   * `Input.Invalid`, `Store.TurnConflict`, `Store.StaleAppend`, `Store.Busy`, `Store.Unavailable`; then nothing was stored.
   */
  appendTurn(turn: Turn): Promise<AppendedTurn>;
  /**
   * For a caller that holds the whole list of messages: stores what the session does not have, once, and answers the context for
   * the next request. The list may begin with a context of the session, or be the newest part of the log. Throws
   * `Store.ListEdited` if the list lacks messages of the log, unless `onEdit` says what that means; otherwise as `appendTurn` and
   * `context`. A repeated call stores nothing more. A call that fails may have stored the list, or turns of a list with more than
   * 2,500 new messages: a repeated call stores the rest.
   */
  sync: Sync;
  /**
   * The messages to send to the model now: head, tail and reductions in one read, never longer than the budget. Throws
   * `Store.SessionNotFound`; `Input.TooLarge` if the messages that are not compacted have more than 64 MiB; `Budget.Unreachable`
   * if not even the smallest possible context fits.
   */
  context: ReadContext;
  /**
   * Compacts now, whatever the size, and waits for the outcome. If a compaction is running already, waits for that one.
   * Resolves to null if nothing may be evicted or the result was refused (not smaller, or without a pin). Reads of the context do not wait.
   */
  compact(request: CompactRequest): Promise<CompactionOutcome | null>;
  /**
   * Has a model rewrite, from the archive, the summaries that the extractive fallback wrote while no model answered; evicts
   * nothing. Resolves to null if the fallback summarized no archive part, or if policy or limits allow no model. Throws the model's
   * failure if it does not answer now. The next compaction does the same automatically.
   */
  resummarize(request: CompactRequest): Promise<CompactionOutcome | null>;

  /** Sizes, effective policy and the phase of the session's workflow; `asleep` if none runs. */
  status(request: OfSession): Promise<Status>;
  /**
   * Resolves when the session's workflow has processed every turn and no compaction is running. Throws `Temporal.Unavailable` if
   * this takes longer than `timeoutMs` (default 60,000).
   */
  settled(request: OfSession & { timeoutMs?: number }): Promise<void>;
  sessions(request?: ListRequest): Promise<SessionList>;
  /**
   * Says that no further turns are expected: tool calls without a result count as abandoned. A later turn opens the session
   * again.
   */
  closeSession(request: OfSession): Promise<void>;
  /**
   * Deletes the session and all data stored for it, permanently: in PostgreSQL at once, then its workflow executions in
   * Temporal. If Temporal does not answer, the worker's sweep or a later erasure deletes the executions. The session's forks
   * are separate sessions and stay, unless `forks` is true. Repeat a call that was cut off. Throws `Store.SessionNotFound` if
   * nothing is left of the session.
   */
  erase(request: OfSession & { forks?: boolean }): Promise<Erased>;
  /**
   * Replaces messages by tombstones, permanently, together with everything that was made of them: summaries of every
   * generation, model results, reductions, search rows and vectors. Role, position and links of the messages stay, and the hash
   * of each. `remaining` names the sessions that share the messages and still have them. A repeated call changes nothing more.
   * Throws `Store.SessionNotFound`; `Input.Invalid` for a seq that is not in the log; nothing is erased then.
   */
  eraseMessages(request: OfSession & EraseMessagesRequest): Promise<MessagesErased>;
  /** The messages whose stored form contains a text anywhere. Reads the whole log. */
  findMessages(request: OfSession & { text: string }): Promise<FoundMessages>;
  /** No compaction begins until `resume`. Turns are still stored, and contexts still fit the budget. */
  pause(request: OfSession): Promise<void>;
  resume(request: OfSession): Promise<void>;

  policy(request: OfSession): Promise<SessionPolicy>;
  /** Replaces the session's policy; the next measurement follows it. Throws `Input.Invalid` with the field's path. */
  configure(request: OfSession & PolicyRequest): Promise<PolicyVersion>;
  /** The policy as it was given for this tenant; `{}` and version 0 if none was given. */
  tenantPolicy(): Promise<SessionPolicy>;
  /**
   * Replaces the policy of this client's tenant. From its next use on, each session of the tenant follows this policy in the
   * fields that it does not set itself. `status` names the tenant as their source. Throws `Input.Invalid` with the field's
   * path.
   */
  configureTenant(request: PolicyRequest): Promise<PolicyVersion>;
  /** Pins of the session's own policy; `status` has those of its tenant and deployment. */
  pins(request: OfSession): Promise<Pins>;
  pin(request: OfSession & Pins): Promise<PolicyVersion>;

  /** Every committed compaction, oldest first. */
  compactions(request: OfSession): Promise<CompactionOutcome[]>;
  /** The context's size, turn by turn, with each compaction. */
  timeline(request: OfSession): Promise<Timeline>;
  /** The archive parts, oldest first; with `part`, the evicted originals of that part, checked against their hashes. */
  archive(request: OfSession): Promise<ArchivePart[]>;
  archive(request: OfSession & { part: number }): Promise<LoggedMessage[]>;
  /**
   * Every original in order: the archive parts, then the tail. Throws `Store.Corrupt` at the first hash that does not match.
   */
  replay(request: OfSession): AsyncGenerator<LoggedMessage>;
  /**
   * The file that the session was imported from, in pieces of text: the same JSON or JSON Lines, with the messages that were
   * appended since. For a session that was appended turn by turn, the list of its messages in its own format. The file ends
   * with the last message that the log had when the export began. Originals are exact: nothing is redacted. Throws
   * `Store.Corrupt` if a hash does not match; the pieces before the error are then an incomplete file.
   */
  export(request: OfSession): AsyncGenerator<string>;
  /** Messages of archive and tail that answer a query, best first; see `SearchRequest`. */
  search(request: OfSession & SearchRequest): Promise<SearchResult>;
  /**
   * The original content of a tool result by `callId` (as in the log or in a context), or of any message by `seq`, exact and
   * page by page. Throws `Input.Invalid`, which names similar ids, and `Store.Corrupt`.
   */
  toolResponse(request: OfSession & ResponseReference & Page): Promise<ToolResponse>;
  /** A page of originals, of an archive part or of any range, each checked against its hash. */
  expand(request: OfSession & ExpandRequest): Promise<Expansion>;
  /**
   * The evicted messages as Markdown, with one section `## Summarized at` for each archive part. The text grows only at its end,
   * unless an earlier generation is restored.
   */
  historyLog(request: OfSession): AsyncGenerator<string>;
  /**
   * Commits a new generation with the head of an earlier one; 0 restores the whole log. Nothing is deleted, so another restore
   * can undo it. Throws `Input.Invalid` for a generation that does not exist.
   */
  restore(request: OfSession & { generation: number }): Promise<CompactionOutcome>;
  /**
   * Makes a session `to` with the log and the compactions of this one through `throughSeq`. A repeated call makes no second
   * fork.
   */
  fork(request: OfSession & ForkRequest): Promise<Forked>;

  /** Starts a job. If the same request has already started a job of this name, resolves to that job. */
  startBackfill(request: BackfillRequest): Promise<Backfill>;
  estimateBackfill(request: EstimateRequest): Promise<BackfillEstimate>;
  backfills(): Promise<Backfill[]>;
  backfill(request: OfJob): Promise<Backfill>;
  backfillItems(request: BackfillItemRequest): Promise<BackfillItemList>;
  pauseBackfill(request: OfJob): Promise<Backfill>;
  resumeBackfill(request: OfJob): Promise<Backfill>;
  /** Changes the number of concurrent compactions, from now on. */
  resizeBackfill(request: OfJob & ResizeRequest): Promise<Backfill>;
  /** Lets the compactions in flight finish; no more begin. */
  cancelBackfill(request: OfJob): Promise<Backfill>;
  /** Runs the failed sessions once more; after a cancellation or a spend limit also the skipped ones. */
  retryBackfill(request: OfJob & RetryRequest): Promise<Backfill>;

  /**
   * Makes a token of this client's tenant for the HTTP API. Only this answer contains the token itself. Throws `Input.Invalid`,
   * and over HTTP `Api.Forbidden` for a scope that the caller's own token lacks.
   */
  createToken(request: TokenRequest): Promise<CreatedToken>;
  /** The tenant's tokens in the database, oldest first, including expired and revoked ones. */
  tokens(): Promise<ApiToken[]>;
  /** Ends a token at once, in every process. A repeated call changes nothing. Throws `Store.TokenNotFound`. */
  revokeToken(request: OfToken): Promise<ApiToken>;

  /** Closes the connections. Compactions continue in the workers. */
  close(): Promise<void>;
}
