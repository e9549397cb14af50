/** What can be asked of Palimpsest for one tenant, and what it answers. */
import type { ChatMessage, LoggedMessage } from '../conversation/message.js';
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
import type { Erased, ListRequest, SessionList, Status } from './sessions.js';
import type { AppendedTurn, Turn } from './turns.js';

export interface OfSession {
  session: string;
}

export interface OfJob {
  job: string;
}

export type ContextRequest = OfSession & ContextShape & { waitMs?: number };

/**
 * `Message` is the type of the format's messages: that of an SDK, or the default of the format. Without `format` a context is
 * in the session's own: then `Message` says which that is.
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

/** `wait`: false answers null once the session's workflow has accepted the request. @default true */
export type CompactRequest = OfSession & { wait?: boolean };

/** What a method is asked with. */
export type Asked<Method extends keyof PalimpsestClient> = Parameters<PalimpsestClient[Method]>[0];

/**
 * What an agent platform or an operator can ask of Palimpsest for one tenant, wherever it is asked from: the library over
 * PostgreSQL and Temporal (`Palimpsest`), and the same over HTTP (`palimpsest/http`). Every failure is a
 * `PalimpsestError` with a `type` of docs/failures.md; nothing is stored by a call that fails.
 */
export interface PalimpsestClient {
  /**
   * Stores one turn and tells the session's workflow. Returns once the turn is durable; never waits for a compaction.
   * Throws `Input.Invalid`, `Store.TurnConflict`, `Store.StaleAppend`, `Store.Busy`, `Store.Unavailable`; then nothing was
   * stored.
   */
  appendTurn(turn: Turn): Promise<AppendedTurn>;
  /**
   * What to send to the model now: head, tail and reductions in one read, never longer than the budget.
   * Throws `Store.SessionNotFound`; `Budget.Unreachable` where not even the irreducible floor fits.
   */
  context: ReadContext;
  /**
   * Compacts now, whatever the size. A compaction that is running already is joined. Answers null where there is
   * nothing to evict or the result would not be smaller. Waits for the outcome; the agent's reads need not.
   */
  compact(request: CompactRequest): Promise<CompactionOutcome | null>;
  /**
   * Evicts nothing, but has a model write anew, from the archive, what the extractive fallback wrote while no model
   * answered. Answers null where there is no such part, or no model can be asked now. The next compaction does the same
   * by itself.
   */
  resummarize(request: CompactRequest): Promise<CompactionOutcome | null>;

  /** Sizes, effective policy and what the session's workflow is doing; `asleep` when it has ended for idleness. */
  status(request: OfSession): Promise<Status>;
  /** Resolves when the session's workflow has looked at every turn and no compaction is in flight. */
  settled(request: OfSession & { timeoutMs?: number }): Promise<void>;
  sessions(request?: ListRequest): Promise<SessionList>;
  /** No further turns are expected: unanswered calls count as dead. A later turn opens the session again. */
  closeSession(request: OfSession): Promise<void>;
  /**
   * Deletes the session and everything stored of it, for good: in PostgreSQL at once, then its workflow executions in
   * Temporal; where that is away, the worker's sweep or a later erasure does it. Forks of it are sessions of their own and
   * stay unless `forks` says otherwise. A call that was cut off is repeated. Throws `Store.SessionNotFound` where nothing
   * is left of the session.
   */
  erase(request: OfSession & { forks?: boolean }): Promise<Erased>;
  /** No compaction begins until `resume`; turns are stored and contexts fit as ever. */
  pause(request: OfSession): Promise<void>;
  resume(request: OfSession): Promise<void>;

