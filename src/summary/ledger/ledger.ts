import type { LoggedMessage } from '../../conversation/message.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { wordAtoms } from './atoms.js';
import { entriesOf, fillLedger, FRAME_TOKENS } from './ledger-text.js';
import { emptyAtom, keyOf, Mentions, type Atom } from './mentions.js';
import { declaredObsolete, settingsIn } from './obsolete.js';
import { worthOf } from './rank.js';
import { withoutReferences } from '../text/sentences.js';

/**
 * The ledger: atoms of the evicted range that the snapshot dropped, ranked by how later messages use them, bounded,
 * made without a model. It stands beside the snapshot in the head.
 */
export interface LedgerInput {
  /** The ledger of the generation before, as this function returned it. */
  previous: string | null;
  /** The snapshot of the generation before: what it held and the new one dropped goes into the ledger. */
  previousSnapshot?: string | null;
  evicted: Iterable<LoggedMessage>;
  /** The tail that stays: its use of an atom counts, but what is visible there needs no entry as long as there is other matter. */
  kept: Iterable<LoggedMessage>;
  snapshot: string;
  maxTokens: number;
  counter: TokenCounter;
  /** What {@link rankedAtoms} makes of the above, where the caller has it. */
  atoms?: readonly Atom[];
}

/** Atoms that are remembered while reading; above, those used least are forgotten. */
const MOST_ATOMS = 100_000;

/** The ledger text, '' where nothing is to be said or no room is left. Never above `maxTokens`, the head's tags included. */
export function buildLedger(input: LedgerInput): string {
  const { snapshot, maxTokens, counter, atoms = rankedAtoms(input) } = input;
  return fillLedger(atoms, snapshot, maxTokens - FRAME_TOKENS, counter);
}

/** Every atom of the evicted range and of what the last generation carried, the one most likely to be needed first. */
export function rankedAtoms({
  previous,
  previousSnapshot = null,
  evicted,
  kept,
}: Pick<LedgerInput, 'previous' | 'previousSnapshot' | 'evicted' | 'kept'>): Atom[] {
  const mentions = new Mentions();
  const obsolete = new Obsolete();
  carryOver(previous, previousSnapshot, mentions.atoms);
  for (const { message } of evicted) {
    mentions.add(message);
    declaredObsolete(message, (atom) => obsolete.declare(atom, mentions.read));
    settingsIn(message, (key, value) => obsolete.set(key, value, mentions.read));
    if (mentions.atoms.size > MOST_ATOMS) forget(mentions);
  }
  const tail = new Mentions();
  for (const { message } of kept) {
    tail.add(message);
    const at = mentions.read + tail.read;
    declaredObsolete(message, (atom) => obsolete.declare(atom, at));
    settingsIn(message, (key, value) => obsolete.set(key, value, at));
  }
  return [...mentions.atoms]
    .filter(([key, atom]) => !obsolete.has(atom, tail.atoms.get(key), mentions.read))
    .map(([key, atom]) => ({ atom, worth: worthOf(atom, mentions.read, tail.atoms.has(key)) }))
    .sort((a, b) => b.worth - a.worth || (a.atom.text < b.atom.text ? -1 : 1))
    .map(({ atom }) => atom);
}

function forget({ atoms, read }: Mentions): void {
  const ranked = [...atoms].map(([key, atom]) => ({ key, worth: worthOf(atom, read, false) }));
  ranked.sort((a, b) => b.worth - a.worth || (a.key < b.key ? -1 : 1));
  for (const { key } of ranked.slice(MOST_ATOMS / 2)) atoms.delete(key);
}

/** Since which message an atom is obsolete. Declarations are few beside mentions. */
class Obsolete {
  private readonly since = new Map<string, number>();
  private readonly settings = new Map<string, string>();

  declare(atom: string, message: number): void {
    this.since.set(atom, message);
  }

  /** A setting that gets another value makes its old one obsolete. */
  set(key: string, value: string, message: number): void {
    const before = this.settings.get(key);
    if (before !== undefined && before !== value) this.declare(before, message);
    this.settings.set(key, value);
    // Given again, a value is in force again.
    this.since.delete(value);
  }

  /** `later`: the same atom as the tail mentions it; `read`: messages before the tail. */
  has(atom: Atom, later: Atom | undefined, read: number): boolean {
    const since = this.since.get(atom.text);
    if (since === undefined) return false;
    return Math.max(atom.last, later ? read + later.last : 0) <= since;
  }
}

/** Reads a ledger back; the place of an entry in its group says what it was worth. */
function carryOver(previous: string | null, snapshot: string | null, atoms: Map<string, Atom>): void {
  for (const { kind, text, place } of entriesOf(previous ?? '')) {
    atoms.set(keyOf(kind, text), { ...emptyAtom(kind, text), carried: place });
  }
  wordAtoms(withoutReferences(snapshot ?? ''), (kind, text) => {
    const key = keyOf(kind, text);
    if (!atoms.has(key)) atoms.set(key, { ...emptyAtom(kind, text), carried: IN_SNAPSHOT });
  });
}

/** What a summarizer chose is worth about as much as the middle of a ledger. */
const IN_SNAPSHOT = 0.5;
