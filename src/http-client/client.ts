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
import { checkContextRequest, type SessionContext } from '../contract/context.js';
import { encodeIdPart } from '../contract/ids.js';
import type { CompactionOutcome } from '../contract/workflows.js';
import type { Forked, ForkRequest, Status, Timeline } from '../contract/sessions.js';
import type { ChatMessage, LoggedMessage } from '../conversation/message.js';
import { checkPlainJson } from '../conversation/json.js';
import { invalid } from '../errors.js';
import { compactionBy, settledBy } from './long-calls.js';
import { type Exchange, parsed, replayed, Transport, type TransportOptions } from './transport.js';

/**
 * `palimpsest/http`: everything the library does, asked of `palimpsest api`. Needs neither PostgreSQL nor Temporal, and
 * no package beyond what Node has.
 */
export interface HttpOptions extends TransportOptions {
  /** Contexts kept so that one that has not changed is not sent again; each as long as its JSON. @default 100 */
  keptContexts?: number;
}

type Query = Exchange['query'];

/**
 * The same methods, values and failures as `Palimpsest`. Requests that only read, and `appendTurn`, are repeated where
 * the connection broke; everything else fails with `Api.Unavailable`, and whether it was done is for its caller to see.
 *
 * @example
 * const palimpsest = await HttpPalimpsest.connect({ url: 'http://127.0.0.1:7280', token });
 * await palimpsest.appendTurn({ session: 's-1', turnId: 't-1', messages: [{ role: 'user', content: 'Hello' }] });
 */
export class HttpPalimpsest implements client.PalimpsestClient {
  private readonly contexts: KeptContexts;

  private constructor(
    private readonly transport: Transport,
    keptContexts: number,
  ) {
    this.contexts = new KeptContexts(keptContexts);
  }

  /** Throws `Api.Unavailable` where nothing answers, `Api.Unauthorized` where the token is not known. */
  static async connect({ keptContexts = 100, ...options }: HttpOptions): Promise<HttpPalimpsest> {
    const palimpsest = new HttpPalimpsest(new Transport(options), keptContexts);
    await palimpsest.tenantPolicy();
    return palimpsest;
  }

  /** Nothing is held open between calls. */
  async close(): Promise<void> {}

  async appendTurn({ session, ...turn }: client.Turn): Promise<client.AppendedTurn> {
    if (typeof turn.turnId !== 'string' || turn.turnId === '')
      throw invalid('turnId must be a non-empty string', 'turnId');
    // Under its id a turn is stored once, however often it arrives.
    return this.post(`${of(session)}/turns`, turn, { repeatable: true });
  }

  async context<Message = ChatMessage>({
    session,
    format,
    budget,
    waitMs = 0,
  }: client.ContextRequest): Promise<SessionContext<Message>> {
    checkContextRequest({ budget, waitMs });
    const path = `${of(session)}/context`;
    const key = JSON.stringify([path, format, budget]);
    const kept = this.contexts.get(key);
    const { response, text } = await this.transport.text({
      ...{ method: 'GET', path, waitMs },
      query: { format, budget, wait: waitMs || undefined },
      ...(kept ? { headers: { 'if-none-match': kept.etag } } : {}),
    });
    const etag = response.headers.get('etag');
    const unchanged = response.status === 304 && kept !== undefined;
    if (!unchanged && etag !== null) this.contexts.put(key, { etag, text });
    return parsed(unchanged ? kept.text : text, response) as SessionContext<Message>;
  }

  async compact({ session, wait }: client.CompactRequest): Promise<CompactionOutcome | null> {
    return compactionBy(this, this.transport, `${of(session)}/compact`, session, wait);
  }

  async resummarize({ session, wait }: client.CompactRequest): Promise<CompactionOutcome | null> {
    return compactionBy(this, this.transport, `${of(session)}/resummarize`, session, wait);
  }

  async status({ session }: client.OfSession): Promise<Status> {
    return this.get(`${of(session)}/status`);
  }

