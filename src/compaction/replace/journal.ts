/** Journal and state of a new generation in `journal` mode: entries with the lines that code adds, and the state. */
import type { LoggedMessage } from '../../conversation/message.js';
import { extractiveSnapshot } from '../../summary/extractive/extractive.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import { layeredSnapshot } from '../../summary/answer/sections.js';
import { exactValues } from '../../summary/journal/exact.js';
import { EXACT_SHARE, goalsByRule, nextMerge, nextShortening } from '../../summary/journal/room.js';
import { changesOf, linesWithin, readNotes } from '../../summary/journal/notes.js';
import { withoutReferences } from '../../summary/journal/references.js';
import { changed, formatState, parseState, stateWithin } from '../../summary/journal/state.js';
import { witnessIn, writtenIn } from '../../summary/journal/witness.js';
import type { Steps } from '../../steps.js';
import { clip } from '../../summary/text/sentences.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { stateHash } from '../summarize/questions.js';
import { mergedLayer } from '../summarize/summarize.js';
import { keyByRule, mergedByRule } from './by-rule.js';
import type { LayerText, ReplacementInput } from './input.js';

export interface Memory {
  /** All entries as shown in the context. */
  text: string;
  layers: KeptLayer[];
  state: string;
  /** Entries written by rule that are not stored yet. */
  newLayers: LayerText[];
}

interface Entry {
  layer: KeptLayer;
  text: string;
  /** Whether the rules wrote it just now. */
  isNew?: boolean;
}

/** Journal and state from a model's entries and changes. */
export function* memoryByModel(
  input: ReplacementInput,
  evicted: readonly LoggedMessage[],
  kept: readonly LoggedMessage[],
  counter: TokenCounter,
): Steps<Memory> {
  const { written, parent, referenced } = input;
  const before = parent.state ?? '';
  const changes = changesOf(written?.changes ?? '', stateHash(before));
  const witness = witnessIn([...evicted, ...kept, ...referenced].sort((a, b) => a.seq - b.seq));
  const { state, unfounded } = changed(parseState(before), changes ?? '', witness);
  const entries = (written?.layers ?? []).map(({ layer, text }): Entry => ({
    layer,
    text: readNotes(text).notes,
  }));
  const withAdded = yield* addedTo(entries, { input, evicted, kept, counter });
  const newest = withAdded.at(-1);
  const all = newest ? [...withAdded.slice(0, -1), withClaims(newest, unfounded, counter)] : [];
  const stateText = formatState(stateWithin(state, stateRoom(input), counter));
  return memoryOf(all, stateText, input, largestRoom(input, stateText));
}

/**
 * Adds a line `claimed, not found: …` after the entry for each change of the state that no message supports and that the entry does
 * not contain, each once and within the room.
 */
function withClaims({ layer, text }: Entry, unfounded: readonly string[], counter: TokenCounter): Entry {
  const claims = new Set(
    unfounded.map((line) => withoutReferences(line)).filter((line) => !text.includes(line)),
  );
  const lines = [...claims].map((claim) => `claimed, not found: ${clip(claim, LONGEST_CLAIM)}`);
  const within = linesWithin(lines.join('\n'), roomBehind(layer), counter);
  if (counter.count(within) > roomBehind(layer)) return { layer, text };
  return { layer: adding(layer, [layer.added ?? '', within], counter), text };
}

const LONGEST_CLAIM = 200;

/** Maximum tokens of exact values after an entry, and maximum tokens of claims. */
function roomBehind({ tokens }: KeptLayer): number {
  return Math.max(40, Math.floor(EXACT_SHARE * tokens));
}

/** Adds an entry by rule after the existing entries; the state stays unchanged. */
export function memoryByRule(
  input: ReplacementInput,
  evicted: readonly LoggedMessage[],
  counter: TokenCounter,
): Memory {
  const { plan, parent, standing, redact } = input;
  const maxTokens = Math.max(100, Math.floor(plan.summarizer.snapshotTokens / 6));
  const text = redact(extractiveSnapshot({ previous: null, messages: evicted, maxTokens, counter }));
  const newest: Entry = {
    text,
    isNew: true,
    layer: {
      rank: 0,
      key: keyByRule(text),
      tokens: counter.count(text),
      fromSeq: plan.fromSeq,
      throughSeq: plan.throughSeq,
      extractive: true,
      ...daysOf([], evicted),
    },
  };
  const before = (standing ?? []).map((one): Entry => ({
    layer: restored(one.layer),
    text: readNotes(one.text).notes,
  }));
  const room = plan.journal?.entries ?? largestRoom(input, parent.state ?? '');
  return memoryOf([...before, newest], parent.state ?? '', input, room);
}

