/**
 * Removes secrets before summarizer, summary and exact values get a text. The log keeps the original. A secret becomes
 * `[REDACTED:kind:hash]`; the hash is keyed by tenant, so that equal secrets have equal hashes within one tenant only.
 */
import { createHmac, hash as hashOf } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Policy } from '../../policy/defaults.js';
import { atOnce, type Steps } from '../../steps.js';
import { assertPattern, Matching } from '../../conversation/pattern.js';
import { findSecrets, type Secret } from './find.js';
import type { Span } from './views.js';

/** The placeholder of a secret. It is never searched, so that redaction is idempotent. */
const placeholder = /\[REDACTED:[a-z_]{1,30}:[0-9a-f]{8}\]/g;
/** Redacts a text at once; `steps`, if present, redacts a long text in steps. */
export type Redact = ((text: string) => string) & { steps?: (text: string) => Steps<string> };

/** Redacts in steps if possible. */
export function* redacting(redact: Redact, text: string): Steps<string> {
  return redact.steps ? yield* redact.steps(text) : redact(text);
}

/**
 * The redactor of a policy, which takes linear time and is idempotent for the known forms; null if redaction is off.
 * Throws `Input.Invalid` with the path of a refused pattern: a policy stored before patterns were checked may have one, and
 * ignoring it would reveal its matches. The redactor throws the same if matching takes too long.
 */
export function redactorFor(
  redact: Policy['redact'],
  tenant: string,
  matching = new Matching(),
): Redact | null {
  if (redact === null) return null;
  const pathOf = (index: number) => `policy.redact.patterns[${index}]`;
  redact.patterns.forEach((pattern, index) => assertPattern(pattern, pathOf(index)));
  const key = `palimpsest redaction of ${tenant}`;
  const shown = (kind: string, secret: string): string => {
    const hash = createHmac('sha256', key).update(secret).digest('hex').slice(0, 8);
    return `[REDACTED:${kind}:${hash}]`;
  };
  function* steps(text: string): Steps<string> {
    const hidden = redact!.secrets ? yield* secretsIn(text, shown) : [];
    if (redact!.patterns.length === 0) return withMarks(text, hidden);
    // Each pattern searches the original text: one match may be inside another.
    const found: Span[] = [];
    for (const [index, pattern] of redact!.patterns.entries())
      yield* matchesIn(text, pattern, pathOf(index), matching, found);
    return withMarks(text, yield* besides(hidden, found, text, shown));
  }
  return Object.assign((text: string) => atOnce(steps(text)), { steps });
}

type Shown = (kind: string, secret: string) => string;

/** A span of the original text, and its replacement. */
interface Hidden extends Span {
  mark: string;
}

function* secretsIn(text: string, shown: Shown): Steps<Hidden[]> {
  const hidden: Hidden[] = [];
  for (const { kind, from, to } of yield* knownSecretsIn(text)) {
    hidden.push({ from, to, mark: shown(kind, text.slice(from, to)) });
    yield;
  }
  return hidden;
}

/**
 * Secrets of the texts that were searched last, by the hash of the text: a message is read for its chunk, for the head of its
 * compaction, and before that for each head that it stays beside.
 */
const searched = new LRUCache<string, readonly Secret[]>({
  max: 20_000,
  maxSize: 100_000,
  sizeCalculation: (secrets) => secrets.length + 1,
});

function* knownSecretsIn(text: string): Steps<readonly Secret[]> {
  // UTF-8 would write all lone surrogates alike.
  const hash = hashOf('sha256', Buffer.from(text, 'utf16le'), 'base64');
  const known = searched.get(hash);
  if (known) return known;
  const found = yield* findSecrets(text, marksIn(text));
  searched.set(hash, found);
  return found;
}

function withMarks(text: string, hidden: readonly Hidden[]): string {
  if (hidden.length === 0) return text;
  const pieces: string[] = [];
  let copied = 0;
  for (const { from, to, mark } of hidden) {
    pieces.push(text.slice(copied, from), mark);
    copied = to;
  }
  pieces.push(text.slice(copied));
  return pieces.join('');
}

function marksIn(text: string): Span[] {
  return [...text.matchAll(placeholder)].map(({ index, 0: found }) => ({
    from: index,
    to: index + found.length,
  }));
}

/** Whether a span begins or ends inside a placeholder. */
function cutsMark(marks: readonly Span[], from: number, to: number): boolean {
  const isInside = (at: number) => {
    let [low, high] = [0, marks.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((marks[middle]?.to ?? 0) <= at) low = middle + 1;
      else high = middle;
    }
    return (marks[low]?.from ?? Infinity) < at;
  };
  return isInside(from) || isInside(to);
}

/** Adds the matches of one pattern; adjacent matches are joined. */
function* matchesIn(
  text: string,
  pattern: string,
  path: string,
  matching: Matching,
  all: Span[],
): Steps<void> {
  const kept = marksIn(text);
  let last: Span | undefined;
  for (const found of matching.searchHidden(text, pattern, path)) {
    yield;
    // A match must not be a placeholder, nor begin or end inside one.
    if (found === null || cutsMark(kept, found.from, found.to)) continue;
    if (last?.to === found.from) last.to = found.to;
    else all.push((last = { from: found.from, to: found.to }));
  }
}

/** The spans hidden already, with the remaining matches around them; overlapping spans become one. */
function* besides(hidden: readonly Hidden[], found: Span[], text: string, shown: Shown): Steps<Hidden[]> {
  found.sort((one, other) => one.from - other.from || other.to - one.to);
  const kept = withEarlier(hidden, text);
  const all: Hidden[] = [];
  let nextKept = 0;
  const hide = (from: number, to: number) => {
    if (from < to) all.push({ from, to, mark: shown('custom', text.slice(from, to)) });
  };
  for (let index = 0; index < found.length;) {
    const { from, to: end } = found[index++]!;
    let to = end;
    for (let next = found[index]; next && next.from < to; next = found[++index]) to = Math.max(to, next.to);
    let at = from;
    for (let one = kept[nextKept]; one && one.from < to; one = kept[++nextKept]) {
      hide(at, one.from);
      all.push(one);
      at = Math.max(at, one.to);
    }
    hide(at, to);
    yield;
  }
  return [...all, ...kept.slice(nextKept)];
}

/** Adds the placeholders that the input text already had, except those inside a secret. */
function withEarlier(hidden: readonly Hidden[], text: string): Hidden[] {
  const earlier = marksIn(text).map(({ from, to }) => ({ from, to, mark: text.slice(from, to) }));
  const all = [...earlier, ...hidden].sort((one, other) => one.from - other.from || other.to - one.to);
  let end = 0;
  return all.filter(({ from, to }) => {
    const isFree = from >= end;
    end = Math.max(end, to);
    return isFree;
  });
}
