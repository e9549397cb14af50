import type {
  ArchivePart,
  ExpandRequest,
  Expansion,
  Page,
  ResponseReference,
  SearchRequest,
  SearchResult,
  ToolResponse,
} from '../contract/archive.js';
import type * as jobs from '../contract/backfills.js';
import type * as client from '../contract/client.js';
import type { AppendedTurn, Turn } from '../contract/client.js';
import type { SessionContext } from '../contract/context.js';
import { encodeIdPart, type SessionIds } from '../contract/ids.js';
import type { CompactionOutcome } from '../contract/workflows.js';
import type { Forked, ForkRequest, Status, Timeline } from '../contract/sessions.js';
import type { ChatMessage, LoggedMessage, MessagesText } from '../conversation/message.js';
import { erase } from '../erase/erase.js';
import { invalid } from '../errors.js';
import { parsePolicy } from '../policy/schema.js';
import { type Readiness, readinessOf } from '../process/readiness.js';
import { appendTurn } from '../store/append/turns.js';
import { listArchiveParts, readArchivePart } from '../store/compactions/archive.js';
import { fork } from '../store/compactions/fork.js';
import { listCompactions, outcomeOf } from '../store/compactions/generations.js';
import { restore } from '../store/compactions/restore.js';
import { placesOf } from '../store/connection/pool.js';
import { expand, exportSession, replay } from '../store/reading/replay.js';
import { historyLog } from '../store/reading/history-log.js';
import { memoryOf } from '../store/reading/memory.js';
import { recordsOf } from '../store/reading/records.js';
import { timeline } from '../store/reading/timeline.js';
import { toolResponse } from '../store/reading/tool-response.js';
import { search } from '../store/search/search.js';
import { generationOf, listSessions, loadSession } from '../store/sessions/sessions.js';
import { limitsOfSession } from '../store/sessions/settings.js';
import { configureTenant } from '../store/sessions/configure.js';
import { sessionWorkflowId } from '../temporal/names.js';
import { Backfills } from './backfills.js';
import {
  closeConnections,
  type Connections,
  openConnections,
  type PalimpsestOptions,
} from './connections.js';
import { readContext } from './context.js';
import * as operating from './operating.js';
import { statusOf } from './status.js';
import { atRest } from './waiting.js';

/**
 * The library: what an agent platform needs of Palimpsest, over PostgreSQL and Temporal. One instance serves a process;
 * every method may be called concurrently. `PalimpsestClient` says what each does and throws.
 *
 * @example
 * const palimpsest = await Palimpsest.connect({ databaseUrl, temporal: { address: 'localhost:7233' } });
 * await palimpsest.appendTurn({ session: 's-1', turnId: 't-1', messages: [{ role: 'user', content: 'Hello' }] });
 * const { messages } = await palimpsest.context({ session: 's-1' });
 */
export class Palimpsest implements client.PalimpsestClient {
  private readonly jobs: Backfills;

  private constructor(
    private readonly connections: Connections,
    readonly tenant: string,
    /** Who connected ends the connections; views of other tenants leave them. */
    private readonly owner: boolean,
  ) {
    encodeIdPart(tenant, 'tenant');
    const { pool, backfills, summarizer } = connections;
    this.jobs = new Backfills(pool, backfills, tenant, summarizer);
  }

  /** Throws `Store.Unavailable` or `Temporal.Unavailable` within seconds where either does not answer. */
  static async connect(options: PalimpsestOptions): Promise<Palimpsest> {
    const { tenant = 'default' } = options;
    encodeIdPart(tenant, 'tenant');
    return new Palimpsest(await openConnections(options), tenant, true);
  }

  /** The sessions of another tenant over the same connections, which only `close` of the connected one ends. */
  forTenant(tenant: string): Palimpsest {
    return new Palimpsest(this.connections, tenant, false);
  }

  async close(): Promise<void> {
    if (this.owner) await closeConnections(this.connections);
  }

  /** Whether PostgreSQL and Temporal can be used now. */
  async readiness(): Promise<Readiness> {
    return readinessOf(this.connections.probe, this.connections.workflows);
  }

  /** Connections to PostgreSQL that are in use, and calls that wait for one. */
  databaseLoad(): { held: number; waiting: number } {
    const { held, waiting } = placesOf(this.connections.pool);
    return { held, waiting };
  }

