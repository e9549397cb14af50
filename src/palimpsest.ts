import { createHash } from 'node:crypto';
import {
  WithStartWorkflowOperation,
  WorkflowIdConflictPolicy,
  QueryRejectedError,
  ServiceError,
  WorkflowNotFoundError,
  type Client,
  type Connection,
} from '@temporalio/client';
import type { Pool } from 'pg';
import { outcomeOf, type CompactionOutcome } from '../activities/commit.js';
import type { CompactRequest, SessionStatus } from '../workflows/messages.js';
import type { session as sessionWorkflow } from '../workflows/session.js';
import { buildView, type ContextSource, type Reduction, type ViewItem } from './conversation/context.js';
import type { ChatMessage, LoggedMessage } from './conversation/message.js';
import { checkMessages, warningsOf, type MessageWarning } from './conversation/validate.js';
import { invalid, isFailureType, PalimpsestError } from './errors.js';
import { limitsOf } from './policy/limits.js';
import { reduceToFit } from './policy/reduce.js';
import { parsePolicy, resolvePolicy, type Policy, type PolicyInput } from './policy/schema.js';
import { listArchiveParts, listCompactions, readArchivePart, type ArchivePart } from './store/compactions.js';
import { readContextLocked, readContextSource, saveReductions } from './store/context.js';
import { assertMigrated } from './store/migrate.js';
import { openPool } from './store/pool.js';
import { replay } from './store/replay.js';
import { closeSession, configureSession, loadSession, type SessionRow } from './store/sessions.js';
import { appendTurn, type AppendResult } from './store/turns.js';
import { connectClient, type TemporalSettings } from './temporal/connection.js';
import { failureOf } from './temporal/failures.js';
import {
  defaultQueuePrefix,
  livePriority,
  searchAttributes,
  sessionWorkflowId,
  taskQueues,
  type SessionIds,
} from './temporal/names.js';
import { counterFor } from './tokens/counter.js';

export interface PalimpsestOptions {
  /** PostgreSQL connection string; the schema must be migrated (`palimpsest migrate`). */
  databaseUrl: string;
  temporal: TemporalSettings;
  /** Owner of the sessions that calls name. @default 'default' */
  tenant?: string;
  /** Prefix of the task queues the workers serve. @default 'compaction' */
  queuePrefix?: string;
  /** Database connections of this client at most. @default 10 */
  poolSize?: number;
}

export interface Turn {
  session: string;
  /** Idempotency key within the session: the same turn twice is stored once and answered the same. */
  turnId: string;
  messages: ChatMessage[];
  /** Policy of a new session; for a session that exists use `configure`. */
  policy?: PolicyInput;
  /** Last `seq` the caller has seen; a lost race is refused with `Store.StaleAppend`. */
  expectedSeq?: number;
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

export interface ContextEntry {
  /** Message of the log this entry shows; null for the summary turn, its acknowledgment and synthetic results. */
  seq: number | null;
  source: ViewItem['source'];
  tokens: number;
}

export interface SessionContext {
  session: string;
  generation: number;
  /** What to send to the model: valid for its provider, within `budget`. */
  messages: ChatMessage[];
  /** One entry for each message. */
  entries: ContextEntry[];
  /** Tokens of `messages`, request overhead not included. */
  tokens: number;
  budget: number;
  window: number;
  /** Changes whenever `messages` change. */
  etag: string;
}

export interface Status {
  session: string;
  /** Messages in the log / in the context. */
  messages: number;
  liveMessages: number;
  tokens: number;
  window: { tokens: number; source: string };
  budget: number;
  /** Context tokens at which the next measurement is due; null when nothing will trigger. */
  measureAt: number | null;
  generation: number;
  /** `asleep`: ended for idleness; `unknown`: no worker answers. */
  phase: SessionStatus['phase'] | 'asleep' | 'unknown';
  compaction: SessionStatus['compaction'];
  exhausted: SessionRow['exhausted'];
  failures: number;
  retryAt: string | null;
  lastError: { type: string; message: string } | null;
  rejectedTurns: SessionStatus['rejectedTurns'];
  policy: Policy;
  policyVersion: number;
}

/** How often a context is read without a lock although commits and other readers overtake it; then it takes one. */
const lockFreeReads = 3;
/** Answered by a worker in milliseconds; longer where a history is replayed first. */
const queryTimeoutMs = 5_000;

/**
 * The library: what an agent platform needs of Palimpsest, over PostgreSQL and Temporal. One instance serves a process;
 * every method may be called concurrently. Failures are `PalimpsestError`s with a `type` of README's failure table.
 *
 * @example
 * const palimpsest = await Palimpsest.connect({ databaseUrl, temporal: { address: 'localhost:7233' } });
 * await palimpsest.appendTurn({ session: 's-1', turnId: 't-1', messages: [{ role: 'user', content: 'Hello' }] });
 * const { messages } = await palimpsest.context({ session: 's-1' });
 */
export class Palimpsest {
  private constructor(
    private readonly pool: Pool,
    private readonly client: Client,
    private readonly tenant: string,
    private readonly queuePrefix: string,
  ) {}