function memoryOf(
  entries: readonly Entry[],
  state: string,
  { redact, counter }: ReplacementInput,
  room: number,
): Memory {
  const merge: MergeByRule = (texts, maxTokens) => mergedByRule({ counter, redact }, texts, maxTokens);
  return { ...journalWithin(entries, room, merge, counter), state };
}

/** Maximum tokens of entries, if a model wrote longer ones than requested. */
function largestRoom({ plan, limits, counter }: ReplacementInput, state: string): number {
  return Math.max(plan.summarizer.snapshotTokens, limits.headMax - limits.noteTokens) - counter.count(state);
}

/** Writes one text in place of these, of at most `maxTokens`. */
export type MergeByRule = (texts: readonly string[], maxTokens: number) => { key: string; text: string };

/**
 * Fits entries into their room, if necessary by merging neighbours by rule. The newest entry stays, and so do the entries up to
 * the last one of a model, as long as merging the later ones is enough.
 */
export function journalWithin(
  entries: readonly Entry[],
  room: number,
  merge: MergeByRule,
  counter: TokenCounter,
): Pick<Memory, 'text' | 'layers' | 'newLayers'> {
  const lastByModel = entries.findLastIndex(({ layer }) => layer.extractive !== true);
  const first = Math.min(lastByModel + 1, entries.length - 1);
  let kept = entries.slice(0, first);
  let byRule = entries.slice(first);
  const sizeOf = (some: readonly Entry[]) => some.reduce((sum, one) => sum + sizeIn(one, counter), 0);
  const goals = goalsByRule(room, sizeOf(kept));
  if (sizeOf(entries) > room) {
    const newest = byRule.slice(-1);
    const older = lowered(byRule.slice(0, -1), sizeOf(newest), goals.byRule, merge, counter);
    byRule = [...older, ...newest];
  }
  if (sizeOf([...kept, ...byRule]) > room) kept = lowered(kept, sizeOf(byRule), goals.all, merge, counter);
  const all = [...kept, ...byRule];
  return {
    text: textOf(all),
    layers: all.map(({ layer }) => layer),
    newLayers: all.flatMap(({ layer, text, isNew }) => (isNew ? { layer, text } : [])),
  };
}

/** Merges entries, or shortens one if no merge is left, until they and the `newer` tokens after them have at most `goal` tokens. */
function lowered(
  entries: readonly Entry[],
  newer: number,
  goal: number,
  merge: MergeByRule,
  counter: TokenCounter,
): Entry[] {
  const left = [...entries];
  const sizes = left.map((one) => ({ rank: one.layer.rank, tokens: sizeIn(one, counter) }));
  for (;;) {
    const all = [...sizes, { rank: 0, tokens: newer }];
    const next = nextMerge(all, goal) ?? nextShortening(all, goal);
    if (next === null) return left;
    const { first, count, maxTokens } = next;
    const merged = mergedEntry(left.slice(first, first + count), maxTokens, merge, counter);
    const size = { rank: merged.layer.rank, tokens: sizeIn(merged, counter) };
    if (count === 1 && size.tokens >= sizes[first]!.tokens) return left;
    left.splice(first, count, merged);
    sizes.splice(first, count, size);
  }
}

function mergedEntry(
  entries: readonly Entry[],
  maxTokens: number,
  merge: MergeByRule,
  counter: TokenCounter,
): Entry {
  const members = entries.map(({ layer }) => layer);
  const texts = entries.map(({ text }) => text);
  const { key, text } = merge(texts, maxTokens);
  const rank = Math.max(...members.map((member) => member.rank)) + 1;
  const layer = mergedLayer(members, { key, tokens: counter.count(text) }, rank);
  const { exact } = exactValues({
    before: members.flatMap(({ added = '' }) => added.split('\n')),
    evicted: [],
    ...{ text, visible: '', fixed: '', counter },
    maxTokens: roomBehind(layer),
  });
  const waiting = members.find((member) => member.waiting !== undefined)?.waiting;
  const whole = adding({ ...layer, ...daysOf(members, []) }, [exact], counter);
  return { layer: waiting === undefined ? whole : { ...whole, waiting }, text, isNew: true };
}