  async appendTurn(turn: TurnOrText): Promise<client.AppendedTurn> {
    return append(this.connections, this.ids(turn), turn);
  }

  async context<Message = ChatMessage>(request: client.ContextRequest): Promise<SessionContext<Message>> {
    const context: SessionContext<unknown> = await readContext(this.connections, this.ids(request), request);
    return context as SessionContext<Message>;
  }

  async compact({ wait, ...of }: client.CompactRequest): Promise<CompactionOutcome | null> {
    return operating.compact(this.connections, this.ids(of), {}, wait);
  }

  async resummarize({ wait, ...of }: client.CompactRequest): Promise<CompactionOutcome | null> {
    return operating.compact(this.connections, this.ids(of), { resummarize: true }, wait);
  }

  async status(request: client.OfSession): Promise<Status> {
    const { pool, workflows } = this.connections;
    const ids = this.ids(request);
    const row = await loadSession(pool, ids);
    const live = await workflows.status(ids);
    const [records, memory] = await Promise.all([
      recordsOf(pool, row),
      memoryOf(pool, row, limitsOfSession(row).limits.overhead),
    ]);
    return statusOf(row, live, { ...records, ...memory });
  }

  async settled({ timeoutMs = 60_000, ...of }: client.OfSession & { timeoutMs?: number }): Promise<void> {
    const ids = this.ids(of);
    await atRest(this.connections, ids, timeoutMs);
    // Afterwards: an inline turn may only just have begun the session.
    await generationOf(this.connections.pool, ids);
  }

  async sessions(request: client.ListRequest = {}): Promise<client.SessionList> {
    return listSessions(this.connections.pool, this.tenant, request);
  }

  async closeSession(request: client.OfSession): Promise<void> {
    await operating.close(this.connections, this.ids(request));
  }

  async erase({ forks, ...of }: client.EraseRequest): Promise<client.Erased> {
    return erase(this.connections, this.ids(of), forks);
  }

  async pause(request: client.OfSession): Promise<void> {
    await operating.hold(this.connections, this.ids(request), true);
  }

  async resume(request: client.OfSession): Promise<void> {
    await operating.hold(this.connections, this.ids(request), false);
  }

  async policy(request: client.OfSession): Promise<client.SessionPolicy> {
    return operating.ownPolicy(this.connections, this.ids(request));
  }

  async configure({ policy, ...of }: client.ConfigureRequest): Promise<{ policyVersion: number }> {
    return operating.configure(this.connections, this.ids(of), policy);
  }

  async tenantPolicy(): Promise<client.SessionPolicy> {
    return operating.tenantPolicy(this.connections, this.tenant);
  }

  async configureTenant({ policy }: client.ConfigureTenantRequest): Promise<{ policyVersion: number }> {
    const { pool, deployment } = this.connections;
    return configureTenant(pool, this.tenant, policy, deployment);
  }

  async pins(request: client.OfSession): Promise<{ pins: client.Pins }> {
    const { policy } = await this.policy(request);
    return { pins: policy.pins ?? [] };
  }

  async pin({ pins, ...of }: client.PinsRequest): Promise<{ policyVersion: number }> {
    return operating.pin(this.connections, this.ids(of), pins);
  }

  async compactions(request: client.OfSession): Promise<CompactionOutcome[]> {
    const { pool } = this.connections;
    const ids = this.ids(request);
    const rows = await listCompactions(pool, ids);
    // None yet, or no such session.
    if (rows.length === 0) await loadSession(pool, ids);
    return rows.map(outcomeOf);
  }

  async timeline(request: client.OfSession): Promise<Timeline> {
    return timeline(this.connections.pool, this.ids(request));
  }

  async archive(request: client.OfSession): Promise<ArchivePart[]>;
  async archive(request: client.OfSession & { part: number }): Promise<LoggedMessage[]>;
  async archive({
    part,
    ...of
  }: client.OfSession & { part?: number }): Promise<ArchivePart[] | LoggedMessage[]> {
    const { pool } = this.connections;
    const ids = this.ids(of);
    if (part !== undefined) {
      await loadSession(pool, ids);
      return readArchivePart(pool, ids, part);
    }
    const parts = await listArchiveParts(pool, ids);
    if (parts.length === 0) await loadSession(pool, ids);
    return parts;
  }