  /** Throws `Store.Unavailable` or `Temporal.Unavailable` within seconds where either does not answer. */
  static async connect(options: PalimpsestOptions): Promise<Palimpsest> {
    const {
      databaseUrl,
      temporal,
      tenant = 'default',
      queuePrefix = defaultQueuePrefix,
      poolSize = 10,
    } = options;
    const pool = openPool(databaseUrl, { max: poolSize });
    try {
      await assertMigrated(pool);
      return new Palimpsest(pool, await connectClient(temporal), tenant, queuePrefix);
    } catch (error) {
      await pool.end();
      throw error;
    }
  }

  /** Ends its connections; compactions go on in the workers. */
  async close(): Promise<void> {
    await (this.client.connection as Connection).close();
    await this.pool.end();
  }

  /**
   * Stores one turn and tells the session's workflow. Returns once the turn is durable; never waits for a compaction.
   * Throws `Input.Invalid`, `Store.TurnConflict`, `Store.StaleAppend`, `Store.Unavailable`; then nothing was stored.
   */
  async appendTurn({ session, turnId, messages, policy, expectedSeq }: Turn): Promise<AppendedTurn> {
    const ids = this.ids(session);
    if (typeof turnId !== 'string' || turnId === '')
      throw invalid('turnId must be a non-empty string', 'turnId');
    const checked = checkMessages(messages);
    const stored = await appendTurn(this.pool, {
      ...ids,
      turnId,
      messages: checked,
      ...(policy === undefined ? {} : { policy: parsePolicy(policy) }),
      ...(expectedSeq === undefined ? {} : { expectedSeq }),
    });
    const { fromSeq, throughSeq, due, repeated } = stored;
    const signalled = await this.signalTurn(ids, stored);
    return { turnId, fromSeq, throughSeq, due, repeated, signalled, warnings: warningsOf(checked, 'turn') };
  }

  /**
   * What to send to the model now: head, tail and reductions in one read, never longer than the budget (invariant 8).
   * Throws `Store.SessionNotFound`; `Budget.Unreachable` where not even the irreducible floor fits.
   */
  async context({ session }: { session: string }): Promise<SessionContext> {
    const ids = this.ids(session);
    for (let attempt = 1; attempt <= lockFreeReads; attempt++) {
      const found = await readContextSource(this.pool, ids, 'own');
      const { context, budget, reductions } = fitted(session, found);
      if (reductions.length === 0) return context;
      // Stored when first applied, so that every later read until the next commit starts with the same prefix.
      const seen = found.source.reductions.length;
      const { generation } = found.session;
      if (await saveReductions(this.pool, ids, { generation, seen, budget, reductions })) return context;
    }
    return (await readContextLocked(this.pool, ids, (found) => fitted(session, found))).context;
  }

  /**
   * Compacts now, whatever the size. A compaction that is running already is joined. Answers null where there is
   * nothing to evict or the result would not be smaller. Waits for the outcome; the agent's reads need not.
   */
  async compact({ session }: { session: string }): Promise<CompactionOutcome | null> {
    const ids = this.ids(session);
    const row = await loadSession(this.pool, ids);
    const startWorkflowOperation = new WithStartWorkflowOperation<typeof sessionWorkflow>('session', {
      ...this.startOptions(ids, resolvePolicy(row.policy).idleAfter),
      workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
    });
    return tellTemporal(() =>
      this.client.workflow.executeUpdateWithStart<
        typeof sessionWorkflow,
        CompactionOutcome | null,
        [CompactRequest]
      >('compact', { startWorkflowOperation, args: [{}] }),
    );
  }

