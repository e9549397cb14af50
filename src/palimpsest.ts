import type { Pool } from 'pg';
import { outcomeOf, type CompactionOutcome } from '../activities/commit.js';
import type { AppendedTurn, CompactRequest, ContextRequest, Turn } from './client.js';
import type { ChatMessage, LoggedMessage } from './conversation/message.js';
import { invalid, PalimpsestError } from './errors.js';
import { policyOf } from './policy/layers.js';
import { parsePolicy, type PolicyInput } from './policy/schema.js';
import { checkedDeployment, type DeploymentPolicy } from './policy-sources.js';
import { readinessOf, type Readiness } from './readiness.js';
import { fitted, type SessionContext } from './session-context.js';
import { statusOf, type Status } from './session-status.js';
import { listArchiveParts, listCompactions, readArchivePart, type ArchivePart } from './store/compactions.js';
import { readContextLocked, readContextSource, saveReductions } from './store/context.js';
import { expand, type ExpandRequest, type Expansion } from './store/expand.js';
import { fork, type Forked, type ForkRequest } from './store/fork.js';
import { historyLog } from './store/history-log.js';
import { assertMigrated } from './store/migrate.js';
import { openPool } from './store/pool.js';
import { recordsOf } from './store/records.js';
import { replay } from './store/replay.js';
import { restore } from './store/restore.js';
import { search, type SearchRequest, type SearchResult } from './store/search.js';
import { closeSession, configureSession, loadSession } from './store/sessions.js';
import { configureTenant } from './store/tenants.js';
import { toolResponse, type Page, type ResponseReference, type ToolResponse } from './store/tool-response.js';
import { appendTurn } from './store/turns.js';
import { connectClient, type TemporalSettings } from './temporal/connection.js';
import { defaultQueuePrefix, encodeIdPart, sessionWorkflowId, type SessionIds } from './temporal/names.js';
import { SessionWorkflows } from './temporal/session-workflows.js';
import { registerCounters, type Counters } from './tokens/counter.js';