  async settled({ session, timeoutMs = 60_000 }: client.OfSession & { timeoutMs?: number }): Promise<void> {
    await settledBy(this.transport, `${of(session)}/settled`, timeoutMs);
  }

  async sessions({ after, limit, prefix, failed }: client.ListRequest = {}): Promise<client.SessionList> {
    return this.get('/v1/sessions', { after, limit, prefix, failed });
  }

  async closeSession({ session }: client.OfSession): Promise<void> {
    await this.post(`${of(session)}/close`);
  }

  async erase({ session, forks }: client.EraseRequest): Promise<client.Erased> {
    return this.transport.json({ method: 'DELETE', path: of(session), query: { forks: forks || undefined } });
  }

  async pause({ session }: client.OfSession): Promise<void> {
    await this.post(`${of(session)}/pause`);
  }

  async resume({ session }: client.OfSession): Promise<void> {
    await this.post(`${of(session)}/resume`);
  }

  async policy({ session }: client.OfSession): Promise<client.SessionPolicy> {
    return this.get(`${of(session)}/policy`);
  }

  async configure({ session, policy }: client.ConfigureRequest): Promise<{ policyVersion: number }> {
    return this.put(`${of(session)}/policy`, { policy });
  }

  async tenantPolicy(): Promise<client.SessionPolicy> {
    return this.get('/v1/policy');
  }

  async configureTenant({ policy }: client.ConfigureTenantRequest): Promise<{ policyVersion: number }> {
    return this.put('/v1/policy', { policy });
  }

  async pins({ session }: client.OfSession): Promise<{ pins: client.Pins }> {
    return this.get(`${of(session)}/pins`);
  }

  async pin({ session, pins }: client.PinsRequest): Promise<{ policyVersion: number }> {
    return this.put(`${of(session)}/pins`, { pins });
  }

  async compactions({ session }: client.OfSession): Promise<CompactionOutcome[]> {
    type Answer = { compactions: CompactionOutcome[] };
    return (await this.get<Answer>(`${of(session)}/compactions`)).compactions;
  }

  async timeline({ session }: client.OfSession): Promise<Timeline> {
    return this.get(`${of(session)}/timeline`);
  }

  async archive(request: client.OfSession): Promise<ArchivePart[]>;
  async archive(request: client.OfSession & { part: number }): Promise<LoggedMessage[]>;
  async archive({
    session,
    part,
  }: client.OfSession & { part?: number }): Promise<ArchivePart[] | LoggedMessage[]> {
    const path = `${of(session)}/archive`;
    if (part !== undefined)
      return (await this.get<{ messages: LoggedMessage[] }>(`${path}/${part}`)).messages;
    const { parts } = await this.get<{ parts: ArchivePart[] }>(path);
    return parts.map((each) => ({ ...each, createdAt: new Date(each.createdAt) }));
  }

  replay({ session }: client.OfSession): AsyncGenerator<LoggedMessage> {
    return replayed(this.transport, `${of(session)}/replay`);
  }

  export({ session }: client.OfSession): AsyncGenerator<string> {
    return this.transport.stream({ method: 'GET', path: `${of(session)}/export` });
  }

  async search({ session, ...request }: client.OfSession & SearchRequest): Promise<SearchResult> {
    return this.post(`${of(session)}/search`, request, { repeatable: true });
  }

  async toolResponse({
    session,
    ...request
  }: client.OfSession & ResponseReference & Page): Promise<ToolResponse> {
    return this.get(`${of(session)}/tool-response`, { ...request });
  }

  async expand({ session, ...request }: client.OfSession & ExpandRequest): Promise<Expansion> {
    return this.get(`${of(session)}/messages`, { ...request });
  }

  historyLog({ session }: client.OfSession): AsyncGenerator<string> {
    return this.transport.stream({ method: 'GET', path: `${of(session)}/history` });
  }

  async restore({
    session,
    generation,
  }: client.OfSession & { generation: number }): Promise<CompactionOutcome> {
    return this.post(`${of(session)}/restore`, { generation });
  }

