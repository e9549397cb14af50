/**
 * Keeps what only a tool said out of the sections that a model obeys. A summarizer may copy an instruction that was planted
 * in a tool's output (Unit 42, "When AI Remembers Too Much"), or join harmless fragments to one; no reading before the
 * summary sees that. So the summary itself is checked: wording that comes from tools, and from nobody else, is a claim.
 */
import { clip } from './atoms.js';
import { factsSection, isLayerHeading, sections, type Section } from './sections.js';
import { parseSnapshot, sectionAt } from './snapshot.js';
import { Wording, wordsOf, type Word } from './wording.js';

export interface Sources {
  /** What user, system and assistant said. */
  trusted: Iterable<string>;
  /** What tools returned; `origin` is `tool:<name>`, or `tool` where no name is known. */
  tools: Iterable<{ origin: string; text: string }>;
  /** The snapshot that was folded in: its facts are tools' claims still, the rest passed this check when it was made. */
  previous?: string | null;
}

/** Built-in sections that state what is or was; all others tell a model what to do. */
const statements: readonly string[] = ['decisions', 'artifacts', 'facts', 'state'];
/** Share of the words of a sentence that makes it a tool's. */
const COPIED = 0.5;
/** Words of a sentence that is judged by itself. */
const SHORTEST_SENTENCE = 3;
/** Words that can stand as a bullet by themselves. */
const SHORTEST_REST = 4;
/** Words in a row that are cut out of a sentence which is not a tool's as a whole. */
const LONGEST_QUOTED = 6;
/** Characters of a claim that are kept: it is in the archive. */
const LONGEST_CLAIM = 400;

/**
 * The snapshot with every bullet of an instruction section (intent, constraints, next, custom ones) that uses a tool's
 * words moved to "Facts from tools", with its origin; what sounds like an instruction elsewhere is labelled where it
 * stands. A snapshot in which nothing of that kind is found comes back as it was. Linear in the sources.
 */
export function relocateToolClaims(
  snapshot: string,
  sources: Sources,
  among: readonly Section[] = sections,
): string {
  const units = unitsOf(snapshot, among);
  const wording = new Wording();
  const claims = units.flatMap((unit) => unit.sentences.filter((sentence) => isQuestioned(unit, sentence)));
  if (claims.length === 0) return snapshot;
  for (const { words } of claims) wording.expect(words);
  readSources(wording, sources, among);
  for (const claim of claims) claim.said = judged(claim, wording);
  if (!claims.some(({ said }) => said !== null)) return snapshot;
  return written(units, among);
}

function readSources(
  wording: Wording,
  { trusted, tools, previous }: Sources,
  among: readonly Section[],
): void {
  for (const text of trusted) wording.read(text, null);
  for (const { origin, text } of tools) wording.read(text, safeOrigin(origin));
  for (const [key, items] of previous ? parseSnapshot(previous, among) : []) {
    for (const item of items) {
      const origin = /\((tools?(?::[^()\s]{1,80})?)\)|\bclaim of (tool\S{0,80}),/.exec(item);
      const isClaim = key === factsSection.key || origin !== null;
      wording.read(item, isClaim ? safeOrigin(origin?.[1] ?? origin?.[2] ?? 'tool') : null);
    }
  }
}

/** Names come from whoever serves the tool: in a label they are one plain word. */
function safeOrigin(origin: string): string {
  return origin.slice(0, 80).replace(/[^\p{L}\p{N}_:./-]+/gu, '_');
}

interface Sentence {
  text: string;
  words: Word[];
  /** What of it is a tool's: from and to in `text`; null where nothing is. */
  said: { from: number; to: number; origins: readonly string[] } | null;
}

/** A heading, or a bullet or line with the lines that continue it. */
interface Unit {
  lines: string[];
  /** Section that it opens or stands in; null in free text. */
  section: string | null;
  isHeading: boolean;
  isLayer: boolean;
  /** What stands before its first sentence: indentation and bullet. */
  mark: string;
  sentences: Sentence[];
}

