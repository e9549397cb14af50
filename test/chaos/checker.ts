/**
 * Compares the database with the answers that the agents got. It shares no code with the product: it reads the tables with
 * separate SQL and recomputes every hash, chain and counter.
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import { markersIn, type Journal, type SessionJournal } from './journal.js';
import type { Violation } from './observations.js';

export interface CheckOptions {
  databaseUrl: string;
  journal: Journal;
  /** Stands in no good answer of the model. */
  junk: string;
  /** A session that has asked for something for longer than this is overdue. Milliseconds. */
  patienceMs: number;
}

export interface Checked {
  violations: Violation[];
  sessions: number;
  messages: number;
  compactions: number;
  archiveParts: number;
  byModel: number;
  /** Of those, the ones whose every chunk a model read. */
  byModelAlone: number;
  byRule: number;
  /** Generations with a journal. */
  journals: number;
}

interface SessionRow {
  generation: number;
  through_seq: number;
  next_seq: number;
  system_through_seq: number;
  indexed_through_seq: number;
  live_tokens: number;
  live_messages: number;
  measure_at_tokens: number | null;
  measure_at_messages: number | null;
  exhausted: unknown;
  retry_at: Date | null;
  paused_at: Date | null;
  updated_at: Date;
}

interface MessageRow {
  seq: number;
  turn_id: string;
  tokens: number;
  sha256: Buffer;
  body: string;
}

interface CompactionRow {
  generation: number;
  parent_generation: number | null;
  parent_through_seq: number | null;
  from_seq: number;
  through_seq: number;
  method: string;
  reason: string;
  snapshot: string | null;
  head: string | null;
  head_tokens: number[];
  coverage: { fromSeq: number; throughSeq: number; how: string }[];
  chunks: number;
  chunks_by_rule: number;
  layers: unknown;
  archive_part: number | null;
  workflow_id: string;
  model_calls: number;
  digests: number;
  /** Calls for all answers that were stored while this generation was prepared. */
  calls_paid: number;
}

interface PartRow {
  part: number;
  generation: number;
  from_seq: number;
  through_seq: number;
  messages: number;
  tokens: number;
  bytes: number;
  sha256: Buffer;
}

interface ReductionRow {
  generation: number;
  budget: number;
  position: number;
  from_seq: number;
  through_seq: number;
  body: string;
  tokens: number;
}

/**
 * Has the database remember every answer that is stored from now on, with the calls that it took: an answer that went into no
 * generation expires, and remains charged to the one that it was paid for.
 */
export async function rememberAnswers(databaseUrl: string): Promise<void> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  await client
    .query(
      `create schema chaos;
       create table chaos.answers (tenant_id text, session_id text, generation int, calls int, created_at timestamptz);
       create function chaos.remember() returns trigger language plpgsql security definer as $$ begin
         insert into chaos.answers
         values (new.tenant_id, new.payer_session, new.payer_generation, new.calls, new.created_at);
         return null;
       end $$;
       create trigger remember after insert on palimpsest.digests for each row execute function chaos.remember()`,
    )
    .finally(() => client.end());
}

/** `databaseUrl`: of a database that has remembered answers from its beginning on. */
export async function checkDatabase({
  databaseUrl,
  journal,
  junk,
  patienceMs,
}: CheckOptions): Promise<Checked> {
  const client = new pg.Client({ connectionString: databaseUrl });
  // 64-bit counters are small here.
  client.setTypeParser(pg.types.builtins.INT8, Number);
  await client.connect();
  const checked: Checked = {
    violations: [],
    ...{ sessions: 0, messages: 0, compactions: 0, archiveParts: 0 },
    ...{ byModel: 0, byModelAlone: 0, byRule: 0, journals: 0 },
  };
  try {
    await strangers(client, journal, checked);
    for (const entry of journal.all()) await new SessionCheck(client, entry, checked, junk, patienceMs).run();
    await digestsHoldNothingErased(client, journal, junk, checked);
    await jobsHaveEnded(client, checked);
  } finally {
    await client.end();
  }
  return checked;
}

/** Sessions that no agent began. */
async function strangers(client: pg.Client, journal: Journal, { violations }: Checked): Promise<void> {
  const { rows } = await client.query<{ tenant_id: string; session_id: string }>(
    'select tenant_id, session_id from palimpsest.sessions',
  );
  for (const { tenant_id, session_id } of rows)
    if (journal.find(tenant_id, session_id) === undefined)
      violations.push({ kind: 'orphaned', what: `session ${tenant_id}/${session_id} was begun by nobody` });
}

