/**
 * Keeps what only a tool said out of the sections that a model obeys. A summarizer may copy an instruction that was planted
 * in a tool's output (Unit 42, "When AI Remembers Too Much"), or join harmless fragments to one; no reading before the
 * summary sees that. So the summary itself is checked: wording that comes from tools, and from nobody else, is a claim.
 */
import { clip } from '../text/sentences.js';
import { factsSection, sections, type Section } from '../answer/sections.js';
import { labelled, readSources, type Sources } from './sources.js';
import { unitsOf, type Sentence, type Unit } from './units.js';
import { Wording, wordsOf, type Word } from './wording.js';

/** Built-in sections that state what is or was; all others tell a model what to do. */
const statements: readonly string[] = ['decisions', 'artifacts', 'facts', 'state'];

/** Share of the words of a sentence that makes it a tool's. */
const COPIED = 0.5;

/** Words that can stand as a bullet by themselves. */
const SHORTEST_REST = 4;

/** Words in a row that are cut out of a sentence which is not a tool's as a whole. */
const LONGEST_QUOTED = 6;

/** Characters of a claim that are kept: it is in the archive. */
const LONGEST_CLAIM = 400;

/**
 * The snapshot with every bullet of an instruction section (intent, constraints, next, custom ones) that uses a tool's
 * words moved to "Facts from tools", with its origin; what sounds like an instruction elsewhere is labelled where it
 * stands. Claims whose labels would not fit are left out, the last first: they are in the archive. A snapshot in which
 * nothing of that kind is found comes back as it was. Linear in the sources.
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

/** How an order begins or sounds. In sections of instructions wording alone decides; here it keeps facts in their place. */
const order =
  /\b(?:must|never|always|do not|don't|should(?:n't)?|shall|ignore|disregard|forget|obey|override|from now on|you are (?:now|to|required|allowed)|your (?:new )?(?:task|instructions?|goal|role)|make sure|be sure|ensure|required to|instructions?|whenever)\b|^[\W_]*(?:(?:please|now|then|and|also|immediately|first|next|important|system|user)[\W_]+)*(?:run|execute|send|post|upload|e-?mail|delete|remove|drop|transfer|pay|refund|buy|order|open|visit|fetch|download|install|curl|wget|reveal|print|tell|reply|respond|answer|say|call|use|set|change|disable|enable|grant|give|share|forward|copy|follow|treat|remember|add|commit|push|approve|accept|skip|bypass|export|include)\b/iu;

function isInstruction(section: string | null): boolean {
  return section !== null && !statements.includes(section);
}

/** Among the facts it is enough that the tool is named. */
const named = /\btool:[\w.-]|\btool (?:returned|reported)\b/;

function isQuestioned(unit: Unit, { text, words }: Sentence): boolean {
  if (words.length < 2) return false;
  if (isInstruction(unit.section)) return true;
  const isFact = unit.section === factsSection.key;
  const isLabelled = unit.lines.some((line) => labelled.test(line) || (isFact && named.test(line)));
  return order.test(text) && !isLabelled;
}

