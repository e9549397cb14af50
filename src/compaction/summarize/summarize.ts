/**
 * The sequence of summarizer calls. It handles references to texts, never texts. The compaction workflow, sessions in memory
 * and the rehearsal share it. Every chunk is read once, at most `concurrency` at a time, and the digests are consolidated as a
 * tree. A chunk that does not fit is halved, never retried unchanged; a tree deeper than `depthLimit` is refused.
 */
import { FAN_IN, layerTokens, nextMerge, type Layer } from '../../summary/ask/layers.js';
import { expectedEntry, nextMerge as nextNotes, sizeOfEntry } from '../../summary/journal/room.js';
import type { ChunkRef } from '../../summary/ask/chunk.js';
import type { LargeMessage, Plan } from '../plan/plan-types.js';
import { consolidate, mergeMessage } from './consolidate.js';
import { Digests, type Leaf } from './digests.js';
import type { DigestRef, ModelSteps, Progress } from './model-steps.js';

/** The model's results of a compaction, by reference. */
export interface Summarized {
  /** The chunks that were read, in order. A halved chunk is listed as its halves. */
  chunks: ChunkRef[];
  /** Key of the new snapshot; null in `journal` mode, and if only messages were summarized. */
  snapshot: string | null;
  /** `journal` mode: all current entries, oldest first. */
  layers: Layer[];
  /** `journal` mode: key of the answer with the changes of the state; null if the state stays unchanged. */
  changes?: string | null;
  /** Summaries of single messages. */
  messages: { seq: number; key: string }[];
  /** Keys of every digest used. */
  digests: string[];
  /**
   * Number of texts that the rules wrote because the model failed at them (digests of chunks, merged digests, summaries of
   * messages), and the type of the first failure.
   */
  chunksByRule: number;
  failure: string | null;
}

type History = Pick<Summarized, 'chunks' | 'snapshot' | 'layers' | 'changes'>;

export async function summarize(plan: Plan, steps: ModelSteps, progress: Progress): Promise<Summarized> {
  const digests = new Digests(plan, steps, progress);
  const [history, large] = await Promise.all([
    summarizeHistory(digests),
    Promise.all(plan.messages.map((message) => summarizeMessage(digests, message))),
  ]);
  const messages = large.filter((message) => message !== null);
  const byRule = digests.used.flatMap((digest) => digest.byRule ?? []);
  const [failure = null] = byRule;
  if (failure !== null && history.chunks.length + messages.length === 0)
    throw steps.failed(failure, 'the model failed at every message');
  return {
    ...history,
    messages,
    digests: [...new Set(digests.used.map(({ key }) => key))],
    chunksByRule: byRule.length,
    failure,
  };
}

function summarizeHistory(digests: Digests): Promise<History> | History {
  const { mode, chunks, layers } = digests.plan;
  if (mode === 'layered') return addLayers(digests);
  if (mode === 'journal') return addNotes(digests);
  if (chunks.length > 0) return writeSnapshot(digests);
  return { chunks: [], snapshot: null, layers };
}

/** Writes a snapshot in one request if all its material fits; otherwise from a tree of digests. */
async function writeSnapshot(digests: Digests): Promise<History> {
  const { chunks: planned, previousTokens, summarizer } = digests.plan;
  let chunks = planned;
  const [only, ...others] = chunks;
  if (only && others.length === 0 && only.tokens + previousTokens <= summarizer.foldTokens) {
    try {
      const { key } = await digests.readAndFold(only);
      return { chunks: [only], snapshot: key, layers: [] };
    } catch (error) {
      const halves = digests.steps.overflow(error)?.halves;
      if (!halves) throw error;
      chunks = halves;
    }
  }
  const leaves = await readHistory(digests, chunks);
  const snapshot = await consolidate(
    digests,
    leaves.map(({ digest }) => digest),
  );
  return { chunks: leaves.map(({ chunk }) => chunk), snapshot, layers: [] };
}

/** For plans of earlier versions: adds leaves after the existing layers; four layers of a rank become one layer of the next rank. */
async function addLayers(digests: Digests): Promise<History> {
  const { plan, progress } = digests;
  const leaves = await readHistory(digests, plan.chunks);
  const layers: Layer[] = [...plan.layers, ...leaves.map(layerOf)];
  for (let next = nextMerge(layers); next; next = nextMerge(layers)) {
    const members = layers.slice(next.first, next.first + FAN_IN);
    const rank = next.rank + 1;
    progress.consolidating(members.length, rank);
    const maxTokens = layerTokens(rank, plan.summarizer.snapshotTokens);
    const merged = await digests.merge(members, { root: false, maxTokens }, `rank ${rank}`);
    layers.splice(next.first, FAN_IN, mergedLayer(members, merged, rank));
  }
  return { chunks: leaves.map(({ chunk }) => chunk), snapshot: null, layers };
}

