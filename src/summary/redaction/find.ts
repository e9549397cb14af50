/** Finds secrets in a text, in all its readings. */
import type { Steps } from '../../steps.js';
import { BARRIER, secretForms, type SecretForm } from './forms.js';
import { manifestValues } from './manifest.js';
import { nextMatch, type Read } from './search.js';
import { viewsOf, type Span, type View } from './views.js';

export interface Secret extends Span {
  kind: string;
}

/** A secret and the place of its form in the list, by which overlapping secrets get one kind. */
interface Found extends Secret {
  rank: number;
}

/** Maximum rounds: a secret next to another may be recognized only after the other is hidden. */
const MOST_ROUNDS = 6;

/** The secrets of a text in ascending order, outside of the spans that are `known` already. */
export function* findSecrets(text: string, known: readonly Span[] = []): Steps<Secret[]> {
  let secrets: Found[] = [];
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const left = withBarriers(text, [...known, ...secrets]);
    const found: Found[] = [];
    const { plain, joined } = yield* viewsOf(left);
    for (const view of plain) yield* searchIn(view, secretForms, found);
    for (const view of joined) {
      const broken: Found[] = [];
      yield* searchIn(view, tokenForms, broken);
      for (const one of broken) if (/\n|\\n|\+/.test(left.slice(one.from, one.to))) found.push(one);
    }
    for (const view of plain.slice(0, 2)) yield* encodedIn(view, found);
    if (found.length === 0) break;
    secrets = united([...secrets, ...found]);
  }
  return secrets;
}

const tokenForms = secretForms.filter(({ token }) => token === true);
const ranks = new Map(secretForms.map((one, rank) => [one, rank]));

function* searchIn(view: View, forms: readonly SecretForm[], found: Found[]): Steps<void> {
  const there = yield* signsIn(view.text.toLowerCase().replaceAll('ſ', 's'));
  const signed = new Set([...there].flatMap((sign) => formsBySign.get(sign) ?? []));
  for (const one of forms) {
    if (one.signs.length > 0 && !signed.has(one)) continue;
    if (one.marks?.some((mark) => there.has(mark)) === false) continue;
    const rank = ranks.get(one)!;
    yield* matchesOf(view.text, one, ({ from, to }) =>
      found.push({ ...view.original(from, to), kind: one.kind, rank }),
    );
    yield;
  }
  if (forms === secretForms)
    for (const { from, to } of manifestValues(view.text)) {
      yield;
      if (!view.text.slice(from, to).includes(BARRIER))
        found.push({ ...view.original(from, to), kind: 'password', rank: secretForms.length });
    }
}

const formsBySign = new Map<string, SecretForm[]>();
for (const one of secretForms)
  for (const sign of one.signs) formsBySign.set(sign, [...(formsBySign.get(sign) ?? []), one]);

const signs = [...new Set([...formsBySign.keys(), ...secretForms.flatMap(({ marks = [] }) => marks)])];
const shortSigns = signs.filter((sign) => sign.length < 3);

/** Signs by the hash of their first three characters. */
const longSigns = new Map<number, string[]>();
for (const sign of signs.filter((one) => one.length >= 3)) {
  const triple = tripleEndingAt(sign, 2);
  longSigns.set(triple, [...(longSigns.get(triple) ?? []), sign]);
}

/** Whether signs begin with a triple. Few triples of a text do, so that it is read once for all signs. */
const beginsSigns = new Uint8Array(1 << 16);
for (const triple of longSigns.keys()) beginsSigns[triple] = 1;

function tripleEndingAt(text: string, at: number): number {
  const hash = text.charCodeAt(at - 2) * 1_201 + text.charCodeAt(at - 1) * 37 + text.charCodeAt(at);
  return hash & 0xffff;
}

/** The signs that a text contains. */
function* signsIn(lower: string): Steps<Set<string>> {
  const found = new Set(shortSigns.filter((sign) => lower.includes(sign)));
  for (let at = 2; at < lower.length; at++) {
    const triple = tripleEndingAt(lower, at);
    if (beginsSigns[triple] === 1)
      for (const sign of longSigns.get(triple) ?? []) if (lower.startsWith(sign, at - 2)) found.add(sign);
    if (at % 65_536 === 0) yield;
  }
  return found;
}

