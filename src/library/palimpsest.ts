import {
  type ArchivePart,
  type Expansion,
  expandRequest,
  responseRequest,
  searchRequest,
  type SearchResult,
  type ToolResponse,
} from '../contract/archive.js';
import type {
  Backfill,
  BackfillEstimate,
  BackfillItemList,
  BackfillRequest,
  EstimateRequest,
} from '../contract/backfills.js';
import { asking, checkRequests } from '../contract/asking.js';
import type {
  Asked,
  OfJob,
  OfSession,
  OfToken,
  PalimpsestClient,
  ReadContext,
  Sync,
} from '../contract/client.js';
import {
  type CompactionOutcome,
  type Forked,
  forkRequest,
  restoreRequest,
  type Timeline,
} from '../contract/compactions.js';
import { contextRequest, type SessionContext } from '../contract/context.js';
import {
  eraseMessagesRequest,
  findMessagesRequest,
  type FoundMessages,
  type MessagesErased,
} from '../contract/erasing.js';
import { encodeIdPart, type SessionIds } from '../contract/ids.js';
import { pins, type Pins, type PolicyVersion, type SessionPolicy } from '../contract/policies.js';
import { checked } from '../contract/schema.js';
import {
  type Erased,
  eraseRequest,
  listRequest,
  type SessionList,
  type Status,
} from '../contract/sessions.js';
import { syncBody, type Synced, type SyncOrText } from '../contract/sync.js';
import type { AppendedTurn, TurnOrText } from '../contract/turns.js';
import type { LoggedMessage } from '../conversation/message.js';
import type { ApiToken, CreatedToken, TokenRequest } from '../contract/tokens.js';
import { erase } from '../erase/erase.js';
import { findMessages } from '../erase/erase-messages.js';
import { type Readiness, readinessOf } from '../process/readiness.js';
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
import {
  accessByToken,
  createToken,
  listTokens,
  revokeToken,
  type TokenAccess,
  type TokenMaker,
} from '../store/tokens/tokens.js';
import { sessionWorkflowId } from '../temporal/names.js';
import { append } from './append.js';
import { Backfills } from './backfills.js';
import {
  closeConnections,
  type Connections,
  openConnections,
  type PalimpsestOptions,
} from './connections.js';
import { readContext, readContextOf } from './context.js';
import * as operating from './operating.js';
import { statusOf } from './status.js';
import { sync, type SyncedSizes, syncSizes } from './sync.js';
import { atRest } from './waiting.js';

/**
 * The library for an agent platform, over PostgreSQL and Temporal. One instance serves a process; every method may be called
 * concurrently. `PalimpsestClient` documents what each method does and throws.
 *
 * @example
 * const palimpsest = await Palimpsest.connect();
 * await palimpsest.appendTurn({ session: 's-1', turnId: 't-1', messages: [{ role: 'user', content: 'Hello' }] });
 * const { messages } = await palimpsest.context({ session: 's-1' });
 */
export class Palimpsest implements PalimpsestClient {
  private readonly jobs: Backfills;

  private constructor(
    private readonly connections: Connections,
    readonly tenant: string,
    /** Only the connected instance closes the connections; the views of other tenants do not. */
    private readonly owner: boolean,
  ) {
    encodeIdPart(tenant, 'tenant');
    const { pool, backfills, summarizer } = connections;
    this.jobs = new Backfills(pool, backfills, tenant, summarizer);
  }

  /**
   * Connects to the servers that the options name, else to the servers of the environment or of a running `palimpsest dev`. Throws
   * an `Input.Invalid` that says what to set or correct; `Store.Unavailable` or `Temporal.Unavailable` within seconds if the
   * server does not answer.
   */
  static async connect(options: PalimpsestOptions = {}): Promise<Palimpsest> {
    const connections = await openConnections(options);
    const { tenant = 'default' } = options;
    return new Palimpsest(connections, tenant, true);
  }

  /** A view of another tenant's sessions over the same connections. Only `close` of the connected instance closes them. */
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

  /** The access that a token of the database gives now; null for none. The API asks for each request. */
  async accessByToken(token: string): Promise<TokenAccess | null> {
    return accessByToken(this.connections.pool, token);
  }

  /** The number of PostgreSQL connections in use, and of calls that wait for one. */
  databaseLoad(): { held: number; waiting: number } {
    const { held, waiting } = placesOf(this.connections.pool);
    return { held, waiting };
  }