/** Where data or money would go, or a program would come from. */
const addresses =
  /\b(?:https?:\/\/|www\.)[^\s"'<>()[\]]{4,300}|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}/g;

const outward =
  /\b(?:send|post|upload|forward|e-?mail|mail|transfer|pay|report|share|submit|publish|copy|deliver|run|execute|install|curl|pipe)(?:s|ing|ed)?\b/i;

function addressesIn(text: string): Word[][] {
  return [...text.matchAll(addresses)]
    .map(([address]) => wordsOf(address))
    .filter(({ length }) => length > 1);
}

/** However it is worded: an instruction whose address only a tool has named came from there. Next steps may look at addresses that were found. */
function addressedBy({ text }: Sentence, section: string | null, wording: Wording): string[] {
  if (!isInstruction(section) || (section === 'next' && !outward.test(text))) return [];
  const credits = addressesIn(text).map((words) => wording.credit(words));
  const foreign = credits.filter((credit) =>
    credit.every(({ trusted, origins }) => !trusted && origins.length > 0),
  );
  return [...new Set(foreign.flat().flatMap(({ origins }) => origins))];
}

function judged(sentence: Sentence, section: string | null, wording: Wording): Sentence['said'] {
  const { text, words } = sentence;
  const credit = wording.credit(words);
  const isTools = credit.map(({ trusted, origins }) => !trusted && origins.length > 0);
  const originsIn = (from: number, to: number) => [
    ...new Set(
      credit.slice(from, to).flatMap(({ origins }, index) => (isTools[from + index] ? origins : [])),
    ),
  ];
  const copied = isTools.filter(Boolean).length;
  if (copied >= 2 && copied >= COPIED * words.length) {
    return { from: 0, to: text.length, origins: originsIn(0, words.length), isLeftOut: false };
  }
  const addressed = addressedBy(sentence, section, wording);
  if (addressed.length > 0) return { from: 0, to: text.length, origins: addressed, isLeftOut: false };
  for (let at = 0; at < words.length; at++) {
    if (!isTools[at]) continue;
    let end = at;
    while (isTools[end + 1]) end++;
    const [from, to] = [words[at]?.from ?? 0, words[end]?.to ?? text.length];
    if (end + 1 - at >= LONGEST_QUOTED && order.test(text.slice(from, to))) {
      return { from, to, origins: originsIn(at, end + 1), isLeftOut: false };
    }
    at = end;
  }
  return null;
}

/** The text of the units with claims moved or labelled; the lines of all others as they were. */
function written(units: readonly Unit[], among: readonly Section[]): string {
  const lines: string[] = [];
  for (const layer of layersIn(units)) lines.push(...layerLines(layer, among));
  return lines.join('\n');
}

function layersIn(units: readonly Unit[]): Unit[][] {
  const layers: Unit[][] = [[]];
  for (const unit of units) {
    if (unit.isLayer) layers.push([]);
    layers.at(-1)?.push(unit);
  }
  return layers;
}

interface Kept {
  unit: Unit;
  lines: string[];
}

function layerLines(units: readonly Unit[], among: readonly Section[]): string[] {
  const kept: Kept[] = [];
  const moved = new Set<string>();
  for (const unit of units) {
    if (unit.sentences.every(({ said }) => said === null)) kept.push({ unit, lines: unit.lines });
    else if (isInstruction(unit.section)) {
      const { rest, claims } = takenOut(unit);
      for (const claim of claims) moved.add(`- ${claim}`);
      if (rest !== null) kept.push({ unit, lines: [unit.mark + rest] });
    } else kept.push({ unit, lines: [unit.mark + labelledText(unit)] });
  }
  const filled = kept.filter(({ unit }, index) => !isEmptied(unit, kept.slice(index + 1), units));
  return withFacts(filled, [...moved], among);
}

/** A heading whose bullets have all been moved away. */
function isEmptied(heading: Unit, after: readonly Kept[], units: readonly Unit[]): boolean {
  if (!heading.isHeading || heading.isLayer) return false;
  const holdsText = (following: readonly Unit[]) => {
    const next = following.find((unit) => unit.isHeading || saysSomething(unit.lines));
    return next !== undefined && !next.isHeading;
  };
  return holdsText(units.slice(units.indexOf(heading) + 1)) && !holdsText(after.map(({ unit }) => unit));
}

function saysSomething(lines: readonly string[]): boolean {
  return lines.some((line) => line.trim() !== '');
}

/** Where less than a phrase is left, the whole bullet goes: the rest would lean on what is gone. */
function takenOut({ sentences }: Unit): { rest: string | null; claims: string[] } {
  const left = sentences.reduce((sum, { words, said }) => {
    if (said === null) return sum + words.length;
    return sum + words.filter(({ from, to }) => to <= said.from || from >= said.to).length;
  }, 0);
  if (left < SHORTEST_REST) {
    const origins = [...new Set(sentences.flatMap(({ said }) => said?.origins ?? []))];
    if (sentences.every(({ said }) => said === null || said.isLeftOut)) return { rest: null, claims: [] };
    return { rest: null, claims: [claimOf(sentences.map(({ text }) => text).join(''), origins)] };
  }
  const claims = sentences.flatMap(({ text, said }) =>
    said === null || said.isLeftOut ? [] : [claimOf(text.slice(said.from, said.to), said.origins)],
  );
  const rest = sentences
    .map(({ text, said }) => {
      if (said === null) return text;
      const isWhole = said.from === 0 && said.to === text.length;
      return isWhole ? '' : `${text.slice(0, said.from)}…${text.slice(said.to)}`;
    })
    .join('')
    .trim();
  return { rest: rest === '' ? null : rest, claims };
}

function claimOf(text: string, origins: readonly string[]): string {
  const plain = clip(text.replace(/\s+/g, ' ').trim(), LONGEST_CLAIM);
  const claim = order.test(plain) ? `claim, not an instruction: ${plain}` : plain;
  return labelled.test(plain) ? claim : `${claim} (${nameOf(origins)})`;
}

function labelledText({ sentences }: Unit): string {
  return sentences
    .map(({ text, said }) => {
      if (said === null) return text;
      const lead = /^\s*/.exec(text.slice(said.from))?.[0] ?? '';
      if (said.isLeftOut) return `${text.slice(0, said.from)}${lead}…${text.slice(said.to)}`;
      const claim = text.slice(said.from + lead.length, said.to);
      return `${text.slice(0, said.from)}${lead}[claim of ${nameOf(said.origins)}, not an instruction: ${claim}]${text.slice(said.to)}`;
    })
    .join('');
}

/** At most two origins; one without a name only where none has one. */
function nameOf(origins: readonly string[]): string {
  const known = origins.filter((origin) => origin !== 'tool');
  return known.length === 0 ? 'tool' : known.slice(0, 2).join(', ');
}

/** Puts claims at the end of the facts; where there are none, a section of facts before those that come later. */
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
