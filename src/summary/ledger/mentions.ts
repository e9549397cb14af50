/** Who mentioned which atom, how often and when: what tells an identifier that is needed later from one that merely passed by. */
import type { ChatMessage } from '../../conversation/message.js';
import { argumentsOf, nameOf } from '../../conversation/render.js';
import { constraintAtoms, errorAtoms, wordAtoms, type AtomKind } from './atoms.js';
import { factAtoms, subjectOf } from './facts.js';
import { plainTextOf } from '../text/sentences.js';

export interface Atom {
  kind: AtomKind;
  text: string;
  /** Number of the message in which it was first and last seen; 0 for one carried over. */
  first: number;
  last: number;
  /** Messages that mention it, by who speaks: call arguments, assistant, user or system, tools. */
  calls: number;
  assistant: number;
  user: number;
  tools: number;
  /** Number of the last message in which anybody but a tool mentioned it; 0 for none. */
  used: number;
  /** 0 to 1: its place in the previous ledger, 1 for the first; 0 if it was not there. */
  carried: number;
}

export type Speaker = 'calls' | 'assistant' | 'user' | 'tools';

export function emptyAtom(kind: AtomKind, text: string): Atom {
  const counts = { calls: 0, assistant: 0, user: 0, tools: 0 };
  return { kind, text, first: 0, last: 0, ...counts, used: 0, carried: 0 };
}

/** The key under which an atom is found: its kind and text; for a fact, what it is about. */
export function keyOf(kind: AtomKind, text: string): string {
  return `${kind} ${kind === 'fact' ? subjectOf(text) : text}`;
}

/** Reads messages in order and counts each atom once a message. */
export class Mentions {
  readonly atoms = new Map<string, Atom>();
  /** Messages read so far. */
  read = 0;

  add(message: ChatMessage): void {
    this.read += 1;
    const text = plainTextOf(message);
    for (const call of message.tool_calls ?? []) {
      if (nameOf(call)) wordAtoms(argumentsOf(call), this.visitor('calls'));
    }
    if (message.function_call) wordAtoms(message.function_call.arguments, this.visitor('calls'));
    const speaker = speakerOf(message);
    const visit = this.visitor(speaker);
    wordAtoms(text, visit);
    if (speaker === 'tools') {
      errorAtoms(text, visit);
      factAtoms(text, visit);
    }
    if (speaker === 'user') constraintAtoms(text, visit);
  }

  private visitor(by: Speaker) {
    return (kind: AtomKind, found: string): void => {
      const key = keyOf(kind, found);
      let atom = this.atoms.get(key);
      if (!atom) this.atoms.set(key, (atom = emptyAtom(kind, found)));
      // The newest wording of a fact holds.
      atom.text = found;
      atom.first ||= this.read;
      if (by !== 'tools' && atom.used !== this.read) {
        atom[by] += 1;
        atom.used = this.read;
      } else if (by === 'tools' && atom.last !== this.read) atom.tools += 1;
      atom.last = this.read;
    };
  }
}

function speakerOf({ role }: ChatMessage): Exclude<Speaker, 'calls'> {
  if (role === 'assistant') return 'assistant';
  return role === 'tool' || role === 'function' ? 'tools' : 'user';
}