  async appendTurn(turn: TurnOrText): Promise<AppendedTurn> {
    return append(this.connections, this.ids(turn), turn);
  }

  readonly sync = asking(
    'sync',
    async ({ session, ...request }: Asked<'sync'>): Promise<Synced> =>
      (await sync(this.connections, this.ids({ session }), checked(syncBody, request))).synced,
  ) as Sync;

  readonly context = asking(
    'context',
    async ({ session, ...request }: Asked<'context'>): Promise<SessionContext<unknown, unknown>> =>
      readContext(this.connections, this.ids({ session }), checked(contextRequest, request)),
  ) as ReadContext;

  /** For an API: the answer of `sync` as pieces of its JSON. @internal */
  async syncJson({ session, ...request }: OfSession & SyncOrText): Promise<string[]> {
    return (await sync(this.connections, this.ids({ session }), request)).pieces;
  }

  /** For a gateway: as `sync`; without the messages of a context that can be left as the list has them. @internal */
  async syncSizes({ session, ...request }: Asked<'sync'>): Promise<SyncedSizes> {
    return syncSizes(this.connections, this.ids({ session }), checked(syncBody, request));
  }

  /** For an API: the tag of a context, and the context as pieces of its JSON. @internal */
  async contextJson({ session, ...request }: Asked<'context'>): Promise<{ etag: string; pieces: string[] }> {
    const { context, pieces } = await readContextOf(this.connections, this.ids({ session }), request);
    return { etag: context.etag, pieces };
  }

  async compact({ session, wait }: Asked<'compact'>): Promise<CompactionOutcome | null> {
    return operating.compact(this.connections, this.ids({ session }), {}, wait);
  }

  async resummarize({ session, wait }: Asked<'resummarize'>): Promise<CompactionOutcome | null> {
    return operating.compact(this.connections, this.ids({ session }), { resummarize: true }, wait);
  }

