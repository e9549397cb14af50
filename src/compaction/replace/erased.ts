/**
 * Generations after an erasure of messages. Each is made again as the fallback would have made it, from the messages that are
 * left and from generations that were committed before the erased messages came.
 */
import { carriedWithin, mostCarried } from '../../context/reductions/newest-user.js';
import type { Head } from '../../context/view/view.js';
import type { LoggedMessage } from '../../conversation/message.js';
import type { Limits } from '../../limits/limits.js';
import type { Policy } from '../../policy/defaults.js';
import { inSlices } from '../../steps.js';
import { pinnedTexts } from '../../summary/answer/pins.js';
import type { Snapshot } from '../../summary/answer/accept.js';
import type { KeptLayer } from '../../summary/ask/layers.js';
import { extractiveSnapshot } from '../../summary/extractive/extractive.js';
import { buildHead } from '../../summary/head.js';
import { exactValues } from '../../summary/journal/exact.js';
import { readNotes } from '../../summary/journal/notes.js';
import { writtenIn } from '../../summary/journal/witness.js';
import type { Redact } from '../../summary/redaction/redact.js';
import { withoutSecrets } from '../../summary/redaction/withheld.js';
import { plainTextOf } from '../../summary/text/sentences.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { snapshotKey } from '../plan/reading.js';
import { keyByRule, mergedByRule } from './by-rule.js';
import { journalWithin, type MergeByRule, restored } from './journal.js';

/** The texts of one generation. */
export interface Texts {
  head: Head | null;
  snapshot: string | null;
  ledger: string | null;
  state: string | null;
  /** `journal` mode: its entries, with the text of each by its key; null in other modes. */
  layers: KeptLayer[] | null;
  entries: ReadonlyMap<string, string>;
  pinned: readonly string[];
  fallback: boolean;
  carriedSeq: number | null;
  method: 'model' | 'extractive' | 'none';
}

/** A committed compaction that is made again. */
export interface Commit {
  /** The generation of its parent. */
  parent: number;
  fromSeq: number;
  throughSeq: number;
  /** Whether its summary was a journal. */
  isJournal: boolean;
  pinned: readonly string[];
  /** Null also if the carried request was erased. */
  carriedSeq: number | null;
}

export interface Remade {
  policy: Policy;
  limits: Limits;
  counter: TokenCounter;
  redact: Redact;
  /** Leading system messages that are left. */
  system: readonly LoggedMessage[];
  /** Any message of the log that is left, by its seq. */
  messageAt: (seq: number) => Promise<LoggedMessage | null>;
}

/** The first line of every text that an erasure made. */
const markOfErasure = 'Rewritten by rule after an erasure, without a model.';

/**
 * The texts of a compaction, from those of its parent and the messages of its range that are left. A compaction that evicted
 * nothing has the texts of its parent.
 */
export async function remade(
  commit: Commit,
  parent: Texts,
  evicted: readonly LoggedMessage[],
  how: Remade,
): Promise<Texts> {
  if (commit.throughSeq < commit.fromSeq) return { ...parent, method: 'none' };
  const { policy, limits, counter, redact } = how;
  const messages = policy.redact === null ? evicted : await inSlices(withoutSecrets(evicted, redact));
  const made = commit.isJournal
    ? journalOf(commit, parent, messages, how)
    : { ...snapshotOf(parent, messages, how), layers: null, state: null, entries: new Map<string, string>() };
  const pins = await pinsOf(commit, parent, evicted, how);
  const carried = commit.carriedSeq === null ? null : await how.messageAt(commit.carriedSeq);
  const head = buildHead(
    {
      snapshot: made.snapshot as Snapshot,
      state: made.state,
      exact: made.ledger,
      pins: pins.all,
      evicted: {
        fromSeq: commit.fromSeq,
        throughSeq: commit.throughSeq,
        resultSeq:
          evicted.findLast(({ message: { role } }) => role === 'tool' || role === 'function')?.seq ?? null,
      },
      method: 'extractive',
      carried: carried && carriedWithin(carried, mostCarried(policy, limits), counter, policy.recovery),
      acknowledgment: policy.summary.acknowledgment,
      form: policy.summary.form,
      recovery: policy.recovery,
    },
    counter,
  );
  return {
    ...made,
    head,
    pinned: pins.matched,
    fallback: true,
    carriedSeq: carried === null ? null : commit.carriedSeq,
    method: 'extractive',
  };
}

interface MadeText {
  snapshot: string;
  ledger: string;
  layers: KeptLayer[] | null;
  state: string | null;
  entries: ReadonlyMap<string, string>;
}