/** Adds entries after the existing ones, changes the state, and merges neighbours if the journal exceeds its room. */
async function addNotes(digests: Digests): Promise<History> {
  const { plan } = digests;
  const { chunks, layers: standing, journal } = plan;
  if (chunks.length === 0 || journal === undefined)
    return { chunks: [], snapshot: null, layers: standing, changes: null };
  const followsFromSeq = plan.throughSeq + 1;
  const leaves = await digests.note(chunks, journal.lengths, (index) => ({
    before: entryBefore(standing, chunks, index),
    followsFromSeq: index === chunks.length - 1 ? followsFromSeq : null,
    stateTokens: chunks.length === 1 ? journal.state : null,
  }));
  refuseAllByRule(digests, chunks, leaves);
  const entries = [...standing, ...leaves.map(layerOf)];
  const [only, ...others] = leaves;
  const keys = leaves.map(({ digest }) => digest.key);
  const [changes, layers] = await Promise.all([
    only && others.length === 0 && only.digest.changesState === true
      ? only.digest
      : digests.changeState({ digests: keys, followsFromSeq, maxTokens: journal.state }),
    mergeNotes(digests, entries, new Set(keys)),
  ]);
  return { chunks: leaves.map(({ chunk }) => chunk), snapshot: null, layers, changes: changes?.key ?? null };
}

function entryBefore(
  standing: readonly Layer[],
  chunks: readonly ChunkRef[],
  index: number,
): { throughSeq: number; key: string | null } | null {
  const chunk = chunks[index - 1];
  if (chunk) return { throughSeq: chunk.throughSeq, key: null };
  const last = standing.at(-1);
  return last ? { throughSeq: last.throughSeq, key: last.key } : null;
}

/** If the entries exceed their room, merges them until later compactions have room. */
async function mergeNotes(
  digests: Digests,
  entries: readonly Layer[],
  fresh: ReadonlySet<string>,
): Promise<Layer[]> {
  const { plan, progress } = digests;
  const { entries: room, mergedDown } = plan.journal!;
  const layers = [...entries];
  const sizeOf = (layer: Layer) => (fresh.has(layer.key) ? expectedEntry(layer.tokens) : sizeOfEntry(layer));
  const sizes = () => layers.map((layer) => ({ rank: layer.rank, tokens: sizeOf(layer) }));
  const exceeds = () => sizes().reduce((sum, { tokens }) => sum + tokens, 0) > room;
  while (exceeds()) {
    const next = nextNotes(sizes(), mergedDown);
    if (next === null) break;
    const members = layers.slice(next.first, next.first + next.count);
    const rank = Math.max(...members.map((member) => member.rank)) + 1;
    progress.consolidating(members.length, rank);
    const about = { root: false, maxTokens: next.maxTokens, notes: true };
    const merged = await digests.merge(members, about, `rank ${rank}`);
    const addedTokens = members.reduce((sum, { addedTokens: own = 0 }) => sum + Math.ceil(own / 2), 0);
    layers.splice(next.first, next.count, { ...mergedLayer(members, merged, rank), addedTokens });
  }
  return layers;
}

export function mergedLayer(
  members: readonly Layer[],
  { key, tokens }: Pick<DigestRef, 'key' | 'tokens'>,
  rank: number,
): Layer {
  const weight = (of: (member: Layer) => number) =>
    members.reduce((sum, one) => sum + of(one) * one.tokens, 0);
  return {
    rank,
    // A merge keeps about the same share of each merged entry.
    rewrites:
      1 +
      weight(({ rank: highest, rewrites = highest }) => rewrites) /
        Math.max(
          1,
          weight(() => 1),
        ),
    key,
    tokens,
    fromSeq: members[0]!.fromSeq,
    throughSeq: members.at(-1)!.throughSeq,
    // An entry with a part by rule is read again as a whole.
    ...(members.some(({ extractive }) => extractive === true) ? { extractive: true } : {}),
  };
}

function layerOf({ chunk, digest }: Leaf): Layer {
  return {
    rank: 0,
    key: digest.key,
    tokens: digest.tokens,
    fromSeq: chunk.fromSeq,
    throughSeq: chunk.throughSeq,
    ...(digest.byRule === undefined ? {} : { extractive: true }),
  };
}

/** Throws if the model failed at all chunks: the rules write a better summary from the messages than from digests by rule. */
async function readHistory(digests: Digests, chunks: readonly ChunkRef[]): Promise<Leaf[]> {
  const leaves = await digests.readEach(chunks);
  refuseAllByRule(digests, chunks, leaves);
  return leaves;
}

function refuseAllByRule({ steps }: Digests, chunks: readonly ChunkRef[], leaves: readonly Leaf[]): void {
  const [first, ...others] = leaves.map(({ digest }) => digest.byRule);
  if (first === undefined || !others.every((type) => type !== undefined)) return;
  throw steps.failed(first, `the model failed at ${chunks.length === 1 ? 'the chunk' : 'every chunk'}`);
}

/** Null if the model failed at all chunks; the message is then shortened by rule. */
async function summarizeMessage(
  digests: Digests,
  { seq, chunks }: LargeMessage,
): Promise<{ seq: number; key: string } | null> {
  const leaves = (await digests.readEach(chunks)).map(({ digest }) => digest);
  if (leaves.every(({ byRule }) => byRule !== undefined)) return null;
  const { key } = await mergeMessage(digests, leaves, seq);
  return { seq, key };
}