  async status(request: OfSession): Promise<Status> {
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

  async settled({ timeoutMs = 60_000, ...of }: Asked<'settled'>): Promise<void> {
    const ids = this.ids(of);
    await atRest(this.connections, ids, timeoutMs);
    // Checked after the wait, because an inline turn may create the session meanwhile.
    await generationOf(this.connections.pool, ids);
  }

  async sessions(request: Asked<'sessions'> = {}): Promise<SessionList> {
    return listSessions(this.connections.pool, this.tenant, checked(listRequest, request));
  }

  async closeSession(request: OfSession): Promise<void> {
    await operating.close(this.connections, this.ids(request));
  }

  async erase({ session, ...request }: Asked<'erase'>): Promise<Erased> {
    const { forks } = checked(eraseRequest, request);
    return erase(this.connections, this.ids({ session }), forks);
  }

  async eraseMessages({ session, ...request }: Asked<'eraseMessages'>): Promise<MessagesErased> {
    return operating.eraseMessages(
      this.connections,
      this.ids({ session }),
      checked(eraseMessagesRequest, request),
    );
  }

  async findMessages({ session, ...request }: Asked<'findMessages'>): Promise<FoundMessages> {
    const { text } = checked(findMessagesRequest, request);
    return findMessages(this.connections.pool, this.ids({ session }), text);
  }

  async pause(request: OfSession): Promise<void> {
    await operating.hold(this.connections, this.ids(request), true);
  }

  async resume(request: OfSession): Promise<void> {
    await operating.hold(this.connections, this.ids(request), false);
  }

  async policy(request: OfSession): Promise<SessionPolicy> {
    return operating.ownPolicy(this.connections, this.ids(request));
  }

  async configure({ policy, ...of }: Asked<'configure'>): Promise<PolicyVersion> {
    return operating.configure(this.connections, this.ids(of), policy);
  }

  async tenantPolicy(): Promise<SessionPolicy> {
    return operating.tenantPolicy(this.connections, this.tenant);
  }

  async configureTenant({ policy }: Asked<'configureTenant'>): Promise<PolicyVersion> {
    const { pool, deployment } = this.connections;
    return configureTenant(pool, this.tenant, policy, deployment);
  }

  async pins(request: OfSession): Promise<Pins> {
    const { policy } = await this.policy(request);
    return { pins: policy.pins ?? [] };
  }

  async pin({ session, ...request }: Asked<'pin'>): Promise<PolicyVersion> {
    return operating.pin(this.connections, this.ids({ session }), checked(pins, request));
  }

  async compactions(request: OfSession): Promise<CompactionOutcome[]> {
    const { pool } = this.connections;
    const ids = this.ids(request);
    const rows = await listCompactions(pool, ids);
    // There are no compactions yet, or the session does not exist; in the second case this throws.
    if (rows.length === 0) await loadSession(pool, ids);
    return rows.map(outcomeOf);
  }

  async timeline(request: OfSession): Promise<Timeline> {
    return timeline(this.connections.pool, this.ids(request));
  }

  async archive(request: OfSession): Promise<ArchivePart[]>;
  async archive(request: OfSession & { part: number }): Promise<LoggedMessage[]>;
  async archive({ part, ...of }: OfSession & { part?: number }): Promise<ArchivePart[] | LoggedMessage[]> {
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

  replay(request: OfSession): AsyncGenerator<LoggedMessage> {
    return replay(this.connections.pool, this.ids(request));
  }

  export(request: OfSession): AsyncGenerator<string> {
    return exportSession(this.connections.pool, this.ids(request));
  }

  async search({ session, ...request }: Asked<'search'>): Promise<SearchResult> {
    const { pool, embedder } = this.connections;
    return search(pool, this.ids({ session }), checked(searchRequest, request), embedder);
  }

  async toolResponse({ session, ...request }: Asked<'toolResponse'>): Promise<ToolResponse> {
    return toolResponse(this.connections.pool, this.ids({ session }), checked(responseRequest, request));
  }

  async expand({ session, ...request }: Asked<'expand'>): Promise<Expansion> {
    return expand(this.connections.pool, this.ids({ session }), checked(expandRequest, request));
  }

  historyLog(request: OfSession): AsyncGenerator<string> {
    return historyLog(this.connections.pool, this.ids(request));
  }

  async restore({ session, ...request }: Asked<'restore'>): Promise<CompactionOutcome> {
    const { generation } = checked(restoreRequest, request);
    return outcomeOf(await restore(this.connections.pool, this.ids({ session }), generation));
  }

  async fork({ session, ...request }: Asked<'fork'>): Promise<Forked> {
    return fork(this.connections.pool, this.ids({ session }), checked(forkRequest, request));
  }

  async startBackfill(request: BackfillRequest): Promise<Backfill> {
    return this.jobs.start(request);
  }

  async estimateBackfill(request: EstimateRequest): Promise<BackfillEstimate> {
    return this.jobs.estimate(request);
  }

  async backfills(): Promise<Backfill[]> {
    return this.jobs.list();
  }

  async backfill(request: OfJob): Promise<Backfill> {
    return this.jobs.report(request);
  }

  async backfillItems(request: Asked<'backfillItems'>): Promise<BackfillItemList> {
    return this.jobs.items(request);
  }

  async pauseBackfill(request: OfJob): Promise<Backfill> {
    return this.jobs.pause(request);
  }

  async resumeBackfill(request: OfJob): Promise<Backfill> {
    return this.jobs.resume(request);
  }

  async resizeBackfill(request: Asked<'resizeBackfill'>): Promise<Backfill> {
    return this.jobs.resize(request);
  }

  async cancelBackfill(request: OfJob): Promise<Backfill> {
    return this.jobs.cancel(request);
  }

  async retryBackfill(request: Asked<'retryBackfill'>): Promise<Backfill> {
    return this.jobs.retry(request);
  }

  async createToken(request: TokenRequest): Promise<CreatedToken> {
    return createToken(this.connections.pool, this.tenant, request);
  }

  /** For an API: `maker` is the caller's own token. @internal */
  async createTokenBy(maker: TokenMaker | undefined, request: TokenRequest): Promise<CreatedToken> {
    return createToken(this.connections.pool, this.tenant, request, maker);
  }

  async tokens(): Promise<ApiToken[]> {
    return listTokens(this.connections.pool, this.tenant);
  }

  async revokeToken({ id }: OfToken): Promise<ApiToken> {
    return revokeToken(this.connections.pool, this.tenant, id);
  }

  /** Throws `Input.Invalid` for an invalid session id. */
  private ids({ session }: OfSession): SessionIds {
    const ids = { tenant: this.tenant, session };
    sessionWorkflowId(ids);
    return ids;
  }
}

checkRequests(Palimpsest.prototype);