  replay(request: client.OfSession): AsyncGenerator<LoggedMessage> {
    return replay(this.connections.pool, this.ids(request));
  }

  export(request: client.OfSession): AsyncGenerator<string> {
    return exportSession(this.connections.pool, this.ids(request));
  }

  async search({ session, ...request }: client.OfSession & SearchRequest): Promise<SearchResult> {
    const { pool, embedder } = this.connections;
    return search(pool, this.ids({ session }), request, embedder);
  }

  async toolResponse(request: client.OfSession & ResponseReference & Page): Promise<ToolResponse> {
    return toolResponse(this.connections.pool, this.ids(request), request, request);
  }

  async expand({ session, ...request }: client.OfSession & ExpandRequest): Promise<Expansion> {
    return expand(this.connections.pool, this.ids({ session }), request);
  }

  historyLog(request: client.OfSession): AsyncGenerator<string> {
    return historyLog(this.connections.pool, this.ids(request));
  }

  async restore({
    generation,
    ...of
  }: client.OfSession & { generation: number }): Promise<CompactionOutcome> {
    return outcomeOf(await restore(this.connections.pool, this.ids(of), generation));
  }

  async fork({ to, throughSeq, ...of }: client.OfSession & ForkRequest): Promise<Forked> {
    encodeIdPart(to, 'to');
    return fork(this.connections.pool, this.ids(of), { to, throughSeq });
  }

  async startBackfill(request: jobs.BackfillRequest): Promise<jobs.Backfill> {
    return this.jobs.start(request);
  }

  async estimateBackfill(request: Omit<jobs.BackfillRequest, 'job'>): Promise<jobs.BackfillEstimate> {
    return this.jobs.estimate(request);
  }

  async backfills(): Promise<jobs.Backfill[]> {
    return this.jobs.list();
  }

  async backfill(request: { job: string }): Promise<jobs.Backfill> {
    return this.jobs.report(request);
  }

  async backfillItems(request: jobs.BackfillItemRequest): Promise<jobs.BackfillItemList> {
    return this.jobs.items(request);
  }

  async pauseBackfill(request: { job: string }): Promise<jobs.Backfill> {
    return this.jobs.pause(request);
  }

  async resumeBackfill(request: { job: string }): Promise<jobs.Backfill> {
    return this.jobs.resume(request);
  }

  async resizeBackfill(request: { job: string; concurrency: number }): Promise<jobs.Backfill> {
    return this.jobs.resize(request);
  }

  async cancelBackfill(request: { job: string }): Promise<jobs.Backfill> {
    return this.jobs.cancel(request);
  }

  async retryBackfill(request: { job: string; spendLimit?: number }): Promise<jobs.Backfill> {
    return this.jobs.retry(request);
  }

  /** Throws `Input.Invalid` for a session id that no session can have. */
  private ids({ session }: client.OfSession): SessionIds {
    const ids = { tenant: this.tenant, session };
    sessionWorkflowId(ids);
    return ids;
  }
}

/** A turn whose messages may come as JSON text. */
export type TurnOrText = Omit<Turn, 'messages'> & { messages: Turn['messages'] | MessagesText };

/** Stores a turn, then tells the session's workflow: a turn that could not be signalled is stored all the same. */
async function append(
  { pool, workflows, deployment, turnLimits }: Connections,
  ids: SessionIds,
  { turnId, messages, at, format, policy, expectedSeq, usage }: TurnOrText,
): Promise<AppendedTurn> {
  if (typeof turnId !== 'string' || turnId === '')
    throw invalid('turnId must be a non-empty string', 'turnId');
  const stored = await appendTurn(pool, {
    ...ids,
    turnId,
    messages,
    deployment,
    limits: turnLimits,
    ...(at === undefined ? {} : { at }),
    ...(format === undefined ? {} : { format }),
    ...(usage === undefined ? {} : { usage }),
    ...(policy === undefined ? {} : { policy: parsePolicy(policy) }),
    ...(expectedSeq === undefined ? {} : { expectedSeq }),
  });
  const { fromSeq, throughSeq, due, repeated, warnings } = stored;
  const signalled = await workflows.signalTurn(ids, { turnId, seq: throughSeq, due }, stored.idleAfterMs);
  return { turnId, fromSeq, throughSeq, due, repeated, signalled, warnings };
}
