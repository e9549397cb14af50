/** Sizes of one compaction in `journal` mode: the tail takes the rest of the target after journal and state. */
import type { MessageMeta } from '../../conversation/message.js';
import { MEMORY_OF_TARGET } from '../../limits/limits.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import {
  entryTokens,
  expectedEntry,
  journalRoom,
  sizeOfEntry,
  type JournalRoom,
} from '../../summary/journal/room.js';
import type { JournalPlan } from './plan-types.js';
import type { Planning } from './planning.js';

const LEAST_NOTES = 200;

/** Tokens of journal and state: the policy's limit, or less if large system messages leave less of the target. */
function memoryTokens({ state, limits }: Planning): number {
  const rest = limits.contextTarget - limits.pinTokens - sum(state.system);
  const least = limits.noteTokens + LEAST_NOTES;
  return Math.min(limits.headMax, Math.max(least, Math.floor(MEMORY_OF_TARGET * rest)));
}

function roomOf(planning: Planning): JournalRoom {
  const { state, limits } = planning;
  return journalRoom(memoryTokens(planning), limits.noteTokens, state.chain[0]?.stateTokens ?? 0);
}

export function journalPlan(planning: Planning, chunks: readonly ChunkRef[]): JournalPlan {
  const room = roomOf(planning);
  const lengths: number[] = [];
  let standing = standingTokens(planning);
  for (const chunk of chunks) {
    const material = materialOf(chunk, planning.state.tail);
    const tokens = entryTokens(material, room.entries, standing, chunks.length);
    standing += expectedEntry(tokens);
    lengths.push(tokens);
  }
  return { ...room, lengths };
}

/** Maximum tokens of the entry for this material. */
export function nextEntryTokens(
  planning: Planning,
  material: { tokens: number; toolTokens?: number },
): number {
  return expectedEntry(entryTokens(material, roomOf(planning).entries, standingTokens(planning)));
}

function standingTokens({ state }: Planning): number {
  return (state.chain[0]?.layers ?? []).reduce((total, entry) => total + sizeOfEntry(entry), 0);
}

function materialOf(chunk: ChunkRef, metas: readonly MessageMeta[]): { tokens: number; toolTokens: number } {
  const read = metas.filter(({ seq }) => seq >= chunk.fromSeq && seq <= chunk.throughSeq);
  if (read.length === 0) return { tokens: chunk.tokens, toolTokens: 0 };
  const tokens = Math.min(chunk.tokens, sum(read));
  return { tokens, toolTokens: Math.min(tokens, sum(read.filter(isResult))) };
}

/**
 * Maximum tokens of the tail with which the context reaches its target, including journal and state of this compaction.
 * `toCome`: tokens that the tail will grow by until the compaction.
 */
export function tailCeiling(planning: Planning, toCome = 0): number {
  const all = sum(planning.state.tail) + toCome;
  const roomFor = tailRoom(planning);
  let ceiling = roomFor(0);
  // A larger eviction has a longer entry, so the ceiling is approximated in a few rounds.
  for (let round = 0; round < 4; round++) ceiling = roomFor(Math.max(0, all - Math.max(0, ceiling)));
  return Math.max(0, ceiling);
}

/** The maximum tokens of the tail, by the number of evicted tokens. */
export function tailRoom(planning: Planning): (evicted: number) => number {
  const { state, limits } = planning;
  const room = roomOf(planning);
  const standing = standingTokens(planning);
  const beside =
    sum(state.system) +
    limits.pinTokens +
    limits.noteTokens +
    (memoryTokens(planning) - limits.noteTokens - room.entries);
  const tail = sum(state.tail);
  const results = sum(state.tail.filter(isResult));
  return (evicted) => {
    const toolTokens = tail === 0 ? 0 : (results * evicted) / tail;
    const entry = evicted === 0 ? 0 : nextEntryTokens(planning, { tokens: evicted, toolTokens });
    const entries = standing + entry > room.entries ? room.mergedDown : standing + entry;
    return limits.contextTarget - beside - entries;
  };
}

function isResult({ role }: MessageMeta): boolean {
  return role === 'tool' || role === 'function';
}

function sum(metas: readonly MessageMeta[]): number {
  return metas.reduce((total, { tokens, empty }) => total + (empty ? 0 : tokens), 0);
}