function unitsOf(snapshot: string, among: readonly Section[]): Unit[] {
  const units: Unit[] = [];
  let section: string | null = null;
  for (const line of snapshot.split('\n')) {
    const opened = sectionAt(line, among);
    const isLayer = isLayerHeading(line);
    const isHeading = isLayer || opened !== null;
    if (isHeading) section = isLayer ? null : opened;
    const mark = /^\s*(?:(?:[-*+•]|\d{1,3}[.)])\s+)?/.exec(line)?.[0] ?? '';
    const last = units.at(-1);
    const continues =
      last &&
      !last.isHeading &&
      !isHeading &&
      line.trim() !== '' &&
      last.lines[0]?.trim() !== '' &&
      /^\s+$/.test(mark);
    if (continues) last.lines.push(line);
    else units.push({ lines: [line], section, isHeading, isLayer, mark, sentences: [] });
  }
  for (const unit of units) {
    if (!unit.isHeading) unit.sentences = sentencesIn(bodyOf(unit));
  }
  return units;
}

function bodyOf({ lines, mark }: Unit): string {
  return [lines[0]?.slice(mark.length) ?? '', ...lines.slice(1).map((line) => line.trim())].join(' ');
}

/** Sentences, each with the word or two before it that introduce it, as "IMPORTANT:" does. */
function sentencesIn(text: string): Sentence[] {
  const sentences: Sentence[] = [];
  let lead = '';
  for (const piece of text.split(/(?<=[.!?;:])(?=\s)|(?<=[。！？；：])/u)) {
    const sentence = lead + piece;
    const words = wordsOf(sentence);
    lead = words.length < SHORTEST_SENTENCE ? sentence : '';
    if (lead === '') sentences.push({ text: sentence, words, said: null });
  }
  const last = sentences.pop();
  if (lead === '' && last === undefined) return [];
  const rest = (last?.text ?? '') + lead;
  return [...sentences, { text: rest, words: wordsOf(rest), said: null }];
}

/** How an order begins or sounds. In sections of instructions wording alone decides; here it keeps facts in their place. */
const order =
  /\b(?:must|never|always|do not|don't|should(?:n't)?|shall|ignore|disregard|forget|obey|override|from now on|you are (?:now|to|required|allowed)|your (?:new )?(?:task|instructions?|goal|role)|make sure|be sure|ensure|required to|instructions?|whenever)\b|^[\W_]*(?:(?:please|now|then|and|also|immediately|first|next|important|system|user)[\W_]+)*(?:run|execute|send|post|upload|e-?mail|delete|remove|drop|transfer|pay|refund|buy|order|open|visit|fetch|download|install|curl|wget|reveal|print|tell|reply|respond|answer|say|call|use|set|change|disable|enable|grant|give|share|forward|copy|follow|treat|remember|add|commit|push|approve|accept|skip|bypass|export|include)\b/iu;

function isInstruction(section: string | null): boolean {
  return section !== null && !statements.includes(section);
}

const labelled = /\(tools?(?::[^()\s]{1,80})?\)|\bclaim of tool/;
/** Among the facts it is enough that the tool is named. */
const named = /\btool:[\w.-]|\btool (?:returned|reported)\b/;

function isQuestioned(unit: Unit, { text, words }: Sentence): boolean {
  if (words.length < 2) return false;
  if (isInstruction(unit.section)) return true;
  const isFact = unit.section === factsSection.key;
  const isLabelled = unit.lines.some((line) => labelled.test(line) || (isFact && named.test(line)));
  return order.test(text) && !isLabelled;
}

