/**
 * Facts that a tool states in canonical form, `LABEL|key=value|key=value`: exact by design, so they are kept whole. What
 * the same thing is said to be later takes the place of what was said before.
 */
import type { AtomVisitor } from './atoms.js';
import { clip, linesOf } from './sentences.js';

const LONGEST_FACT = 240;
const pair = /^[A-Za-z_][\w .-]{0,39}=[^|=]{1,120}$/;

/** Canonical facts of one tool result. Needs two pairs: a shell pipe or a query string is none. */
export function factAtoms(text: string, visit: AtomVisitor): void {
  if (!text.includes('|') || !text.includes('=')) return;
  for (const line of linesOf(text)) {
    if (line.length > 2_000 || !line.includes('|')) continue;
    const fields = fieldsOf(line);
    if (fields !== null) visit('fact', clip(fields.join('|'), LONGEST_FACT));
  }
}

function fieldsOf(line: string): string[] | null {
  const fields = line.trim().replace(/\s+/g, ' ').split('|', 40).map((field) => field.trim());
  const pairs = fields.filter((field) => pair.test(field));
  const label = pairs.length === fields.length ? '' : (fields[0] ?? '');
  const isLabel = label === '' || /^[A-Za-z][\w .:-]{0,59}$/.test(label);
  return isLabel && pairs.length >= 2 && pairs.length >= fields.length - 1 ? fields : null;
}

/** What a fact is about: its label and its first pair, for instance `PROJECT_FACT|code=ORBIT`. */
export function subjectOf(fact: string): string {
  const fields = fact.split('|');
  return fields.slice(0, pair.test(fields[0] ?? '') ? 1 : 2).join('|');
}

/** The pairs of a fact beyond its subject; each may be looked for by itself. */
export function pairsOf(fact: string): string[] {
  return fact.split('|').filter((field) => pair.test(field));
}