class SessionCheck {
  private readonly ids: [string, string];

  constructor(
    private readonly client: pg.Client,
    private readonly entry: SessionJournal,
    private readonly checked: Checked,
    private readonly junk: string,
    private readonly patienceMs: number,
  ) {
    this.ids = [entry.tenant, entry.session];
  }

  async run(): Promise<void> {
    const [session] = await this.rows<SessionRow>(
      'select * from palimpsest.sessions where tenant_id = $1 and session_id = $2',
    );
    if (session === undefined || this.entry.erased) return this.isGone(session);
    this.checked.sessions++;
    const of = 'where tenant_id = $1 and session_id = $2';
    const messages = await this.rows<MessageRow>(`select * from palimpsest.messages ${of} order by seq`);
    const compactions = await this.rows<CompactionRow>(
      `select c.*, (select count(*) from palimpsest.compaction_digests d where d.tenant_id = c.tenant_id
         and d.session_id = c.session_id and d.generation = c.generation) as digests,
         (select coalesce(sum(a.calls), 0) from chaos.answers a join palimpsest.sessions s using (tenant_id, session_id)
         where a.tenant_id = c.tenant_id and a.session_id = c.session_id and a.generation = c.generation
         and a.created_at >= s.created_at) as calls_paid
       from palimpsest.compactions c ${of} order by generation`,
    );
    const parts = await this.rows<PartRow>(`select * from palimpsest.archive_parts ${of} order by part`);
    const reductions = await this.rows<ReductionRow>(
      `select * from palimpsest.reductions ${of} order by generation, budget, position`,
    );
    this.logIsWhatWasTold(session, messages);
    await this.turnsAreWhatWasTold();
    this.compactionsFollowOneAnother(session, compactions);
    this.chainCoversThePrefix(session, compactions);
    this.partsHoldTheOriginals(compactions, parts, messages);
    this.everyEvictionWasRead(session, compactions);
    this.nothingIsChargedTwice(compactions);
    this.restoredIsWhatItWas(compactions, reductions);
    this.countersAreRight(session, messages, compactions, reductions);
    this.nothingIsForeign(messages, compactions, reductions);
    await this.searchTextsAreTheLog(session);
    this.nothingIsOverdue(session);
    this.checked.messages += messages.length;
    this.checked.compactions += compactions.length - 1;
    this.checked.archiveParts += parts.length;
    const byModel = compactions.filter(({ method }) => method === 'model');
    this.checked.byModel += byModel.length;
    this.checked.byModelAlone += byModel.filter(({ chunks_by_rule }) => chunks_by_rule === 0).length;
    this.checked.journals += compactions.filter(({ layers }) => layers !== null).length;
    this.checked.byRule += compactions.filter(({ method }) => method === 'extractive').length;
  }

  private async rows<Row extends pg.QueryResultRow>(sql: string): Promise<Row[]> {
    return (await this.client.query<Row>(sql, this.ids)).rows;
  }

  private violation(kind: string, what: string): void {
    this.checked.violations.push({ kind, what: `${this.ids.join('/')}: ${what}` });
  }

  private async isGone(session: SessionRow | undefined): Promise<void> {
    if (!this.entry.erased) return this.violation('lost', 'the session is not there');
    if (session !== undefined) this.violation('erased', 'the session is there again');
    for (const table of sessionTables) {
      const found = await this.rows<{ found: number }>(
        `select count(*) as found from palimpsest.${table} where tenant_id = $1 and session_id = $2`,
      );
      if (found[0]!.found > 0) this.violation('erased', `${found[0]!.found} rows are left in ${table}`);
    }
  }

  private logIsWhatWasTold({ next_seq }: SessionRow, messages: readonly MessageRow[]): void {
    const { messages: told } = this.entry;
    if (messages.length < told.length)
      this.violation('lost', `${told.length} messages were acknowledged, ${messages.length} are there`);
    if (messages.length > told.length)
      this.violation('doubled', `${told.length} messages were acknowledged, ${messages.length} are there`);
    if (next_seq !== messages.length + 1)
      this.violation('log', `next_seq is ${next_seq} after ${messages.length} messages`);
    for (const [index, { seq, body, sha256 }] of messages.entries()) {
      if (seq !== index + 1) return this.violation('log', `seq ${seq} stands at place ${index + 1}`);
      if (!sha256.equals(hashOf(body))) this.violation('log', `message ${seq} does not match its hash`);
      if (told[index] !== undefined && body !== told[index])
        return this.violation('altered', `message ${seq} is not what was acknowledged`);
    }
  }

