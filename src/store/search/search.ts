import type { Pool } from 'pg';
import type { Role } from '../../conversation/message.js';
import { echoesIn } from './echoes.js';
import { indexTexts } from './index-texts.js';
import { parseQuery, snippetOf, wordEdges, type Pattern, type WordsPattern } from './query.js';
import { ranked, type Candidate, type Ranked } from './rank.js';
import type { Embedder } from '../../llm/embedder.js';
import { fused, searchByMeaning } from './meaning.js';
import { conditionsOf, scopeOf, type Scope } from './scope.js';
import { loadSession } from '../sessions/sessions.js';
import type { SessionIds } from '../../contract/ids.js';
import { read } from '../connection/transaction.js';
import type {
  FollowingMessage,
  MessageOrigin,
  SearchHit,
  SearchRequest,
  SearchResult,
} from '../../contract/archive.js';

const followingCharacters = 500;

/**
 * Finds messages of the archive and the tail that match the query, best first. Throws `Input.Invalid`,
 * `Store.SessionNotFound`.
 * The texts of a session are scanned by their primary key: 0.1 to 0.5 s for 100,000 messages (88 MB), 0.05 s for one
 * result of 20 MB. GIN indexes over words and trigrams would answer in milliseconds, but made each write sixteen
 * times as expensive and took more storage than the texts. Trigrams also need an extension that managed servers may
 * refuse.
 */
export async function search(
  pool: Pool,
  ids: SessionIds,
  request: SearchRequest,
  embedder: Embedder | null = null,
): Promise<SearchResult> {
  const { limit = 10, offset = 0, after = 0 } = request;
  const pattern = parseQuery(request.query, request.mode);
  const scope = scopeOf(request);
  await indexTexts(pool, ids);
  const candidates = await candidatesFor(pool, ids, pattern, scope);
  const apart = scope.fromSeq === scope.throughSeq;
  const { indexedThroughSeq } = await loadSession(pool, ids);
  const inOrder = (some: readonly Candidate[]): Ranked[] =>
    pattern.mode === 'words' ? ranked(some, pattern, indexedThroughSeq, apart) : newestFirst(some, apart);
  const echoes = request.forAgent ? await echoesIn(pool, ids, scope) : new Set<number>();
  const byWords = inOrder(candidates.filter(({ seq }) => !echoes.has(seq)));
  const last = inOrder(candidates.filter(({ seq }) => echoes.has(seq)));
  const asksForMeaning =
    request.mode === undefined && pattern.mode === 'words' && pattern.exact.length === 0 && !apart;
  const near =
    embedder && asksForMeaning
      ? await searchByMeaning(pool, ids, request.query, { scope, without: echoes }, embedder)
      : null;
  const found: (Ranked & { at?: number })[] = [
    ...(near === null ? byWords : fused(byWords, near.found)),
    ...last.map((one) => ({ ...one, rank: 0 })),
  ];
  const page = found.slice(offset, offset + limit);
  const hits = onceEach(await toHits(pool, ids, page, pattern));
  const answers = await followingOf(pool, ids, hits, after);
  return {
    mode: pattern.mode,
    meaning: near?.meaning ?? null,
    hits: hits.map((hit) => ({
      ...hit,
      following: answers.filter(({ seq }) => seq > hit.seq && seq <= hit.seq + after),
    })),
    nextOffset: found.length > offset + limit ? offset + limit : null,
  };
}

/** Finds the slices that match a part of the query, without reading their texts. */
async function candidatesFor(
  pool: Pool,
  ids: SessionIds,
  pattern: Pattern,
  scope: Scope,
): Promise<Candidate[]> {
  const values: unknown[] = [ids.tenant, ids.session];
  const given = (value: unknown): string => `$${values.push(value)}`;
  const holds = (literal: string): string =>
    isAscii(literal)
      ? `strpos(lower(body), lower(${given(literal)}::text)) > 0`
      : `body ~* ${given(inAnyCase(literal))}`;
  const within = conditionsOf(scope, given);
  const conditions: string[] = [];
  const bits: string[] = [];
  // A long identifier may have the same part thousands of times.
  const found = pattern.mode === 'words' ? [...tsqueriesOf(pattern), ...pattern.pairs] : [];
  const distinct = [...new Set(found)];
  if (pattern.mode === 'substring') conditions.push(holds(pattern.text));
  else {
    const any = [...new Set(tsqueriesOf(pattern))].join(' | ');
    conditions.push(
      ...pattern.exact.flatMap((literal) => [holds(literal), `body ~* ${given(wholeWords(literal))}`]),
    );
    if (conditions.length === 0) conditions.push(`words @@ ${given(any)}::tsquery`);
    bits.push(...distinct.map((tsquery) => `words @@ ${given(tsquery)}::tsquery`));
    bits.push(...pattern.identifiers.map(holds));
  }
  // One list instead of a concatenation, which PostgreSQL would nest as deeply as the query has parts.
  const mask = `array_to_string(array[${bits.map((bit) => `(${bit})::int`).join(', ')}]::int[], '')`;
  const rows = await read<Candidate & Record<string, unknown>>(
    pool,
    ids,
    `select seq, slice, ${mask} as mask from palimpsest.message_texts t
     where ${[...within, ...conditions].join(' and ')}
     order by seq, slice`,
    values,
  );
  if (distinct.length === found.length) return rows;
  const places = new Map(distinct.map((tsquery, place) => [tsquery, place]));
  const order = found.map((tsquery) => places.get(tsquery) ?? 0);
  return rows.map(({ seq, slice, mask: read }) => ({
    ...{ seq, slice },
    mask: order.map((place) => read[place]).join('') + read.slice(distinct.length),
  }));
}

