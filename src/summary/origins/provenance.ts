/**
 * Ensures that the sections that a model obeys contain no statement that only a tool made. A summarizer may copy an instruction
 * that was planted in a tool's output (Unit 42, "When AI Remembers Too Much"), or join harmless fragments into an instruction,
 * which no check of the sources can find. Therefore this check reads the summary: a sentence in the wording of tools alone is a
 * claim.
 */
import { clip } from '../text/sentences.js';
import { factsSection, sections, type Section } from '../answer/sections.js';
import { labelled, readSources, type Sources } from './sources.js';
import { unitsOf, type Sentence, type Unit } from './units.js';
import { Wording, wordsOf, type Word } from './wording.js';

/** Built-in sections that state facts; all other sections give a model instructions. */
const statements: readonly string[] = ['decisions', 'artifacts', 'facts', 'state'];

/**
 * A sentence counts as a claim of tools if at least this share of its words, and at least two of them, were used by tools only.
 */
const COPIED = 0.5;

/** Minimum number of words that must remain of a bullet without its claims; otherwise the whole bullet is moved. */
const SHORTEST_REST = 4;

/** Maximum characters kept of a claim; the archive has all of it. */
const LONGEST_CLAIM = 400;

/**
 * Finds the claims of tools in the sections that give a model instructions (intent, constraints, next, custom sections), and
 * returns the snapshot after moving each claim to "Facts from tools", with its origin. A sentence is a claim by its wording, or
 * by an address that only a tool named; other sentences stay unchanged. Claims that do not fit with their labels are left out,
 * the last first; the archive has them. A snapshot without claims is returned unchanged. The time is linear in the sources.
 */
export function relocateToolClaims(
  snapshot: string,
  sources: Sources,
  among: readonly Section[] = sections,
  fits: (relocated: string) => boolean = () => true,
): string {
  const units = unitsOf(snapshot, among);
  const claims = units.flatMap((unit) =>
    unit.sentences.flatMap((sentence) => (isQuestioned(unit, sentence) ? [{ unit, sentence }] : [])),
  );
  if (claims.length === 0) return snapshot;
  const wording = new Wording();
  for (const { sentence } of claims) {
    wording.expect(sentence.words);
    for (const address of addressesIn(sentence.text)) wording.expect(address);
  }
  readSources(wording, sources, among);
  const said = claims.flatMap(({ unit, sentence }) => {
    sentence.said = judged(sentence, unit.section, wording);
    return sentence.said === null ? [] : [sentence.said];
  });
  if (said.length === 0) return snapshot;
  for (let kept = said.length; ; kept = Math.floor(kept / 2)) {
    for (const claim of said.slice(kept)) claim.isLeftOut = true;
    const relocated = written(units, among);
    if (kept === 0 || fits(relocated)) return relocated;
  }
}

function isInstruction(section: string | null): boolean {
  return section !== null && !statements.includes(section);
}

function isQuestioned(unit: Unit, { words }: Sentence): boolean {
  return words.length >= 2 && isInstruction(unit.section);
}