export type * from './client.js';
export type { ContextEntry, SessionContext } from './session-context.js';
export type { Readiness, Trouble } from './readiness.js';
export type { Status } from './session-status.js';

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
  /**
   * Policy below those of tenant and session: `readDeploymentPolicy()` for file and environment. Written into sessions
   * that this client creates or configures. @default none for new sessions; a session that exists keeps what it has
   */
  policy?: DeploymentPolicy;
  /** Counters of policies with `tokenizer: 'custom:<name>'`, by name; the workers need the same. */
  counters?: Counters;
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
    private readonly deployment: DeploymentPolicy | undefined,
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
    registerCounters(options.counters);
    const deployment = checkedDeployment(options.policy);
    const pool = openPool(databaseUrl, { max: poolSize });
    try {
      await assertMigrated(pool);
      const workflows = new SessionWorkflows(await connectClient(temporal), queuePrefix);
      return new Palimpsest(pool, workflows, tenant, deployment);
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

  /** Whether PostgreSQL and Temporal can be used now. */
  readiness(): Promise<Readiness> {
    return readinessOf(this.pool, this.workflows);
  }

  /**
   * Stores one turn and tells the session's workflow. Returns once the turn is durable; never waits for a compaction.
   * Throws `Input.Invalid`, `Store.TurnConflict`, `Store.StaleAppend`, `Store.Unavailable`; then nothing was stored.
   */
  async appendTurn({
    session,
    turnId,
    messages,
    format,
    policy,
    expectedSeq,
    usage,
  }: Turn): Promise<AppendedTurn> {
    const ids = this.ids(session);
    if (typeof turnId !== 'string' || turnId === '')
      throw invalid('turnId must be a non-empty string', 'turnId');
    const stored = await appendTurn(this.pool, {
      ...ids,
      turnId,
      messages,
      ...(format === undefined ? {} : { format }),
      deployment: this.deployment,
      ...(usage === undefined ? {} : { usage }),
      ...(policy === undefined ? {} : { policy: parsePolicy(policy) }),
      ...(expectedSeq === undefined ? {} : { expectedSeq }),
    });
    const { fromSeq, throughSeq, due, repeated, warnings } = stored;
    const signal = { turnId, seq: throughSeq, due };
    const signalled = await this.workflows.signalTurn(ids, signal, stored.idleAfterMs);
    return { turnId, fromSeq, throughSeq, due, repeated, signalled, warnings };
  }

  /**
   * What to send to the model now: head, tail and reductions in one read, never longer than the budget (invariant 8).
   * Throws `Store.SessionNotFound`; `Budget.Unreachable` where not even the irreducible floor fits.
   */
  async context<Message = ChatMessage>({
    session,
    ...shape
  }: ContextRequest): Promise<SessionContext<Message>> {
    const ids = this.ids(session);
    const key = shape.budget ?? 'own';
    const fit = (found: Parameters<typeof fitted>[1]) => fitted(session, found, shape);
    for (let attempt = 1; attempt <= lockFreeReads; attempt++) {
      const found = await readContextSource(this.pool, ids, key);
      const { context, budget, reductions } = fit(found);
      if (reductions.length === 0) return context as SessionContext<unknown> as SessionContext<Message>;
      // Stored when first applied, so that every later read until the next commit starts with the same prefix.
      const seen = found.source.reductions.length;
      const { generation } = found.session;
      if (await saveReductions(this.pool, ids, { generation, seen, budget, reductions }))
        return context as SessionContext<unknown> as SessionContext<Message>;
    }
    const { context } = await readContextLocked(this.pool, ids, key, fit);
    return context as SessionContext<unknown> as SessionContext<Message>;
  }

  /**
   * Compacts now, whatever the size. A compaction that is running already is joined. Answers null where there is
   * nothing to evict or the result would not be smaller. Waits for the outcome; the agent's reads need not.
   */
  async compact({ session, wait }: CompactRequest): Promise<CompactionOutcome | null> {
    const ids = this.ids(session);
    const row = await loadSession(this.pool, ids);
    return this.workflows.compact(ids, policyOf(row.policy).idleAfter, {}, wait);
  }

  /**
   * Evicts nothing, but has a model write anew, from the archive, what the extractive fallback wrote while no model
   * answered. Answers null where there is no such part, or no model can be asked now. The next compaction does the same
   * by itself.
   */
  async resummarize({ session, wait }: CompactRequest): Promise<CompactionOutcome | null> {
    const ids = this.ids(session);
    const row = await loadSession(this.pool, ids);
    return this.workflows.compact(ids, policyOf(row.policy).idleAfter, { resummarize: true }, wait);
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
    const row = await configureSession(this.pool, ids, policy, this.deployment);
    await this.workflows.signalConfigured(ids, policyOf(row.policy).idleAfter);
    return { policyVersion: row.policyVersion };
  }

  /**
   * Replaces the policy of this client's tenant: of all its sessions, as far as they say nothing themselves. Each takes
   * it over when it is next used; `status` names it as the source. Throws `Input.Invalid` with the field's path.
   */
  async configureTenant({ policy }: { policy: PolicyInput }): Promise<{ policyVersion: number }> {
    return configureTenant(this.pool, this.tenant, policy, this.deployment);
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
    const live = await this.workflows.status(ids);
    return statusOf(row, live, await recordsOf(this.pool, row));
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

  /** Messages of archive and tail that answer a query, best first; see `SearchRequest`. */
  async search({ session, ...request }: { session: string } & SearchRequest): Promise<SearchResult> {
    return search(this.pool, this.ids(session), request);
  }

  /**
   * The original content of a tool's result by `callId` (as the log or as a context shows it), or of any message by
   * `seq`, exact and page by page. Throws `Input.Invalid` naming what is near; `Store.Corrupt`.
   */
  async toolResponse(of: { session: string } & ResponseReference & Page): Promise<ToolResponse> {
    return toolResponse(this.pool, this.ids(of.session), of, of);
  }

  /** A page of originals, of an archive part or of any range, each checked against its hash. */
  async expand({ session, ...request }: { session: string } & ExpandRequest): Promise<Expansion> {
    return expand(this.pool, this.ids(session), request);
  }

  /** What was evicted so far as Markdown, one `## Summarized at` section an archive part; grows at its end only. */
  historyLog({ session }: { session: string }): AsyncGenerator<string> {
    return historyLog(this.pool, this.ids(session));
  }

  /**
   * Commits a new generation with the head of an earlier one; 0 restores the whole log. Nothing is deleted, so that this
   * can be undone in the same way. Throws `Input.Invalid` for a generation that is not there.
   */
  async restore({
    session,
    generation,
  }: {
    session: string;
    generation: number;
  }): Promise<CompactionOutcome> {
    return outcomeOf(await restore(this.pool, this.ids(session), generation));
  }

  /** A new session `to` with the log and the compactions of this one through `throughSeq`. The same fork twice is made once. */
  async fork({ session, to, throughSeq }: { session: string } & ForkRequest): Promise<Forked> {
    encodeIdPart(to, 'to');
    return fork(this.pool, this.ids(session), { to, throughSeq });
  }

  private ids(session: string): SessionIds {
    const ids = { tenant: this.tenant, session };
    sessionWorkflowId(ids);
    return ids;
  }
}