  policy(request: OfSession): Promise<SessionPolicy>;
  /** Replaces the session's policy; the next measurement follows it. Throws `Input.Invalid` with the field's path. */
  configure(request: OfSession & PolicyRequest): Promise<PolicyVersion>;
  /** As given for this tenant; `{}` and version 0 where it says nothing. */
  tenantPolicy(): Promise<SessionPolicy>;
  /**
   * Replaces the policy of this client's tenant: of all its sessions, as far as they say nothing themselves. Each takes
   * it over when it is next used; `status` names it as the source. Throws `Input.Invalid` with the field's path.
   */
  configureTenant(request: PolicyRequest): Promise<PolicyVersion>;
  /** Of the session's own policy; those of its tenant and deployment stand in `status`. */
  pins(request: OfSession): Promise<Pins>;
  pin(request: OfSession & Pins): Promise<PolicyVersion>;

  /** Every committed compaction, oldest first. */
  compactions(request: OfSession): Promise<CompactionOutcome[]>;
  /** How the context's size went, turn by turn, with each compaction. */
  timeline(request: OfSession): Promise<Timeline>;
  /** The archive parts, oldest first; with `part`, the evicted originals of that part, checked against their hashes. */
  archive(request: OfSession): Promise<ArchivePart[]>;
  archive(request: OfSession & { part: number }): Promise<LoggedMessage[]>;
  /** Every original in order: the archive parts, then the tail. Throws `Store.Corrupt` where a hash does not match. */
  replay(request: OfSession): AsyncGenerator<LoggedMessage>;
  /**
   * The file that the session was imported from, in pieces of text: the same JSON, or JSON lines where it was lines, with
   * what was appended since. A session that was appended turn by turn is the list of its messages in its own format. It
   * ends with the last message that the log had when the export began. Originals are exact: nothing is redacted. Throws
   * `Store.Corrupt` where a hash does not match; what came before is then no whole file.
   */
  export(request: OfSession): AsyncGenerator<string>;
  /** Messages of archive and tail that answer a query, best first; see `SearchRequest`. */
  search(request: OfSession & SearchRequest): Promise<SearchResult>;
  /**
   * The original content of a tool's result by `callId` (as the log or as a context shows it), or of any message by
   * `seq`, exact and page by page. Throws `Input.Invalid` naming what is near; `Store.Corrupt`.
   */
  toolResponse(request: OfSession & ResponseReference & Page): Promise<ToolResponse>;
  /** A page of originals, of an archive part or of any range, each checked against its hash. */
  expand(request: OfSession & ExpandRequest): Promise<Expansion>;
  /** What was evicted so far as Markdown, one `## Summarized at` section an archive part; grows at its end only. */
  historyLog(request: OfSession): AsyncGenerator<string>;
  /**
   * Commits a new generation with the head of an earlier one; 0 restores the whole log. Nothing is deleted, so that this
   * can be undone in the same way. Throws `Input.Invalid` for a generation that is not there.
   */
  restore(request: OfSession & { generation: number }): Promise<CompactionOutcome>;
  /** A new session `to` with the log and the compactions of this one through `throughSeq`. The same fork twice is made once. */
  fork(request: OfSession & ForkRequest): Promise<Forked>;

  /** Starts a job, or answers the one of this name that was started with the same request. */
  startBackfill(request: BackfillRequest): Promise<Backfill>;
  estimateBackfill(request: EstimateRequest): Promise<BackfillEstimate>;
  backfills(): Promise<Backfill[]>;
  backfill(request: OfJob): Promise<Backfill>;
  backfillItems(request: BackfillItemRequest): Promise<BackfillItemList>;
  pauseBackfill(request: OfJob): Promise<Backfill>;
  resumeBackfill(request: OfJob): Promise<Backfill>;
  /** Another number of compactions at once, from now on. */
  resizeBackfill(request: OfJob & ResizeRequest): Promise<Backfill>;
  /** Compactions in flight end as they end; nothing more begins. */
  cancelBackfill(request: OfJob): Promise<Backfill>;
  /** The failed sessions (after a cancellation or a spend limit: the skipped ones as well) once more. */
  retryBackfill(request: OfJob & RetryRequest): Promise<Backfill>;

  /** Ends the connections; compactions go on in the workers. */
  close(): Promise<void>;
}