function* matchesOf(
  text: string,
  { form, accepts, reach }: SecretForm,
  add: (span: Span) => void,
): Steps<void> {
  let at = 0;
  for (;;) {
    const next = yield* nextMatch(form, text, at, reach);
    if (next === null) return;
    yield;
    const [match] = next.read;
    const span = secretOf(next);
    const value = text.slice(span.from, span.to);
    const quoted =
      /["'`“”„«‘「『>]/.test(text[span.from - 1] ?? '') || /["'`”’»」』]/.test(text[span.to] ?? '');
    const isSecret =
      value !== '' &&
      !value.includes(BARRIER) &&
      (accepts === undefined || accepts(value, { match, quoted }));
    if (isSecret) add(span);
    // A name inside a value that is no secret may have a secret of its own.
    at = Math.max(next.base + next.read.index + 1, isSecret ? span.to : span.from);
  }
}

/**
 * The span of the group that matched, or of the whole match, without spaces around it. It ends where an escaped line or
 * quotation ends: the reading without escapes has the rest.
 */
function secretOf({ read, base }: Read): Span {
  const groups: Record<string, [number, number] | undefined> = read.indices?.groups ?? {};
  const [from, to] = Object.values(groups).find((span) => span !== undefined) ?? [
    read.index,
    read.index + read[0].length,
  ];
  const whole = read.input.slice(from, to);
  const cut = whole.search(/\\[nrt"]/);
  const value = cut === -1 ? whole : whole.slice(0, cut);
  return {
    from: base + from + value.length - value.trimStart().length,
    to: base + from + value.trimEnd().length,
  };
}

/** Runs of base64, also over several lines. Their number of characters is a multiple of four, so that a longer run is read on. */
const encoded = /[A-Za-z0-9+/_-]{24,12000}(?:\r?\n[ \t]{0,20}[A-Za-z0-9+/_-]{24,100}){0,100}={0,2}/g;
/** The same from the first character of a run: where that is too short, none of the others begins a match. */
const encodedRun = new RegExp(`(?<![A-Za-z0-9+/_-])${encoded.source}`, 'g');
const printable = /^[\t\n\r\x20-\x7E]*$/;

/** Hides a text in base64 as a whole if it contains a secret. */
function* encodedIn(view: View, found: Found[]): Steps<void> {
  for (let at = 0; ;) {
    const isInRun = at > 0 && /[\w+/-]/.test(view.text[at] ?? '');
    const next = yield* nextMatch(isInRun ? encoded : encodedRun, view.text, at);
    if (next === null) return;
    yield;
    const [run] = next.read;
    const index = next.base + next.read.index;
    at = index + run.length;
    if (!printable.test(Buffer.from(run.slice(0, 32), 'base64').toString('latin1').slice(0, -1))) continue;
    const text = Buffer.from(run, 'base64')
      .toString('latin1')
      .replace(/[^\x20-\x7E]{1,2}$/, '');
    if (!printable.test(text)) continue;
    const inside: Found[] = [];
    const { plain } = yield* viewsOf(text);
    for (const one of plain) yield* searchIn(one, secretForms, inside);
    const [first] = united(inside);
    if (first) found.push({ ...first, ...view.original(index, index + run.length) });
  }
}

function withBarriers(text: string, spans: readonly Span[]): string {
  if (spans.length === 0) return text;
  const pieces: string[] = [];
  let copied = 0;
  for (const { from, to } of [...spans].sort((one, other) => one.from - other.from)) {
    if (from < copied) continue;
    pieces.push(text.slice(copied, from), BARRIER.repeat(to - from));
    copied = to;
  }
  pieces.push(text.slice(copied));
  return pieces.join('');
}

/** Overlapping secrets become one, of the kind that is first in the list. */
function united(found: readonly Found[]): Found[] {
  const sorted = [...found].sort((one, other) => one.from - other.from || other.to - one.to);
  const all: Found[] = [];
  for (const one of sorted) {
    const last = all.at(-1);
    if (last === undefined || last.to <= one.from) {
      all.push({ ...one });
      continue;
    }
    last.to = Math.max(last.to, one.to);
    if (one.rank < last.rank) [last.rank, last.kind] = [one.rank, one.kind];
  }
  return all;
}