  /** Replaces the session's policy; the next measurement follows it. Throws `Input.Invalid` with the field's path. */
  async configure({
    session,
    policy,
  }: {
    session: string;
    policy: PolicyInput;
  }): Promise<{ policyVersion: number }> {
    const ids = this.ids(session);
    const configured = await configureSession(this.pool, ids, parsePolicy(policy));
    const { idleAfter } = resolvePolicy(policy);
    await tellTemporal(() =>
      this.client.workflow.signalWithStart<typeof sessionWorkflow>('session', {
        ...this.startOptions(ids, idleAfter),
        signal: 'configure',
      }),
    );
    return configured;
  }

  /** No further turns are expected: unanswered calls count as dead. A later turn opens the session again. */
  async closeSession({ session }: { session: string }): Promise<void> {
    const ids = this.ids(session);
    await closeSession(this.pool, ids);
    const handle = this.client.workflow.getHandle(sessionWorkflowId(ids));
    await tellTemporal(async () => {
      try {
        await handle.signal('close');
      } catch (error) {
        // Asleep: there is nothing in flight to finish.
        if (!(error instanceof WorkflowNotFoundError)) throw error;
      }
    });
  }

  /** Sizes, effective policy and what the session's workflow is doing; `asleep` when it has ended for idleness. */
  async status({ session }: { session: string }): Promise<Status> {
    const ids = this.ids(session);
    const row = await loadSession(this.pool, ids);
    const policy = resolvePolicy(row.policy);
    const limits = limitsOf(policy);
    const answer = await this.workflowStatus(ids);
    const live = answer === 'unknown' ? null : answer;
    return {
      session,
      messages: row.nextSeq - 1,
      liveMessages: row.liveMessages,
      tokens: row.liveTokens,
      window: { tokens: limits.window, source: limits.windowSource },
      budget: limits.budget,
      measureAt: row.measureAtTokens,
      generation: row.generation,
      phase: answer === 'unknown' ? 'unknown' : (live?.phase ?? 'asleep'),
      compaction: live?.compaction ?? null,
      exhausted: row.exhausted,
      failures: row.failures,
      retryAt: row.retryAt?.toISOString() ?? null,
      lastError: row.lastError,
      rejectedTurns: live?.rejectedTurns ?? [],
      policy,
      policyVersion: row.policyVersion,
    };
  }