  async fork({ session, to, throughSeq }: client.OfSession & ForkRequest): Promise<Forked> {
    encodeIdPart(to, 'to');
    return this.post(`${of(session)}/fork`, { to, throughSeq });
  }

  async startBackfill(request: jobs.BackfillRequest): Promise<jobs.Backfill> {
    return this.post('/v1/backfills', request);
  }

  async estimateBackfill(request: Omit<jobs.BackfillRequest, 'job'>): Promise<jobs.BackfillEstimate> {
    return this.post('/v1/backfills/estimate', request, { repeatable: true });
  }

  async backfills(): Promise<jobs.Backfill[]> {
    return (await this.get<{ backfills: jobs.Backfill[] }>('/v1/backfills')).backfills;
  }

  async backfill({ job }: { job: string }): Promise<jobs.Backfill> {
    return this.get(ofJob(job));
  }

  async backfillItems({ job, ...query }: jobs.BackfillItemRequest): Promise<jobs.BackfillItemList> {
    return this.get(`${ofJob(job)}/items`, { ...query });
  }

  async pauseBackfill({ job }: { job: string }): Promise<jobs.Backfill> {
    return this.post(`${ofJob(job)}/pause`);
  }

  async resumeBackfill({ job }: { job: string }): Promise<jobs.Backfill> {
    return this.post(`${ofJob(job)}/resume`);
  }

  async resizeBackfill({ job, concurrency }: { job: string; concurrency: number }): Promise<jobs.Backfill> {
    return this.post(`${ofJob(job)}/resize`, { concurrency });
  }

  async cancelBackfill({ job }: { job: string }): Promise<jobs.Backfill> {
    return this.post(`${ofJob(job)}/cancel`);
  }

  async retryBackfill({ job, ...request }: { job: string; spendLimit?: number }): Promise<jobs.Backfill> {
    return this.post(`${ofJob(job)}/retry`, request);
  }

  private get<Answer>(path: string, query?: Query): Promise<Answer> {
    return this.transport.json({ method: 'GET', path, query });
  }

  private async post<Answer>(path: string, body?: object, more: Partial<Exchange> = {}): Promise<Answer> {
    return this.transport.json({ method: 'POST', path, body: body && sendable(body), ...more });
  }

  private async put<Answer>(path: string, body: object): Promise<Answer> {
    return this.transport.json({ method: 'PUT', path, body: sendable(body) });
  }
}

function of(session: string): string {
  return `/v1/sessions/${idInPath(session, 'session')}`;
}

function ofJob(job: string): string {
  return `/v1/backfills/${idInPath(job, 'job')}`;
}

function idInPath(id: string, field: string): string {
  const encoded = encodeIdPart(id, field);
  if (encoded !== '.' && encoded !== '..') return encoded;
  throw invalid(`${field} ${id} cannot stand in a URL`, field, 'Give it another id, or use the library.');
}

/** Throws `Input.Invalid` for what JSON would change on its way. */
function sendable<Body extends object>(body: Body): Body {
  for (const [field, value] of Object.entries(body)) if (value !== undefined) checkPlainJson(value, field);
  return body;
}

/** Contexts as they were last answered, so that one that has not changed need not be sent again. */
interface KeptContext {
  /** The header as it came. */
  etag: string;
  text: string;
}

class KeptContexts {
  private readonly kept = new Map<string, KeptContext>();

  /** `most`: contexts at most; the one used least recently goes first. */
  constructor(private readonly most: number) {}

  get(key: string): KeptContext | undefined {
    const found = this.kept.get(key);
    if (found) this.put(key, found);
    return found;
  }

  put(key: string, context: KeptContext): void {
    // A map keeps the order of insertion: what is put in anew comes last.
    this.kept.delete(key);
    this.kept.set(key, context);
    const [oldest] = this.kept.keys();
    if (this.kept.size > this.most && oldest !== undefined) this.kept.delete(oldest);
  }
}
