/**
 * Facts that a tool states in canonical form, `LABEL|key=value|key=value`: exact by design, so they are kept whole. What
 * the same thing is said to be later takes the place of what was said before.
 */
import type { AtomVisitor } from './atoms.js';
import { clip, linesOf } from '../text/sentences.js';

const LONGEST_FACT = 240;
const pair = /^[A-Za-z_][\w.-]{0,39}=[^|=]{1,120}$/;

/** Canonical facts of one tool result. Needs two pairs: a shell pipe or a query string is none. */
export function factAtoms(text: string, visit: AtomVisitor): void {
  if (!text.includes('|') || !text.includes('=')) return;
  for (const line of linesOf(text)) {
    if (line.length > 2_000 || !line.includes('|')) continue;
    const fact = line.trim().replace(/\s+/g, ' ');
    if (isFact(fact)) visit('fact', clip(fact, LONGEST_FACT));
  }
}

function isFact(line: string): boolean {
  const fields = fieldsOf(line);
  const pairs = fields.filter((field) => pair.test(field)).length;
  const isLabelled = pairs === fields.length || /^[A-Za-z][\w .:-]{0,59}$/.test(fields[0] ?? '');
  return isLabelled && pairs >= 2 && pairs >= fields.length - 1;
}

function fieldsOf(fact: string): string[] {
  return fact.split('|', 40).map((field) => field.trim());
}

/** What a fact is about: its label and its first pair, for instance `PROJECT_FACT|code=ORBIT`. */
export function subjectOf(fact: string): string {
  const fields = fieldsOf(fact);
  return fields.slice(0, pair.test(fields[0] ?? '') ? 1 : 2).join('|');
}

/** The pairs of a fact. */
export function pairsOf(fact: string): string[] {
  return fieldsOf(fact).filter((field) => pair.test(field));
}
