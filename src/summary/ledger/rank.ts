/**
 * What an atom is worth in the ledger: how likely the agent's next steps name it. Judged by who named it so far (an agent
 * that passed it to a tool will do so again), by how long ago anybody but a tool did, and by its length, for room is short.
 * The numbers were tuned on one half of the recorded sessions by forward use; `bench/quality.ts` reports both halves.
 */
import type { AtomKind } from './atoms.js';
import type { Atom } from './mentions.js';

/** What each kind is worth; a value or a version without its sentence says little. */
const weights: Record<AtomKind, number> = {
  path: 1.2,
  url: 0.8,
  id: 1,
  hash: 0.6,
  version: 0.3,
  value: 0.2,
  fact: 1.5,
  error: 0.8,
  constraint: 1.2,
};
/** A name of code without a digit: likely one of the language or its libraries, which nobody has to remember. */
const SYMBOL = 0.8;

const perMention = { calls: 6, assistant: 1, user: 2, tools: 2 };
/** Worth of the first entry of the previous ledger, against that of a mention. */
const CARRIED = 5;
/** Worth of a use just now; it fades by 1/e with this many messages. */
const USED_NOW = 4;
const FADES_IN = 80;
/** What the tail shows needs no entry as long as there is other matter. */
const IN_TAIL = 0.05;
/** Longer atoms must be worth more: worth falls with this power of the tokens. */
const PRICE = 0.2;
const CHARS_PER_TOKEN = 3.2;

/** `messages`: how many were read. Higher is more likely to be needed. */
export function worthOf(atom: Atom, messages: number, inTail: boolean): number {
  const { kind, text, calls, assistant, user, tools, carried, used } = atom;
  const mentioned =
    perMention.calls * Math.log1p(calls) +
    perMention.assistant * Math.log1p(assistant) +
    perMention.user * Math.log1p(user) +
    perMention.tools * Math.log1p(tools);
  const recent = used === 0 ? 0 : USED_NOW * Math.exp((used - messages) / FADES_IN);
  const weight = isSymbol(kind, text) ? SYMBOL : weights[kind];
  const price = Math.max(1.5, text.length / CHARS_PER_TOKEN) ** PRICE;
  return ((inTail ? IN_TAIL : 1) * weight * (mentioned + recent + CARRIED * carried)) / price;
}

function isSymbol(kind: AtomKind, text: string): boolean {
  return kind === 'id' && !/[\d@]/.test(text);
}