  private async turnsAreWhatWasTold(): Promise<void> {
    const turns = await this.rows<{ turn_id: string; from_seq: number; through_seq: number }>(
      'select * from palimpsest.turns where tenant_id = $1 and session_id = $2 order by from_seq',
    );
    const told = this.entry.turns;
    if (turns.length !== told.length)
      this.violation('log', `${told.length} turns were acknowledged, ${turns.length} are there`);
    let next = 1;
    for (const { turn_id, from_seq, through_seq } of turns) {
      if (from_seq !== next) this.violation('log', `turn ${turn_id} begins at ${from_seq}, not at ${next}`);
      next = through_seq + 1;
    }
  }

  /** A commit replaces the current head: a plan made for another one must not be committed. */
  private compactionsFollowOneAnother(session: SessionRow, compactions: readonly CompactionRow[]): void {
    const newest = compactions.at(-1);
    if (newest?.generation !== session.generation)
      this.violation(
        'orphaned',
        `generation ${newest?.generation} was committed, the head is ${session.generation}`,
      );
    for (const [index, one] of compactions.entries()) {
      const before = compactions[index - 1];
      if (before === undefined) continue;
      if (one.reason !== 'restore' && one.parent_generation !== before.generation)
        this.violation(
          'stale',
          `generation ${one.generation} replaced ${one.parent_generation}, not ${before.generation}`,
        );
    }
  }

  private chainCoversThePrefix(session: SessionRow, compactions: readonly CompactionRow[]): void {
    const byGeneration = new Map(compactions.map((one) => [one.generation, one]));
    let through = session.through_seq;
    for (let at = byGeneration.get(session.generation); at !== undefined && at.generation !== 0;) {
      if (at.through_seq !== through)
        this.violation('chain', `generation ${at.generation} ends at ${at.through_seq}, not at ${through}`);
      through = at.from_seq - 1;
      if (at.parent_through_seq !== through)
        this.violation(
          'chain',
          `generation ${at.generation} follows ${at.parent_through_seq}, but begins at ${at.from_seq}`,
        );
      at = byGeneration.get(at.parent_generation ?? -1);
    }
    if (through !== 0) this.violation('chain', `messages 1–${through} are in no generation of the chain`);
    const head = byGeneration.get(session.generation)?.head ?? null;
    if (session.through_seq > 0 && head === null)
      this.violation('chain', 'messages were replaced by nothing');
  }

  private partsHoldTheOriginals(
    compactions: readonly CompactionRow[],
    parts: readonly PartRow[],
    messages: readonly MessageRow[],
  ): void {
    const byGeneration = new Map(compactions.map((one) => [one.generation, one]));
    for (const { generation, archive_part, from_seq, through_seq } of compactions) {
      const evicts = through_seq >= from_seq;
      const part = parts.find((one) => one.part === archive_part);
      if (evicts !== (part !== undefined))
        this.violation('orphaned', `generation ${generation} and its archive part do not belong together`);
    }
    for (const part of parts) {
      const owner = byGeneration.get(part.generation);
      if (owner?.archive_part !== part.part)
        this.violation('orphaned', `archive part ${part.part} belongs to no generation`);
      const members = messages.slice(part.from_seq - 1, part.through_seq);
      const hash = createHash('sha256');
      for (const { sha256 } of members) hash.update(sha256);
      const bytes = members.reduce((sum, { body }) => sum + Buffer.byteLength(body), 0);
      if (!part.sha256.equals(hash.digest()) || part.messages !== members.length || part.bytes !== bytes)
        this.violation('archive', `archive part ${part.part} is not what the log holds`);
    }
  }