function snapshotOf(
  parent: Texts,
  messages: readonly LoggedMessage[],
  { limits, counter, redact, system }: Remade,
): Pick<MadeText, 'snapshot' | 'ledger'> {
  const { maxTokens } = limits.summarizer;
  const previous = parent.snapshot;
  const text = redact(extractiveSnapshot({ previous, messages, maxTokens, counter }));
  const snapshot = marked(text);
  const { exact } = exactValues({
    before: (parent.ledger ?? '').split('\n'),
    evicted: messages,
    text: snapshot,
    visible: '',
    fixed: system.flatMap(writtenIn).join('\n'),
    maxTokens: limits.exactTokens,
    counter,
  });
  return { snapshot, ledger: redact(exact) };
}

/** The journal of the parent with an entry by rule; the state of the parent, whose lines cite nothing newer. */
function journalOf(
  { parent: generation, fromSeq, throughSeq }: Commit,
  parent: Texts,
  messages: readonly LoggedMessage[],
  { limits, counter, redact }: Remade,
): MadeText {
  const { maxTokens } = limits.summarizer;
  const share = Math.max(100, Math.floor(maxTokens / 6));
  const text = marked(redact(extractiveSnapshot({ previous: null, messages, maxTokens: share, counter })));
  const days = messages.flatMap(({ at }) => at?.slice(0, 10) ?? []).sort();
  const entry: KeptLayer = {
    rank: 0,
    key: keyByRule(text),
    tokens: counter.count(text),
    fromSeq,
    throughSeq,
    extractive: true,
    ...(days[0] === undefined ? {} : { days: [days[0], days.at(-1) ?? days[0]] }),
  };
  const before = parent.layers ?? takenOver(generation, parent, fromSeq - 1, counter);
  const entries = new Map(parent.entries);
  if (parent.layers === null && parent.snapshot !== null)
    entries.set(`${snapshotKey}${generation}`, parent.snapshot);
  entries.set(entry.key, text);
  const state = parent.state ?? '';
  const room = Math.max(maxTokens, limits.headMax - limits.noteTokens) - counter.count(state);
  const all = [...before, entry].map((layer) => ({
    layer: restored(layer),
    text: readNotes(entries.get(layer.key) ?? '').notes,
  }));
  const merge: MergeByRule = (texts, maxTokens) => {
    const merged = mergedByRule({ counter, redact }, texts.map(unmarked), maxTokens);
    const rewritten = marked(merged.text);
    return { key: keyByRule(rewritten), text: rewritten };
  };
  const { text: snapshot, layers, newLayers } = journalWithin(all, room, merge, counter);
  for (const { layer, text } of newLayers) entries.set(layer.key, text);
  return { snapshot, ledger: '', layers, state, entries };
}

/** The snapshot of a parent without a journal as the first entry. */
function takenOver(
  generation: number,
  { snapshot, fallback }: Texts,
  throughSeq: number,
  counter: TokenCounter,
): KeptLayer[] {
  if (snapshot === null) return [];
  const key = `${snapshotKey}${generation}`;
  const layer = { rank: 1, key, tokens: counter.count(snapshot), fromSeq: 1, throughSeq };
  return [fallback ? { ...layer, extractive: true } : layer];
}

function marked(text: string): string {
  return /\S/.test(text) ? `- ${markOfErasure}\n${text}` : `- ${markOfErasure}`;
}

function unmarked(text: string): string {
  return text.startsWith(`- ${markOfErasure}`) ? text.slice(markOfErasure.length + 3) : text;
}

/** Pins that the policy names, and earlier matches of its patterns that a message of user or system still contains. */
async function pinsOf(
  { pinned }: Commit,
  parent: Texts,
  evicted: readonly LoggedMessage[],
  { policy, system, messageAt }: Remade,
): Promise<{ all: string[]; matched: string[] }> {
  const named = policy.pins.filter((pin) => typeof pin === 'string' || 'seq' in pin);
  const seqs = named.flatMap((pin) => (typeof pin === 'object' && 'seq' in pin ? [pin.seq] : []));
  const read = await Promise.all(seqs.map(messageAt));
  const texts = await inSlices(
    pinnedTexts(
      named,
      read.filter((message) => message !== null),
    ),
  );
  const said = [...system, ...evicted]
    .filter(({ message: { role } }) => ['user', 'system', 'developer'].includes(role))
    .map(({ message }) => plainTextOf(message));
  const matched = pinned.filter(
    (pin) => parent.pinned.includes(pin) || said.some((text) => text.includes(pin)),
  );
  return { all: [...new Set([...texts, ...matched])], matched };
}