/** Tokens of an entry in the journal. */
function sizeIn(entry: Entry, counter: TokenCounter): number {
  return counter.count(`${textOf([entry])}\n\n`);
}

function textOf(entries: readonly Entry[]): string {
  return layeredSnapshot(
    entries.map(({ layer, text }) => ({
      ...layer,
      text: [text, layer.added ?? ''].filter((part) => part !== '').join('\n'),
    })),
  );
}

/** The layer without the mark of earlier versions, which dropped its text from the journal for lack of room. */
export function restored({ left: _left, ...layer }: KeptLayer): KeptLayer {
  return layer;
}

function stateRoom({ plan, limits }: ReplacementInput): number {
  return plan.journal?.state ?? Math.floor(limits.headMax / 5);
}

/**
 * Exact values after each entry: existing ones, or values found in its messages and merged with those of the entries that it
 * replaced. Values whose last mention is now evicted are added to the newest entry.
 */
function* addedTo(
  entries: readonly Entry[],
  {
    input,
    evicted,
    kept,
    counter,
  }: {
    input: ReplacementInput;
    evicted: readonly LoggedMessage[];
    kept: readonly LoggedMessage[];
    counter: TokenCounter;
  },
): Steps<Entry[]> {
  const before = input.parent.layers ?? [];
  const known = new Map(before.map(({ waiting: _waiting, ...layer }) => [layer.key, restored(layer)]));
  const newest = entries.findLastIndex(({ layer }) => !known.has(layer.key));
  const waited = before.flatMap(({ waiting }) => waiting ?? []);
  const { source, referenced, policy, parent } = input;
  // The carried request also stays in the context.
  const visible = [...kept, ...referenced].flatMap(writtenIn).join('\n');
  const pinned = [...policy.pins.filter((pin) => typeof pin === 'string'), ...parent.pinned];
  const fixed = [...source.system.flatMap(writtenIn), ...pinned].join('\n');
  const added: Entry[] = [];
  for (const [index, { layer, text }] of entries.entries()) {
    yield;
    const same = known.get(layer.key);
    if (same) {
      added.push({ layer: same, text });
      continue;
    }
    const members = before.filter(
      ({ fromSeq, throughSeq }) => fromSeq >= layer.fromSeq && throughSeq <= layer.throughSeq,
    );
    const own = evicted.filter(({ seq }) => seq >= layer.fromSeq && seq <= layer.throughSeq);
    const others = entries.flatMap((entry, at) =>
      at === index ? [] : [entry.text, known.get(entry.layer.key)?.added ?? ''],
    );
    const { exact, waiting } = exactValues({
      before: [
        ...members.flatMap(({ added = '' }) => added.split('\n')),
        ...(index === newest ? waited : []),
      ],
      evicted: own,
      text: [text, ...others].join('\n'),
      ...{ visible, fixed, counter },
      maxTokens: roomBehind(layer),
    });
    const days = daysOf(
      before.filter((one) => overlaps(one, layer)),
      own,
    );
    const withExact = adding({ ...layer, ...days }, [exact], counter);
    added.push({ layer: waiting === '' ? withExact : { ...withExact, waiting }, text });
  }
  return added;
}

function adding(
  { added: _added, ...layer }: KeptLayer,
  lines: readonly string[],
  counter: TokenCounter,
): KeptLayer {
  const added = lines.filter((line) => line !== '').join('\n');
  return added === '' ? { ...layer, addedTokens: 0 } : { ...layer, added, addedTokens: counter.count(added) };
}

const overlaps = (one: KeptLayer, other: KeptLayer): boolean =>
  one.fromSeq <= other.throughSeq && one.throughSeq >= other.fromSeq;

/**
 * The first and the last day of an entry: among the days of its evicted messages and those of all earlier entries that it replaces,
 * even in part.
 */
function daysOf(members: readonly KeptLayer[], messages: readonly LoggedMessage[]): Pick<KeptLayer, 'days'> {
  const days = [
    ...members.flatMap((member) => member.days ?? []),
    ...messages.flatMap(({ at }) => at?.slice(0, 10) ?? []),
  ].sort();
  const [first] = days;
  return first === undefined ? {} : { days: [first, days.at(-1) ?? first] };
}
