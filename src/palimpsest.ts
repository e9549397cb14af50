import type { Pool } from 'pg';
import { outcomeOf, type CompactionOutcome } from '../activities/commit.js';
import type { SessionStatus } from '../workflows/messages.js';
import type { ChatMessage, LoggedMessage } from './conversation/message.js';
import { checkMessages, warningsOf, type MessageWarning } from './conversation/validate.js';
import { invalid, PalimpsestError } from './errors.js';
import { limitsOf } from './policy/limits.js';
import { parsePolicy, resolvePolicy, type Policy, type PolicyInput } from './policy/schema.js';
import { fitted, type SessionContext } from './session-context.js';
import { listArchiveParts, listCompactions, readArchivePart, type ArchivePart } from './store/compactions.js';
import { readContextLocked, readContextSource, saveReductions } from './store/context.js';
import { assertMigrated } from './store/migrate.js';
import { openPool } from './store/pool.js';
import { replay } from './store/replay.js';
import { closeSession, configureSession, loadSession, type SessionRow } from './store/sessions.js';
import { appendTurn } from './store/turns.js';
import { connectClient, type TemporalSettings } from './temporal/connection.js';
import { defaultQueuePrefix, sessionWorkflowId, type SessionIds } from './temporal/names.js';
import { SessionWorkflows } from './temporal/session-workflows.js';

export type { ContextEntry, SessionContext } from './session-context.js';

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
    private readonly workflows: SessionWorkflows,
    private readonly tenant: string,
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
      return new Palimpsest(pool, new SessionWorkflows(await connectClient(temporal), queuePrefix), tenant);
    } catch (error) {
      await pool.end();
      throw error;
    }
  }

  /** Ends its connections; compactions go on in the workers. */
  async close(): Promise<void> {
    await this.workflows.close();
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
    const signal = { turnId, seq: throughSeq, due };
    const signalled = await this.workflows.signalTurn(ids, signal, stored.idleAfterMs);
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
    return this.workflows.compact(ids, resolvePolicy(row.policy).idleAfter);
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
    await this.workflows.signalConfigured(ids, resolvePolicy(policy).idleAfter);
    return configured;
  }

  /** No further turns are expected: unanswered calls count as dead. A later turn opens the session again. */
  async closeSession({ session }: { session: string }): Promise<void> {
    const ids = this.ids(session);
    await closeSession(this.pool, ids);
    await this.workflows.signalClose(ids);
  }

  /** Sizes, effective policy and what the session's workflow is doing; `asleep` when it has ended for idleness. */
  async status({ session }: { session: string }): Promise<Status> {
    const ids = this.ids(session);
    const row = await loadSession(this.pool, ids);
    const policy = resolvePolicy(row.policy);
    const limits = limitsOf(policy);
    const answer = await this.workflows.status(ids);
    const live = typeof answer === 'string' ? null : answer;
    return {
      session,
      messages: row.nextSeq - 1,
      liveMessages: row.liveMessages,
      tokens: row.liveTokens,
      window: { tokens: limits.window, source: limits.windowSource },
      budget: limits.budget,
      measureAt: row.measureAtTokens,
      generation: row.generation,
      phase: typeof answer === 'string' ? answer : answer.phase,
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
      const status = await this.workflows.status(ids);
      if (status === 'asleep') return;
      if (status !== 'unknown' && status.phase === 'idle' && status.inbox === 0 && !status.compaction) return;
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
}