/** Addresses to which data or money would be sent, or from which a program would come. */
const addresses =
  /\b(?:https?:\/\/|www\.)[^\s"'<>()[\]]{4,300}|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}/g;

const outward =
  /\b(?:send|post|upload|forward|e-?mail|mail|transfer|pay|report|share|submit|publish|copy|deliver|run|execute|install|curl|pipe)(?:s|ing|ed)?\b/i;

function addressesIn(text: string): Word[][] {
  return [...text.matchAll(addresses)]
    .map(([address]) => wordsOf(address))
    .filter(({ length }) => length > 1);
}

/**
 * Returns the tools that alone named an address of an instruction; the instruction is then a claim in any wording. A next step
 * may contain an address that a tool found, unless the step would send something to that address or run something from there.
 */
function addressedBy({ text }: Sentence, section: string | null, wording: Wording): string[] {
  if (!isInstruction(section) || (section === 'next' && !outward.test(text))) return [];
  const credits = addressesIn(text).map((words) => wording.credit(words));
  const foreign = credits.filter((credit) =>
    credit.every(({ trusted, origins }) => !trusted && origins.length > 0),
  );
  return [...new Set(foreign.flat().flatMap(({ origins }) => origins))];
}

function judged(sentence: Sentence, section: string | null, wording: Wording): Sentence['said'] {
  const { words } = sentence;
  const credit = wording.credit(words);
  const isTools = credit.map(({ trusted, origins }) => !trusted && origins.length > 0);
  const named = credit.flatMap(({ origins }, index) => (isTools[index] ? origins : []));
  const copied = isTools.filter(Boolean).length;
  if (copied >= 2 && copied >= COPIED * words.length)
    return { origins: [...new Set(named)], isLeftOut: false };
  const origins = addressedBy(sentence, section, wording);
  return origins.length > 0 ? { origins, isLeftOut: false } : null;
}

interface Kept {
  unit: Unit;
  lines: string[];
}

/** The text of the units with claims moved; all other lines are unchanged. */
function written(units: readonly Unit[], among: readonly Section[]): string {
  const kept: Kept[] = [];
  const moved = new Set<string>();
  for (const unit of units) {
    if (unit.sentences.every(({ said }) => said === null)) kept.push({ unit, lines: unit.lines });
    else {
      const { rest, claims } = takenOut(unit);
      for (const claim of claims) moved.add(`- ${claim}`);
      if (rest !== null) kept.push({ unit, lines: [unit.mark + rest] });
    }
  }
  const filled = kept.filter(({ unit }, index) => !isEmptied(unit, kept.slice(index + 1), units));
  return withFacts(filled, [...moved], among).join('\n');
}

/** Whether all bullets of a heading were moved away. */
function isEmptied(heading: Unit, after: readonly Kept[], units: readonly Unit[]): boolean {
  if (!heading.isHeading) return false;
  const holdsText = (following: readonly Unit[]) => {
    const next = following.find((unit) => unit.isHeading || saysSomething(unit.lines));
    return next !== undefined && !next.isHeading;
  };
  return holdsText(units.slice(units.indexOf(heading) + 1)) && !holdsText(after.map(({ unit }) => unit));
}

function saysSomething(lines: readonly string[]): boolean {
  return lines.some((line) => line.trim() !== '');
}

/**
 * Separates the claims of a bullet from the rest. If fewer than `SHORTEST_REST` words remain, the whole bullet becomes one
 * claim, since the rest has no meaning alone.
 */
function takenOut({ sentences }: Unit): { rest: string | null; claims: string[] } {
  const own = sentences.filter(({ said }) => said === null);
  const claimed = sentences.filter(({ said }) => said?.isLeftOut === false);
  if (own.reduce((sum, { words }) => sum + words.length, 0) < SHORTEST_REST) {
    const origins = [...new Set(sentences.flatMap(({ said }) => said?.origins ?? []))];
    const whole = sentences.map(({ text }) => text).join('');
    return { rest: null, claims: claimed.length === 0 ? [] : [claimOf(whole, origins)] };
  }
  const rest = own
    .map(({ text }) => text)
    .join('')
    .trim();
  const claims = claimed.map(({ text, said }) => claimOf(text, said?.origins ?? []));
  return { rest: rest === '' ? null : rest, claims };
}

function claimOf(text: string, origins: readonly string[]): string {
  const plain = clip(text.replace(/\s+/g, ' ').trim(), LONGEST_CLAIM);
  return labelled.test(plain) ? plain : `${plain} (${nameOf(origins)})`;
}

/** Names at most two origins; returns `tool` if no origin has a name. */
function nameOf(origins: readonly string[]): string {
  const known = origins.filter((origin) => origin !== 'tool');
  return known.length === 0 ? 'tool' : known.slice(0, 2).join(', ');
}

/**
 * Adds claims at the end of the section of facts. If the snapshot has no such section, inserts it before the first section that
 * comes later in the order of sections.
 */
function withFacts(kept: readonly Kept[], claims: readonly string[], among: readonly Section[]): string[] {
  const lastText = kept.findLastIndex(({ lines }) => saysSomething(lines));
  const last = kept.findLastIndex(
    ({ unit, lines }) => unit.section === factsSection.key && saysSomething(lines),
  );
  const order = among.map(({ key }) => key);
  const place = order.indexOf(factsSection.key);
  const later = place < 0 ? [] : order.slice(place + 1);
  const next = kept.findIndex(
    ({ unit }) => unit.isHeading && unit.section !== null && later.includes(unit.section),
  );
  const at = last >= 0 ? last + 1 : next >= 0 ? next : lastText + 1;
  const block = claims.length === 0 || last >= 0 ? claims : [`## ${titleOf(among)}`, ...claims];
  return [
    ...kept.slice(0, at).flatMap(({ lines }) => lines),
    ...block,
    ...kept.slice(at).flatMap(({ lines }) => lines),
  ];
}

function titleOf(among: readonly Section[]): string {
  return among.find(({ key }) => key === factsSection.key)?.title ?? factsSection.title;
}
