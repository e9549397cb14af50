/** Sizes of the journal in tokens: lengths of entries, and the entries to merge once they exceed their room. */

export interface JournalRoom {
  /** Room for all entries together. */
  entries: number;
  /** Size of the entries after merging, small enough that most compactions merge none. */
  mergedDown: number;
  /** Room for the state. */
  state: number;
}

/** Maximum share of the room for the state; entries have the rest. */
const STATE_SHARE = 0.2;
const SMALLEST_STATE = 100;
const MERGED_DOWN = 0.85;

/** `room`: tokens for journal and state; `framing`: the part of `room` around entries and state; `stateTokens`: tokens of the current state. */
export function journalRoom(room: number, framing: number, stateTokens: number): JournalRoom {
  const most = Math.floor(STATE_SHARE * room);
  const reserved = Math.min(most, Math.max(SMALLEST_STATE, Math.floor(1.3 * stateTokens)));
  const entries = Math.max(0, room - framing - reserved);
  return { entries, mergedDown: Math.floor(MERGED_DOWN * entries), state: most };
}

/** Minimum requested length of an entry. */
const SHORTEST_ENTRY = 60;
/** Length of an entry as a share of the messages of people and agent; larger while the journal is less than half full, since most sessions never fill it. */
const ENTRY_SHARE = { early: 1 / 5, late: 1 / 7 };
/** Maximum share of the entries' room for one compaction once it is half full. */
const LATE_SHARE = 1 / 8;
/** Weight of a token of tool output relative to a token of other messages. */
const TOOL_WEIGHT = 0.65;

/**
 * Requested tokens of the entry for a chunk with `tokens`, of which `toolTokens` are tool output. `standing`: tokens of the
 * existing entries; `chunks`: number of chunks of this compaction.
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

/** Maximum additional share of an entry's tokens for exact values, and for unfounded claims. */
export const EXACT_SHARE = 0.15;

/** Tokens of the heading above an entry. */
const HEADING_TOKENS = 8;

/** Tokens of the days in the heading, if known. */
const DAYS_TOKENS = 8;

/** Tokens of an entry in the journal. */
export function sizeOfEntry({ tokens, addedTokens = 0, days }: EntrySize): number {
  return tokens + addedTokens + HEADING_TOKENS + (days === undefined ? 0 : DAYS_TOKENS);
}

interface EntrySize {
  tokens: number;
  addedTokens?: number;
  days?: unknown;
}

/** Expected tokens of an unwritten entry, with the maximum of lines added by code. */
export function expectedEntry(tokens: number): number {
  return Math.ceil(tokens * (1 + EXACT_SHARE)) + HEADING_TOKENS;
}

/** The size of an entry, as input of merging. */
export interface Sized {
  rank: number;
  tokens: number;
}

export interface Merge {
  /** Index of the first entry, and number of neighbours to merge. */
  first: number;
  count: number;
  /** Maximum tokens of the merged entry. */
  maxTokens: number;
}

/** Share of the room that merging by rule leaves to a model's entries. */
const MODEL_SHARE = 0.5;
/** Size of the entries by rule after merging, as a share of their room: a merge changes the beginning of the context. */
const HALVED = 0.5;

/**
 * Goals of merging by rule: of the entries by rule that follow the last one of a model, and then of all entries. `kept`: tokens
 * of the entries up to the last one of a model.
 */
export function goalsByRule(room: number, kept: number): { byRule: number; all: number } {
  const rest = room - Math.min(kept, MODEL_SHARE * room);
  return { byRule: Math.floor(HALVED * rest), all: Math.floor(MERGED_DOWN * room) };
}

const MOST_MERGED = 4;
/** Minimum share of its entries that a merge must keep; a smaller entry drops too much. */
const LEAST_LEFT = 0.45;
const MOST_LEFT = 0.85;

/**
 * Returns the next merge; null if the entries have at most `goal` tokens, or if fewer than two entries precede the newest.
 * Neighbours of equal, low rank are merged first, older entries before newer entries, and as many as one merge needs to reach
 * the goal without compressing them too much. The newest entry is never merged.
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

/** The next entry to shorten if no merge is left: the longest one before the newest. Null if no entry can be shortened. */
export function nextShortening(entries: readonly Sized[], goal: number): Merge | null {
  const over = sum(entries) - goal;
  const longest = Math.max(0, ...entries.slice(0, -1).map(({ tokens }) => tokens));
  if (over <= 0 || longest <= 2 * SHORTEST_ENTRY) return null;
  const first = entries.findIndex(({ tokens }) => tokens === longest);
  return { first, count: 1, maxTokens: Math.max(SHORTEST_ENTRY, Math.floor(longest - over)) };
}

/**
 * The disadvantage of a merge as a number: different ranks, repeated rewriting, strong compression and recent entries raise it.
 */
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
