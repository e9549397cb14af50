/** Sizes of the journal: how long an entry may be, and which entries are merged once they exceed their room. Tokens. */

export interface JournalRoom {
  /** For all entries together. */
  entries: number;
  /** What merging brings them down to: most compactions then merge nothing. */
  mergedDown: number;
  /** For the state. */
  state: number;
}

/** Most of the memory's room that the state may take; entries have what it leaves. */
const STATE_SHARE = 0.2;
const SMALLEST_STATE = 100;
const MERGED_DOWN = 0.85;

/** `room`: of the whole memory; `framing`: of it what stands around entries and state; `stateTokens`: of the state so far. */
export function journalRoom(room: number, framing: number, stateTokens: number): JournalRoom {
  const most = Math.floor(STATE_SHARE * room);
  const reserved = Math.min(most, Math.max(SMALLEST_STATE, Math.floor(1.3 * stateTokens)));
  const entries = Math.max(0, room - framing - reserved);
  return { entries, mergedDown: Math.floor(MERGED_DOWN * entries), state: most };
}

/** No entry is asked to be shorter. */
const SHORTEST_ENTRY = 60;
/** Share of what people and the agent said: more while the journal is less than half full, since most sessions never fill it. */
const ENTRY_SHARE = { early: 1 / 5, late: 1 / 7 };
/** Share of the entries' room that those of one compaction may take once it is half full. */
const LATE_SHARE = 1 / 8;
/** Of what tools returned half as much is worth keeping. */
const TOOL_WEIGHT = 0.5;

/**
 * Tokens asked of the entry for a chunk, of whose `tokens` tools returned `toolTokens`; `standing`: what the entries before
 * take of the room; `chunks`: of this compaction.
 */
export function entryTokens(
  { tokens, toolTokens = 0 }: { tokens: number; toolTokens?: number },
  entries: number,
  standing: number,
  chunks = 1,
): number {
  const material = tokens - (1 - TOOL_WEIGHT) * Math.min(toolTokens, tokens);
  const late = Math.min(material * ENTRY_SHARE.late, (LATE_SHARE * entries) / chunks);
  const early = Math.min(material * ENTRY_SHARE.early, entries / 2 - standing);
  const asked = Math.min(Math.floor(Math.max(late, early)), Math.floor(entries / 2));
  return Math.max(SHORTEST_ENTRY, asked);
}

/** Most of an entry's tokens that the values behind it may take on top, and claims that nobody made. */
export const EXACT_SHARE = 0.15;

/** Tokens of the heading above an entry. */
const HEADING_TOKENS = 8;

/** Tokens of the days in it, where they are known. */
const DAYS_TOKENS = 8;

/** Tokens that an entry takes in the memory. */
export function sizeOfEntry({ tokens, addedTokens = 0, days }: EntrySize): number {
  return tokens + addedTokens + HEADING_TOKENS + (days === undefined ? 0 : DAYS_TOKENS);
}

interface EntrySize {
  tokens: number;
  addedTokens?: number;
  days?: unknown;
}

/** The same of one that is still to be written, with the most that code may put behind it. */
export function expectedEntry(tokens: number): number {
  return Math.ceil(tokens * (1 + EXACT_SHARE)) + HEADING_TOKENS;
}

/** An entry as merging sees it. */
export interface Sized {
  rank: number;
  tokens: number;
}

export interface Merge {
  /** Index of the first entry, and how many neighbours become one. */
  first: number;
  count: number;
  /** Tokens of the merged entry at most. */
  maxTokens: number;
}

const MOST_MERGED = 4;
/** A merge that left less of its entries would drop more than it joins. */
const LEAST_LEFT = 0.45;
const MOST_LEFT = 0.85;

/**
 * The next merge; null while all entries fit their room, once they are down to what merging brings them to, or where only
 * the newest is left to be merged. Neighbours of equal, low rank go first, the older before the newer, as many as it takes for the
 * one merge to reach the goal without squeezing any. The newest entry is never merged.
 */
export function nextMerge(entries: readonly Sized[], goal: number): Merge | null {
  const over = sum(entries) - goal;
  if (over <= 0) return null;
  const old = entries.slice(0, -1);
  const merges = old.flatMap((_, first) =>
    [2, 3, MOST_MERGED]
      .filter((count) => first + count <= old.length)
      .map((count) => ({ first, count, harm: harmOf(old.slice(first, first + count), first, over) })),
  );
  const best = merges.reduce<(typeof merges)[number] | null>(
    (least, merge) => (least === null || merge.harm < least.harm ? merge : least),
    null,
  );
  if (best === null) return null;
  const tokens = sum(old.slice(best.first, best.first + best.count));
  const wanted = Math.min(MOST_LEFT * tokens, Math.max((LEAST_LEFT - 0.1) * tokens, tokens - over));
  return { first: best.first, count: best.count, maxTokens: Math.max(SHORTEST_ENTRY, Math.floor(wanted)) };
}

/** Ranks apart, rewriting what was rewritten, squeezing, and youth speak against a merge. */
function harmOf(group: readonly Sized[], first: number, over: number): number {
  const ranks = group.map(({ rank }) => rank);
  const left = 1 - over / sum(group);
  const squeezed = Math.max(0, LEAST_LEFT - left);
  const mean = ranks.reduce((total, rank) => total + rank, 0) / ranks.length;
  return 1.5 * (Math.max(...ranks) - Math.min(...ranks)) + mean + 20 * squeezed + 0.25 * first;
}

function sum(entries: readonly Sized[]): number {
  return entries.reduce((total, { tokens }) => total + tokens, 0);
}