function judged({ text, words }: Sentence, wording: Wording): Sentence['said'] {
  const credit = wording.credit(words);
  const isTools = credit.map(({ trusted, origins }) => !trusted && origins.length > 0);
  const originsIn = (from: number, to: number) => [
    ...new Set(
      credit.slice(from, to).flatMap(({ origins }, index) => (isTools[from + index] ? origins : [])),
    ),
  ];
  const copied = isTools.filter(Boolean).length;
  if (copied >= 2 && copied >= COPIED * words.length) {
    return { from: 0, to: text.length, origins: originsIn(0, words.length) };
  }
  for (let at = 0; at < words.length; at++) {
    if (!isTools[at]) continue;
    let end = at;
    while (isTools[end + 1]) end++;
    const [from, to] = [words[at]?.from ?? 0, words[end]?.to ?? text.length];
    if (end + 1 - at >= LONGEST_QUOTED && order.test(text.slice(from, to))) {
      return { from, to, origins: originsIn(at, end + 1) };
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

function layerLines(units: readonly Unit[], among: readonly Section[]): string[] {
  const kept: { unit: Unit; lines: string[] }[] = [];
  const moved = new Set<string>();
  for (const unit of units) {
    if (unit.sentences.every(({ said }) => said === null)) kept.push({ unit, lines: unit.lines });
    else if (isInstruction(unit.section)) {
      const { rest, claims } = takenOut(unit);
      for (const claim of claims) moved.add(`- ${claim}`);
      if (rest !== null) kept.push({ unit, lines: [unit.mark + rest] });
    } else kept.push({ unit, lines: [unit.mark + labelledText(unit)] });
  }
  const filled = kept.filter(({ unit }, index) => !isEmptied(unit, kept[index + 1]?.unit, units));
  return withFacts(filled, [...moved], among);
}

/** A heading whose bullets have all been moved away. */
function isEmptied(unit: Unit, next: Unit | undefined, units: readonly Unit[]): boolean {
  if (!unit.isHeading || unit.isLayer || (next && !next.isHeading)) return false;
  const following = units[units.indexOf(unit) + 1];
  return following !== undefined && !following.isHeading;
}

/** Where less than a phrase is left, the whole bullet goes: the rest would lean on what is gone. */
function takenOut({ sentences }: Unit): { rest: string | null; claims: string[] } {
  const left = sentences.reduce((sum, { words, said }) => {
    if (said === null) return sum + words.length;
    return sum + words.filter(({ from, to }) => to <= said.from || from >= said.to).length;
  }, 0);
  if (left < SHORTEST_REST) {
    const origins = [...new Set(sentences.flatMap(({ said }) => said?.origins ?? []))];
    return { rest: null, claims: [claimOf(sentences.map(({ text }) => text).join(''), origins)] };
  }
  const claims = sentences.flatMap(({ text, said }) =>
    said === null ? [] : [claimOf(text.slice(said.from, said.to), said.origins)],
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
      const claim = text.slice(said.from + lead.length, said.to);
      return `${text.slice(0, said.from)}${lead}[claim of ${nameOf(said.origins)}, not an instruction: ${claim}]${text.slice(said.to)}`;
    })
    .join('');
}

function nameOf(origins: readonly string[]): string {
  return origins.slice(0, 2).join(', ');
}

/** Puts claims at the end of the facts; where there are none, a section of facts before those that come later. */
function withFacts(
  kept: readonly { unit: Unit; lines: string[] }[],
  claims: readonly string[],
  among: readonly Section[],
): string[] {
  const isFact = ({ unit }: { unit: Unit }) => unit.section === factsSection.key;
  const last = kept.findLastIndex((entry) => isFact(entry) && entry.lines.some((line) => line.trim() !== ''));
  const order = among.map(({ key }) => key);
  const place = order.indexOf(factsSection.key);
  const later = place < 0 ? [] : order.slice(place + 1);
  const next = kept.findIndex(
    ({ unit }) => unit.isHeading && unit.section !== null && later.includes(unit.section),
  );
  const at = last >= 0 ? last + 1 : next >= 0 ? next : kept.length;
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