  /** Every evicted message was read, and the model's digest of it is stored. */
  private everyEvictionWasRead(session: SessionRow, compactions: readonly CompactionRow[]): void {
    for (const {
      generation,
      from_seq,
      through_seq,
      coverage,
      method,
      chunks,
      chunks_by_rule,
      digests,
      reason,
      snapshot,
      head,
    } of compactions) {
      if (through_seq < from_seq) continue;
      const read = new Set<number>();
      for (const range of coverage)
        for (let seq = range.fromSeq; seq <= range.throughSeq; seq++) read.add(seq);
      for (let seq = Math.max(from_seq, session.system_through_seq + 1); seq <= through_seq; seq++)
        if (!read.has(seq)) {
          this.violation(
            'unread',
            `generation ${generation} evicted message ${seq}, which no summarizer read`,
          );
          break;
        }
      // Extractive digests are stored by their text: equal ones are one.
      if (method === 'model' && reason !== 'restore' && digests < chunks - chunks_by_rule)
        this.violation(
          'digest',
          `generation ${generation} was made of ${chunks} chunks, ${chunks_by_rule} by rule; ${digests} digests of it are kept`,
        );
      if (`${snapshot} ${head}`.includes(this.junk))
        this.violation('junk', `generation ${generation} took a bad answer for a summary`);
    }
  }

  /** A fork copies the charges of its source, which are not checked. */
  private nothingIsChargedTwice(compactions: readonly CompactionRow[]): void {
    for (const { generation, workflow_id, model_calls, calls_paid } of compactions)
      if (workflow_id !== '' && model_calls > calls_paid)
        this.violation(
          'charged',
          `generation ${generation} is charged for ${model_calls} calls of the model, ${calls_paid} were made for it`,
        );
  }

  /** A restored generation has the head and the committed reductions of the one it restores. */
  private restoredIsWhatItWas(
    compactions: readonly CompactionRow[],
    reductions: readonly ReductionRow[],
  ): void {
    const contextOf = (one: CompactionRow | undefined): string =>
      JSON.stringify([
        [one?.through_seq, one?.head, one?.snapshot],
        reductions
          .filter(({ generation, budget }) => generation === one?.generation && budget === 0)
          .map(({ from_seq, through_seq, body }) => [from_seq, through_seq, body]),
      ]);
    for (const one of compactions)
      if (
        one.reason === 'restore' &&
        contextOf(one) !==
          contextOf(compactions.find(({ generation }) => generation === one.parent_generation))
      )
        this.violation(
          'restored',
          `generation ${one.generation} is not what generation ${one.parent_generation} was, which it restores`,
        );
  }

  private countersAreRight(
    session: SessionRow,
    messages: readonly MessageRow[],
    compactions: readonly CompactionRow[],
    reductions: readonly ReductionRow[],
  ): void {
    const { generation, through_seq, system_through_seq } = session;
    const tail = messages.filter(({ seq }) => seq <= system_through_seq || seq > through_seq);
    const head = compactions.find((one) => one.generation === generation)?.head_tokens ?? [];
    const committed = reductions.filter((one) => one.generation === generation && one.budget === 0);
    const standing = committed.filter(
      (one) =>
        !committed.some(
          (later) =>
            later.position > one.position &&
            later.from_seq <= one.from_seq &&
            later.through_seq >= one.through_seq,
        ),
    );
    let tokens = sum(tail.map((one) => one.tokens)) + sum(head);
    let count = tail.length + head.length;
    for (const { from_seq, through_seq: last, tokens: short, body } of standing) {
      const originals = messages.slice(from_seq - 1, last);
      tokens += short - sum(originals.map((one) => one.tokens));
      count += (body === 'null' ? 0 : 1) - originals.length;
    }
    if (tokens !== session.live_tokens || count !== session.live_messages)
      this.violation(
        'counters',
        `${session.live_tokens} tokens in ${session.live_messages} messages are counted, ${tokens} in ${count} are there`,
      );
    const beyond = reductions.find((one) => one.generation > generation);
    if (beyond !== undefined)
      this.violation(
        'orphaned',
        `a reduction belongs to generation ${beyond.generation}, which is not there`,
      );
  }

  /** No word of another tenant, another session, or of this one before it was erased. */
  private nothingIsForeign(
    messages: readonly MessageRow[],
    compactions: readonly CompactionRow[],
    reductions: readonly ReductionRow[],
  ): void {
    const own = new Set(this.entry.messages.flatMap(markersIn));
    const look = (where: string, text: string | null): void => {
      const foreign = markersIn(text ?? '').find((one) => !own.has(one));
      if (foreign !== undefined) this.violation('foreign', `${where} holds ${foreign}`);
    };
    for (const { seq, body } of messages) look(`message ${seq}`, body);
    for (const { generation, head, snapshot } of compactions)
      look(`generation ${generation}`, `${head} ${snapshot}`);
    for (const { generation, body } of reductions) look(`a reduction of generation ${generation}`, body);
  }

