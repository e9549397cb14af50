/** The summaries and archived messages of a session, for `status`. */
import type { Pool } from 'pg';
import { partsBehind } from './replay.js';
import type { SessionIds } from '../../contract/ids.js';
import type { SessionRow } from '../sessions/session-row.js';
import { presentRedaction, shownText } from '../compactions/redacted.js';
import { toolNames } from '../log/tool-names.js';
import { reading, type Query } from '../connection/transaction.js';
import type { SessionRecords, SummaryRecord } from '../../contract/sessions.js';

const most = { records: 50, tools: 50, characters: 500 };

export async function recordsOf(pool: Pool, session: SessionRow): Promise<SessionRecords> {
  const query = reading(pool, session);
  const [said, records, totals, lastSummary, toolHistoryArchived] = await Promise.all([
    saidIn(query, session),
    summaryRecords(query, session),
    totalsOf(query, session),
    summaryOf(query, session),
    archivedTools(query, session),
  ]);
  return { said, summaryRecords: records, toolHistoryArchived, ...totals, lastSummary };
}

/** Reads two rows by key only, because `status` is called often. */
async function saidIn(
  query: Query,
  { tenant, session, systemThroughSeq, nextSeq }: SessionRow,
): Promise<SessionRecords['said']> {
  const rows = await query<{ seq: number; at: Date }>(
    `select seq, at from palimpsest.messages
     where tenant_id = $1 and session_id = $2 and seq = any ($3::int[]) and at is not null`,
    [tenant, session, [systemThroughSeq + 1, nextSeq - 1]],
  );
  const of = (seq: number) => rows.find((row) => row.seq === seq)?.at.toISOString() ?? null;
  return { first: of(systemThroughSeq + 1), last: of(nextSeq - 1) };
}

interface RecordRow {
  [column: string]: unknown;
  generation: number;
  at: Date;
  reason: string;
  method: SummaryRecord['method'];
  fallback: boolean;
  chunks_by_rule: number;
  from_seq: number;
  through_seq: number;
  tokens_before: number;
  tokens_after: number;
  evicted: number;
  summary: string | null;
  redaction: string;
}

/** The beginning of a summary; the whole summary if it must be redacted before it is cut. */
const beginning = `case when redaction = $3 then left(snapshot, ${most.characters}) else snapshot end as summary, redaction`;

function beginningOf({ summary, redaction }: Pick<RecordRow, 'summary' | 'redaction'>, session: SessionRow) {
  if (summary === null) return null;
  const shown = shownText(summary, redaction, session);
  return [...shown.slice(0, 2 * most.characters)].slice(0, most.characters).join('');
}

async function summaryRecords(query: Query, session: SessionRow): Promise<SummaryRecord[]> {
  const rows = await query<RecordRow>(
    `select generation, created_at as at, reason, method, fallback, chunks_by_rule, from_seq, through_seq, tokens_before, tokens_after,
       evicted, ${beginning}
     from palimpsest.compactions where tenant_id = $1 and session_id = $2 and generation > 0
     order by generation desc limit ${most.records}`,
    [session.tenant, session.session, presentRedaction(session)],
  );
  return rows.map((row) => ({
    generation: row.generation,
    at: row.at.toISOString(),
    reason: row.reason,
    method: row.method,
    fallback: row.fallback,
    chunksByRule: row.chunks_by_rule,
    range: row.through_seq < row.from_seq ? null : { fromSeq: row.from_seq, throughSeq: row.through_seq },
    tokensBefore: row.tokens_before,
    tokensAfter: row.tokens_after,
    evicted: row.evicted,
    summary: beginningOf(row, session),
  }));
}

async function totalsOf(
  query: Query,
  { tenant, session }: SessionIds,
): Promise<Pick<SessionRecords, 'summariesPerformed' | 'tokensSummarized'>> {
  const [row] = await query<{ performed: number; tokens: number }>(
    `select count(*) as performed, coalesce(sum(tokens), 0)::bigint as tokens
     from palimpsest.archive_parts where tenant_id = $1 and session_id = $2`,
    [tenant, session],
  );
  return { summariesPerformed: row?.performed ?? 0, tokensSummarized: row?.tokens ?? 0 };
}

async function summaryOf(query: Query, session: SessionRow): Promise<string | null> {
  const [row] = await query<{ summary: string | null; redaction: string }>(
    `select ${beginning} from palimpsest.compactions
     where tenant_id = $1 and session_id = $2 and generation = $4`,
    [session.tenant, session.session, presentRedaction(session), session.generation],
  );
  return row ? beginningOf(row, session) : null;
}

/** Covers only results with a call id. Other results cannot be requested by id. */
async function archivedTools(
  query: Query,
  session: SessionRow,
): Promise<SessionRecords['toolHistoryArchived']> {
  const key = [session.tenant, session.session, session.throughSeq];
  const archived = `from palimpsest.messages
     where tenant_id = $1 and session_id = $2 and seq <= $3 and answers is not null and role = 'tool'`;
  const [total] = await query<{ count: number; tokens: number }>(
    `select count(*) as count, coalesce(sum(tokens), 0)::bigint as tokens ${archived}`,
    key,
  );
  const rows = await query<{ seq: number; answers: string; tokens: number }>(
    `select seq, answers, tokens ${archived} order by seq desc limit ${most.tools}`,
    key,
  );
  const results = rows.map(({ answers, ...row }) => ({ ...row, answers: JSON.parse(answers) as string }));
  const names = await toolNames(query, session, results.toReversed());
  const parts = await partsBehind(query, session, session.generation);
  const newest = results.flatMap(({ seq, answers, tokens }) => {
    const part = parts.find(({ fromSeq, throughSeq }) => fromSeq <= seq && seq <= throughSeq)?.part;
    return part === undefined ? [] : [{ callId: answers, tool: names.get(seq) ?? null, seq, part, tokens }];
  });
  return { count: total?.count ?? 0, tokens: total?.tokens ?? 0, newest };
}