  /** Resolves when the session's workflow has looked at every turn and no compaction is in flight. */
  async settled({ session, timeoutMs = 60_000 }: { session: string; timeoutMs?: number }): Promise<void> {
    const ids = this.ids(session);
    const until = Date.now() + timeoutMs;
    for (let pause = 10; ; pause = Math.min(250, pause * 1.5)) {
      const status = await this.workflowStatus(ids);
      const quiet = (of: SessionStatus) => of.phase === 'idle' && of.inbox === 0 && of.compaction === null;
      if (status === null || (status !== 'unknown' && quiet(status))) return;
      if (Date.now() > until) {
        throw new PalimpsestError(
          'Temporal.Unavailable',
          `session ${session} is still ${status === 'unknown' ? 'unanswered' : status.phase} after ${timeoutMs} ms`,
          {
            hint: 'Is a worker running? Look at the session in the Temporal UI.',
          },
        );
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /** Every committed compaction, oldest first. */
  async compactions({ session }: { session: string }): Promise<CompactionOutcome[]> {
    return (await listCompactions(this.pool, this.ids(session))).map(outcomeOf);
  }

  /** The archive parts, oldest first; with `part`, the evicted originals of that part, checked against their hashes. */
  async archive(of: { session: string }): Promise<ArchivePart[]>;
  async archive(of: { session: string; part: number }): Promise<LoggedMessage[]>;
  async archive({
    session,
    part,
  }: {
    session: string;
    part?: number;
  }): Promise<ArchivePart[] | LoggedMessage[]> {
    const ids = this.ids(session);
    return part === undefined ? listArchiveParts(this.pool, ids) : readArchivePart(this.pool, ids, part);
  }

  /** Every original in order: the archive parts, then the tail. Throws `Store.Corrupt` where a hash does not match. */
  replay({ session }: { session: string }): AsyncGenerator<LoggedMessage> {
    return replay(this.pool, this.ids(session));
  }

  private ids(session: string): SessionIds {
    const ids = { tenant: this.tenant, session };
    sessionWorkflowId(ids);
    return ids;
  }

  private startOptions(ids: SessionIds, idleAfterMs: number) {
    return {
      workflowId: sessionWorkflowId(ids),
      taskQueue: taskQueues(this.queuePrefix).workflow,
      args: [{ v: 1 as const, ...ids, idleAfterMs }] as [
        { v: 1; tenant: string; session: string; idleAfterMs: number },
      ],
      staticSummary: `session ${ids.session} of ${ids.tenant}`.slice(0, 200),
      staticDetails:
        'One agent session. Each turn signals it; when the context outgrows its policy it starts a compaction (child workflow `compaction/…`). Live details above, originals and summaries in Postgres.',
      typedSearchAttributes: [
        { key: searchAttributes.tenantId, value: ids.tenant },
        { key: searchAttributes.sessionId, value: ids.session },
      ],
      priority: livePriority(ids.tenant),
    };
  }

  private async signalTurn(
    ids: SessionIds,
    { turnId, throughSeq, due, idleAfterMs }: AppendResult,
  ): Promise<boolean> {
    try {
      await this.client.workflow.signalWithStart<
        typeof sessionWorkflow,
        [{ turnId: string; seq: number; due: boolean }]
      >('session', {
        ...this.startOptions(ids, idleAfterMs),
        signal: 'turn',
        signalArgs: [{ turnId, seq: throughSeq, due }],
      });
      return true;
    } catch {
      return false;
    }
  }

  /** Null when the workflow is not running, `unknown` when no worker answers for it. */
  private async workflowStatus(ids: SessionIds): Promise<SessionStatus | 'unknown' | null> {
    const handle = this.client.workflow.getHandle(sessionWorkflowId(ids));
    try {
      const { status } = await handle.describe();
      if (status.name !== 'RUNNING') return null;
      const until = Date.now() + queryTimeoutMs;
      return await this.client.withDeadline(until, () => handle.query<SessionStatus>('status'));
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return null;
      if (error instanceof ServiceError || error instanceof QueryRejectedError) return 'unknown';
      throw error;
    }
  }
}

/** Temporal's errors as ours: what a workflow failed with keeps its type, everything else is `Temporal.Unavailable`. */
async function tellTemporal<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    const failure = failureOf(error);
    if (failure && isFailureType(failure.type)) {
      throw new PalimpsestError(failure.type, failure.message, { cause: error });
    }
    if (!(error instanceof ServiceError)) throw error;
    throw new PalimpsestError('Temporal.Unavailable', `Temporal does not answer: ${error.message}`, {
      hint: 'What was stored stays stored; repeat the call when the server is back.',
      cause: error,
    });
  }
}

/** The context within its budget, and the reductions that this takes beyond those already stored. */
function fitted(
  name: string,
  { session, source }: { session: SessionRow; source: ContextSource },
): { context: SessionContext; budget: number; reductions: Reduction[] } {
  const policy = resolvePolicy(session.policy);
  const limits = limitsOf(policy);
  const { budget, contextTarget } = limits;
  const counter = counterFor(limits.tokenizer);
  const view = buildView(source, counter);
  if (!policy.enabled) return { context: contextOf(name, session, view, limits), budget, reductions: [] };
  const fit = reduceToFit(view, { limit: budget, target: Math.min(contextTarget, budget) }, counter);
  return { context: contextOf(name, session, fit.view, limits), budget, reductions: fit.reductions };
}

function contextOf(
  session: string,
  { generation }: SessionRow,
  view: readonly ViewItem[],
  { budget, window }: { budget: number; window: number },
): SessionContext {
  const messages = view.map(({ message }) => message);
  const tokens = view.reduce((sum, item) => sum + item.tokens, 0);
  return {
    session,
    generation,
    messages,
    entries: view.map(({ fromSeq, source, tokens: size }) => ({
      seq: fromSeq === 0 ? null : fromSeq,
      source,
      tokens: size,
    })),
    tokens,
    budget,
    window,
    etag: createHash('sha256')
      .update(`${generation}\n${JSON.stringify(messages)}`)
      .digest('hex')
      .slice(0, 32),
  };
}