  /** Exactly the messages marked as searchable are indexed. */
  private async searchTextsAreTheLog({ next_seq, indexed_through_seq }: SessionRow): Promise<void> {
    const texts = await this.rows<{ seq: number; body: string }>(
      'select seq, body from palimpsest.message_texts where tenant_id = $1 and session_id = $2',
    );
    const own = new Set(this.entry.messages.flatMap(markersIn));
    const alien = texts.find(
      ({ seq, body }) => seq >= next_seq || markersIn(body).some((one) => !own.has(one)),
    );
    if (alien !== undefined)
      this.violation('foreign', `the search text of message ${alien.seq} is of another session`);
    if (indexed_through_seq >= next_seq)
      this.violation(
        'unsearchable',
        `${indexed_through_seq} messages of ${next_seq - 1} are said to be searchable`,
      );
    const found = new Set(texts.flatMap(({ seq, body }) => markersIn(body).map((one) => `${seq} ${one}`)));
    for (const [index, message] of this.entry.messages.slice(0, indexed_through_seq).entries())
      if (markersIn(message).some((one) => !found.has(`${index + 1} ${one}`)))
        return this.violation(
          'unsearchable',
          `the text of message ${index + 1} is not there, though the first ${indexed_through_seq} are said to be searchable`,
        );
  }

  private nothingIsOverdue(session: SessionRow): void {
    const {
      live_tokens,
      live_messages,
      measure_at_tokens,
      measure_at_messages,
      exhausted,
      paused_at,
      retry_at,
    } = session;
    const since = Math.max(session.updated_at.getTime(), retry_at?.getTime() ?? 0);
    if (paused_at !== null || exhausted !== null || Date.now() - since < this.patienceMs) return;
    const due =
      (measure_at_tokens !== null && live_tokens >= measure_at_tokens) ||
      (measure_at_messages !== null && live_messages >= measure_at_messages);
    if (due)
      this.violation(
        'overdue',
        `${live_tokens} tokens in ${live_messages} messages; a measurement was due at ${measure_at_tokens} or ${measure_at_messages}`,
      );
  }
}

const sessionTables = [
  ...[
    'reductions',
    'compaction_digests',
    'archive_parts',
    'compactions',
    'message_texts',
    'messages',
    'turns',
  ],
  ...['backfill_items', 'sessions'],
];

async function digestsHoldNothingErased(
  client: pg.Client,
  journal: Journal,
  junk: string,
  { violations }: Checked,
): Promise<void> {
  const own = new Map<string, Set<string>>();
  for (const { tenant, messages } of journal.all()) {
    const markers = own.get(tenant) ?? new Set();
    for (const message of messages) for (const one of markersIn(message)) markers.add(one);
    own.set(tenant, markers);
  }
  const { rows } = await client.query<{ tenant_id: string; key: string; text: string }>(
    'select tenant_id, key, text from palimpsest.digests',
  );
  for (const { tenant_id, key, text } of rows) {
    if (text.includes(junk)) violations.push({ kind: 'junk', what: `digest ${key} is a bad answer` });
    const foreign = markersIn(text).find((one) => !own.get(tenant_id)?.has(one));
    if (foreign !== undefined)
      violations.push({ kind: 'erased', what: `digest ${key} of ${tenant_id} still holds ${foreign}` });
  }
}

async function jobsHaveEnded(client: pg.Client, { violations }: Checked): Promise<void> {
  const { rows: jobs } = await client.query<{ tenant_id: string; job: string; state: string }>(
    `select tenant_id, job, state from palimpsest.backfills where state in ('running', 'paused')`,
  );
  for (const { tenant_id, job, state } of jobs)
    violations.push({ kind: 'stuck', what: `backfill ${tenant_id}/${job} is still ${state}` });
  const { rows: items } = await client.query<{ job: string; session_id: string; state: string }>(
    `select i.job, i.session_id, i.state from palimpsest.backfill_items i
     join palimpsest.backfills b on b.tenant_id = i.tenant_id and b.job = i.job
     where b.state not in ('running', 'paused') and i.state = 'running'`,
  );
  for (const { job, session_id } of items)
    violations.push({ kind: 'stuck', what: `${session_id} is still running in the ended backfill ${job}` });
}

const hashOf = (text: string): Buffer => createHash('sha256').update(text).digest();
const sum = (numbers: readonly number[]): number => numbers.reduce((total, one) => total + one, 0);