const tsqueriesOf = ({ terms }: WordsPattern): string[] => terms.flat().map(({ tsquery }) => tsquery);

const isAscii = (text: string): boolean => !/[^\0-\x7f]/.test(text);

/**
 * A pattern for PostgreSQL that matches the literal in any case, even if the server's locale folds case for ASCII
 * only.
 */
function inAnyCase(literal: string): string {
  return Array.from(literal, (character) => {
    if (isAscii(character)) return character.replace(/[^A-Za-z0-9_\s]/, '\\$&');
    const [lower, upper] = [character.toLowerCase(), character.toUpperCase()];
    const forms = upper === 'Σ' ? ['Σ', 'σ', 'ς'] : [character, lower, upper];
    const single = [...new Set(forms)].filter((form) => Array.from(form).length === 1);
    return single.length > 1 ? `[${single.join('')}]` : character;
  }).join('');
}

/** A pattern for PostgreSQL that matches the literal only if neither end is inside a word. */
function wholeWords(literal: string): string {
  const escaped = inAnyCase(literal);
  const { before, behind } = wordEdges(literal);
  return `${before ? '(?:^|[^A-Za-z0-9_])' : ''}${escaped}${behind ? '(?:$|[^A-Za-z0-9_])' : ''}`;
}

function newestFirst(candidates: readonly Candidate[], apart: boolean): Ranked[] {
  const first = candidates.filter(({ seq }, index) => apart || candidates[index - 1]?.seq !== seq);
  return first
    .map(({ seq, slice }) => ({ seq, slice, rank: 1, named: 0 }))
    .sort((a, b) => b.seq - a.seq || a.slice - b.slice);
}

interface TextRow {
  [column: string]: unknown;
  seq: number;
  role: Role;
  tool: string | null;
  char_offset: number;
  text: string;
  speaker: string | null;
  created_at: Date;
  at: Date | null;
}

async function toHits(
  pool: Pool,
  ids: SessionIds,
  page: readonly (Ranked & { at?: number })[],
  pattern: Pattern,
): Promise<Omit<SearchHit, 'following'>[]> {
  const rows = await read<TextRow>(
    pool,
    ids,
    `select t.seq, t.role, t.tool, t.char_offset, t.speaker, t.body as text, m.created_at, m.at
     from unnest($3::int[], $4::int[]) with ordinality as page (seq, slice, place)
     join palimpsest.message_texts t
       on t.tenant_id = $1 and t.session_id = $2 and t.seq = page.seq and t.slice = page.slice
     join palimpsest.messages m on m.tenant_id = $1 and m.session_id = $2 and m.seq = page.seq
     order by page.place`,
    [ids.tenant, ids.session, page.map(({ seq }) => seq), page.map(({ slice }) => slice)],
  );
  return rows.map((row, index) => {
    const { at, rank = 0 } = page[index] ?? {};
    const place = at === undefined ? undefined : at - row.char_offset;
    const { offset, snippet } = snippetOf(row.text, pattern, place);
    const tool = row.tool?.replaceAll('\n', ', ') ?? null;
    return { ...saidBy(row), tool, offset: row.char_offset + offset, snippet, rank };
  });
}

function saidBy({
  seq,
  role,
  speaker,
  created_at,
  at,
}: Pick<TextRow, 'seq' | 'role' | 'speaker' | 'created_at' | 'at'>): MessageOrigin {
  return { seq, role, speaker, at: at?.toISOString() ?? null, storedAt: created_at.toISOString() };
}

async function followingOf(
  pool: Pool,
  ids: SessionIds,
  hits: readonly { seq: number }[],
  after: number,
): Promise<FollowingMessage[]> {
  if (after === 0 || hits.length === 0) return [];
  const seqs = [
    ...new Set(hits.flatMap(({ seq }) => Array.from({ length: after }, (_, index) => seq + index + 1))),
  ];
  const rows = await read<TextRow>(
    pool,
    ids,
    `select m.seq, m.role, t.speaker, left(coalesce(t.body, ''), ${2 * followingCharacters}) as text,
       m.created_at, m.at
     from palimpsest.messages m left join palimpsest.message_texts t
       on t.tenant_id = m.tenant_id and t.session_id = m.session_id and t.seq = m.seq and t.slice = 0
     where m.tenant_id = $1 and m.session_id = $2 and m.seq = any ($3::int[]) order by m.seq`,
    [ids.tenant, ids.session, seqs],
  );
  return rows.map((row) => {
    const line = row.text.replace(/\s+/g, ' ').trim();
    const characters = Array.from(line);
    const text =
      characters.length <= followingCharacters
        ? line
        : `${characters.slice(0, followingCharacters - 1).join('')}…`;
    return { ...saidBy(row), text };
  });
}

/** Slices overlap: a match in two slices is one hit. */
function onceEach<Hit extends { seq: number; offset: number }>(hits: readonly Hit[]): Hit[] {
  const places = new Set<string>();
  return hits.filter(({ seq, offset }) => {
    const place = `${seq}:${offset}`;
    return !places.has(place) && places.add(place);
  });
}
