import type { LoggedMessage } from '../../conversation/message.js';
import { wordAtoms, type AtomKind } from './atoms.js';
import { containsAtom, withoutReferences } from '../text/sentences.js';
import { pairsOf } from './facts.js';
import { rankedAtoms } from './ledger.js';
import { Mentions, keyOf, type Atom } from './mentions.js';
import { parseSnapshot } from '../answer/snapshot.js';

/**
 * What a new snapshot should not have dropped: rules of the user, facts in canonical form, and identifiers that the
 * session goes on using. Whoever asks for a repair is given these, the most important first.
 */
export interface IntegrityInput {
  /** The snapshot before this one. */
  previous: string | null;
  evicted: readonly LoggedMessage[];
  kept: readonly LoggedMessage[];
  /** The new snapshot, and the ledger that will stand beside it. */
  snapshot: string;
  ledger: string;
  /** Entries at most. */
  limit: number;
  /** What `rankedAtoms` makes of the above, carried entries of the previous ledger among them, where the caller has it. */
  atoms?: readonly Atom[];
}

/** Share of a rule's words that must be found for it to count as kept in other words. */
const SAME_RULE = 0.6;
const identifiers = new Set<AtomKind>(['path', 'url', 'id', 'hash', 'version']);

/**
 * What neither the new snapshot nor the ledger holds of: rules of the previous snapshot; facts of tools; identifiers of
 * the previous snapshot that were used since. Where there is any of these, identifiers of evicted messages that the kept
 * ones use come behind them: they are in sight for now, so nobody need be asked for them alone. What was declared obsolete may go.
 */
export function droppedAtoms(input: IntegrityInput): string[] {
  const { previous, evicted, kept, snapshot, ledger, limit } = input;
  if (limit <= 0) return [];
  const held = `${snapshot}\n${ledger}`;
  const rules = rulesOf(previous).filter((rule) => !holdsRule(held, rule));
  const inPrevious = new Set<string>();
  wordAtoms(withoutReferences(previous ?? ''), (kind, atom) => inPrevious.add(keyOf(kind, atom)));
  const tail = new Mentions();
  for (const { message } of kept) tail.add(message);
  const usedInTail = (key: string) => (tail.atoms.get(key)?.used ?? 0) > 0;

  const facts: string[] = [];
  const lost: string[] = [];
  const inSight: string[] = [];
  const { atoms = rankedAtoms({ previous: null, previousSnapshot: previous, evicted, kept }) } = input;
  for (const atom of atoms) {
    const { kind, text } = atom;
    const key = keyOf(kind, text);
    // What only the previous ledger names has had its chance to be needed.
    if (atom.last === 0 && !inPrevious.has(key)) continue;
    if (kind === 'fact') {
      if (!holdsFact(held, text)) facts.push(text);
    } else if (isExact(kind, text)) {
      const isLost = inPrevious.has(key) && !tail.atoms.has(key) && atom.used > 0;
      const isInSight = !isLost && usedInTail(key);
      if ((isLost || isInSight) && !containsAtom(held, text)) (isLost ? lost : inSight).push(text);
    }
    if (facts.length + lost.length > limit) break;
  }
  const dropped = [...rules, ...facts, ...lost];
  return [...new Set(dropped.length === 0 ? [] : [...dropped, ...inSight])].slice(0, limit);
}

/** Names of code without a digit are found again by whoever reads the code. */
function isExact(kind: AtomKind, text: string): boolean {
  return identifiers.has(kind) && (kind !== 'id' || /[\d@]/.test(text));
}

function rulesOf(snapshot: string | null): string[] {
  return snapshot === null ? [] : (parseSnapshot(withoutReferences(snapshot)).get('constraints') ?? []);
}

/** Word for word, or most of its words: a summarizer may rephrase a rule without losing it. */
function holdsRule(text: string, rule: string): boolean {
  if (text.includes(rule)) return true;
  const words = new Set(rule.toLowerCase().match(/[\p{L}\p{N}_]{4,}|\p{N}+/gu) ?? []);
  if (words.size === 0) return true;
  const present = text.toLowerCase();
  const kept = [...words].filter((word) => present.includes(word)).length;
  return kept / words.size >= SAME_RULE;
}

/** Every value is somewhere in the text; the summarizer may write `owner: Ada` for `owner=Ada`. */
function holdsFact(text: string, fact: string): boolean {
  return text.includes(fact) || pairsOf(fact).every((pair) => containsAtom(text, valueOf(pair)));
}

function valueOf(pair: string): string {
  return pair.slice(pair.indexOf('=') + 1).trim();
}
