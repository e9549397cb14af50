import type { CompactionOutcome } from './workflows.js';
import type { ContextFormat, FormatName } from '../conversation/format-names.js';
import type { ChatMessage, Json, LoggedMessage } from '../conversation/message.js';
import type { MessageWarning } from '../conversation/validate.js';
import type { PolicyInput } from '../policy/schema.js';
import type { SessionContext } from './context.js';
import type { Forked, ForkRequest, ListedSession, Status, Timeline } from './sessions.js';
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
} from './backfills.js';
import type { UsageReport } from '../tokens/reported-usage.js';

export interface OfSession {
  session: string;
}

export interface Turn extends OfSession {
  /** Idempotency key within the session: the same turn twice is stored once and answered the same. */
  turnId: string;
  /** In the session's format. */
  messages: ChatMessage[] | Json[];
  /**
   * When the turn was said, an ISO 8601 instant with its zone. Messages whose log bears a time of their own keep that. Of a
   * live turn `new Date().toISOString()`; it is never taken for granted, because old sessions are appended in the same way.
   * The first `at` of a repeated turn stands. @default what the messages bear themselves, else unknown
   */
  at?: string;
  /** Format of `messages`, fixed by the first turn. @default the session's own, `openai-chat` for a new one */
  format?: FormatName;
  /** Policy of a new session; for a session that exists use `configure`. */
  policy?: PolicyInput;
  /** Last `seq` the caller has seen; a lost race is refused with `Store.StaleAppend`. */
  expectedSeq?: number;
  /**
   * What the provider reported for the request that made the first assistant message of this turn; corrects the counts
   * of this session. The usage object of OpenAI, Anthropic or Gemini as it came, or two numbers, where `inputTokens` is
   * the whole request, tokens read from or written to a cache included.
   */
  usage?: UsageReport;
}

export interface AppendedTurn {
  turnId: string;
  fromSeq: number;
  throughSeq: number;
  /** True when the session's size asks for a measurement. */
  due: boolean;
  /** True when this turn was stored before. */
  repeated: boolean;
  /**
   * False when Temporal could not be told. The turn is stored and the context complete; the next turn, or the same one
   * repeated, tells it again.
   */
  signalled: boolean;
  /** What is odd about the messages, by index; they are stored as they are and shown in a valid form. */
  warnings: MessageWarning[];
}

export interface ContextRequest extends OfSession {
  /** @default the session's own, for logs of agents that of their provider */
  format?: ContextFormat;
  /** Context tokens at most. @default what the session's policy allows */
  budget?: number;
  /** Milliseconds to wait, at most, for a compaction that is in flight. @default 0: the context as it stands */
  waitMs?: number;
}

export interface CompactRequest extends OfSession {
  /** False: answers null once the session's workflow has accepted the request. @default true */
  wait?: boolean;
}

/** One line of a list of sessions. */
export type SessionSummary = ListedSession;

export interface SessionList {
  sessions: SessionSummary[];
  /** Give it as `after` to read on; null at the end. */
  next: string | null;
}

/** In order of session ids, a page at a time. */
export interface ListRequest {
  after?: string;
  /** 1 to 1,000. @default 100 */
  limit?: number;
  prefix?: string;
  /** Only sessions whose latest attempt failed. */
  failed?: boolean;
}

export interface EraseRequest extends OfSession {
  /** Its forks as well, their forks, and those that are begun meanwhile. @default false */
  forks?: boolean;
}

/** What an erasure has deleted, over the session and the forks erased with it. */
export interface Erased {
  messages: number;
  /** Committed compactions. */
  generations: number;
  /** Texts that models wrote and that no other session refers to. */
  digests: number;
  /** Forks that were erased as well. */
  forks: number;
  /** Workflow executions that Temporal was told to delete, which it does within about a minute. */
  executions: number;
  /** Executions that it was not told to delete yet; null: it did not answer. A sweep, or the same call again, does it. */
  remaining: number | null;
}

export interface SessionPolicy {
  /** As given for this session; `{}` where it says nothing itself. */
  policy: PolicyInput;
  policyVersion: number;
}

export interface ConfigureRequest extends OfSession {
  policy: PolicyInput;
}

export interface ConfigureTenantRequest {
  policy: PolicyInput;
}

export type Pins = NonNullable<PolicyInput['pins']>;

export interface PinsRequest extends OfSession {
  /** Replaces the pins of the session's own policy. */
  pins: Pins;
}

/**
 * What an agent platform or an operator can ask of Palimpsest for one tenant, wherever it is asked from: the library over
 * PostgreSQL and Temporal (`Palimpsest`), and the same over HTTP (`palimpsest/http`). Every failure is a
 * `PalimpsestError` with a `type` of README's table; nothing is stored by a call that fails.
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
   * `Message` is the shape of the format's messages: chat messages unless another format is asked for.
   * Throws `Store.SessionNotFound`; `Budget.Unreachable` where not even the irreducible floor fits.
   */
  context<Message = ChatMessage>(request: ContextRequest): Promise<SessionContext<Message>>;
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
  erase(request: EraseRequest): Promise<Erased>;
  /** No compaction begins until `resume`; turns are stored and contexts fit as ever. */
  pause(request: OfSession): Promise<void>;
  resume(request: OfSession): Promise<void>;

  policy(request: OfSession): Promise<SessionPolicy>;
  /** Replaces the session's policy; the next measurement follows it. Throws `Input.Invalid` with the field's path. */
  configure(request: ConfigureRequest): Promise<{ policyVersion: number }>;
  /** As given for this tenant; `{}` and version 0 where it says nothing. */
  tenantPolicy(): Promise<SessionPolicy>;
  /**
   * Replaces the policy of this client's tenant: of all its sessions, as far as they say nothing themselves. Each takes
   * it over when it is next used; `status` names it as the source. Throws `Input.Invalid` with the field's path.
   */
  configureTenant(request: ConfigureTenantRequest): Promise<{ policyVersion: number }>;
  /** Of the session's own policy; those of its tenant and deployment stand in `status`. */
  pins(request: OfSession): Promise<{ pins: Pins }>;
  pin(request: PinsRequest): Promise<{ policyVersion: number }>;

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
  estimateBackfill(request: Omit<BackfillRequest, 'job'>): Promise<BackfillEstimate>;
  backfills(): Promise<Backfill[]>;
  backfill(request: { job: string }): Promise<Backfill>;
  backfillItems(request: BackfillItemRequest): Promise<BackfillItemList>;
  pauseBackfill(request: { job: string }): Promise<Backfill>;
  resumeBackfill(request: { job: string }): Promise<Backfill>;
  /** Another number of compactions at once, from now on. */
  resizeBackfill(request: { job: string; concurrency: number }): Promise<Backfill>;
  /** Compactions in flight end as they end; nothing more begins. */
  cancelBackfill(request: { job: string }): Promise<Backfill>;
  /** The failed sessions (after a cancellation or a spend limit: the skipped ones as well) once more. */
  retryBackfill(request: { job: string; spendLimit?: number }): Promise<Backfill>;

  /** Ends the connections; compactions go on in the workers. */
  close(): Promise<void>;
}
