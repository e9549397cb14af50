/**
 * Search in one session, its archive and its tail alike. A session's texts are read through by their primary key: 0.1 to
 * 0.5 s for 100,000 messages (88 MB), 0.05 s for one result of 20 MB. GIN indexes over words and trigrams would answer in
 * milliseconds, but made each write sixteen times as expensive, took more room than the texts, and trigrams need an
 * extension that managed servers may refuse.
 */
import type { Pool } from 'pg';
import { roles, type Role } from '../conversation/message.js';
import { invalid } from '../errors.js';
import { checkWhole } from './bounds.js';
import { indexTexts } from './search-index.js';
import { parseQuery, snippetOf, type Pattern, type SearchMode } from './search-query.js';
import type { SessionIds } from './sessions.js';
import { storable } from './text.js';
import { read } from './transaction.js';

export interface SearchRequest {
  /** At most 10,000 characters; a substring at most 2,000. */
  query: string;
  /** `words` finds messages with every word of the query (the last one may be a beginning), phrases in `"…"`. @default 'words' */
  mode?: SearchMode;
  role?: Role;
  /** Name of a tool: its results, and the messages that call it. */
  tool?: string;
  /** Only messages of this range. Where it is one message, every place in a long text is an own hit. */
  fromSeq?: number;
  throughSeq?: number;
  /** Hits at most, up to 50. @default 10 */
  limit?: number;
  /** Hits to leave out, as `nextOffset` said. @default 0 */
  offset?: number;
}

export interface SearchHit {
  seq: number;
  role: Role;
  /** Tool of a result; tools that an assistant message calls, separated by commas; null for none. */
  tool: string | null;
  /**
   * Where in the message's text the match begins, in UTF-16 code units: for a string content the same offset that
   * `toolResponse` pages by. A text is content, then calls, then reasoning.
   */
  offset: number;
  /** One line around the match, which stands between `«` and `»`. */
  snippet: string;
  /** Higher is better; substrings are all 1 and ordered newest first. */
  rank: number;
}

export interface SearchResult {
  /** As served: a query without any letter or digit is looked for as a substring. */
  mode: SearchMode;
  hits: SearchHit[];
  /** Where the next page begins; null where there is none. */
  nextOffset: number | null;
}

/** Messages that answer the query, best first. Throws `Input.Invalid`, `Store.SessionNotFound`. */
export async function search(pool: Pool, ids: SessionIds, request: SearchRequest): Promise<SearchResult> {
  const { limit = 10, offset = 0, fromSeq = 1, throughSeq = 2 ** 31 - 1, role, tool } = request;
  const pattern = parseQuery(request.query, request.mode);
  checkWhole(limit, 'limit', 1, 50);
  checkWhole(offset, 'offset', 0);
  checkWhole(fromSeq, 'fromSeq', 1);
  checkWhole(throughSeq, 'throughSeq', 1);
  if (role !== undefined && !roles.includes(role))
    throw invalid(`${String(role)} is no role`, 'role', `Give one of ${roles.join(', ')}.`);
  await indexTexts(pool, ids);
  const rows = await read<HitRow>(pool, statementFor(pattern, fromSeq === throughSeq), [
    ids.tenant,
    ids.session,
    fromSeq,
    throughSeq,
    role ?? null,
    tool === undefined ? null : storable(tool),
    pattern.mode === 'words' ? pattern.tsquery : pattern.text,
    limit + 1,
    offset,
  ]);
  const hits = onceEach(rows.slice(0, limit).map((row) => toHit(row, pattern)));
  return { mode: pattern.mode, hits, nextOffset: rows.length > limit ? offset + limit : null };
}

interface HitRow {
  [column: string]: unknown;
  seq: number;
  role: Role;
  tool: string | null;
  char_offset: number;
  body: string;
  rank: number;
}

function toHit({ seq, role, tool, char_offset, body, rank }: HitRow, pattern: Pattern): SearchHit {
  const { offset, snippet } = snippetOf(body, pattern);
  return {
    seq,
    role,
    tool: tool?.replaceAll('\n', ', ') ?? null,
    offset: char_offset + offset,
    snippet,
    rank,
  };
}

/** Slices overlap: what stands in two of them is one place. */
function onceEach(hits: readonly SearchHit[]): SearchHit[] {
  const places = new Set<string>();
  return hits.filter(({ seq, offset }) => {
    const place = `${seq}:${offset}`;
    return !places.has(place) && places.add(place);
  });
}

/** Texts are joined to the page alone, so that ranking moves none. */
function statementFor({ mode }: Pattern, everySlice: boolean): string {
  const [condition, rank] =
    mode === 'words'
      ? ['words @@ $7::tsquery', 'ts_rank_cd(words, $7::tsquery)']
      : ['strpos(lower(body), lower($7)) > 0', '1'];
  return `
with found as (
  select seq, slice, role, tool, char_offset, ${rank}::float8 as rank from palimpsest.message_texts
  where tenant_id = $1 and session_id = $2 and seq between $3 and $4
    and ($5::text is null or role = $5) and ($6::text is null or $6 = any (string_to_array(tool, chr(10))))
    and ${condition}
), best as (
  select distinct on (seq${everySlice ? ', slice' : ''}) * from found order by seq, ${everySlice ? 'slice, ' : ''}rank desc, slice
), page as (
  select * from best order by rank desc, seq desc, slice limit $8 offset $9
)
select page.*, t.body from page join palimpsest.message_texts t
  on t.tenant_id = $1 and t.session_id = $2 and t.seq = page.seq and t.slice = page.slice
order by page.rank desc, page.seq desc, page.slice`;
}
