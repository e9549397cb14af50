/** A snapshot as what can be moved: its headings, and its bullets and lines by sentence. */
import type { Section } from '../answer/sections.js';
import { sectionAt } from '../answer/snapshot.js';
import { wordsOf, type Word } from './wording.js';

/** Words of a sentence that is judged by itself. */
const SHORTEST_SENTENCE = 3;

export interface Sentence {
  text: string;
  words: Word[];
  /** The tools whose it is; null where it is none's. `isLeftOut`: there is no room to repeat it with its label. */
  said: { origins: readonly string[]; isLeftOut: boolean } | null;
}

/** A heading, or a bullet or line with the lines that continue it. */
export interface Unit {
  lines: string[];
  /** Section that it opens or stands in; null in free text. */
  section: string | null;
  isHeading: boolean;
  /** What stands before its first sentence: indentation and bullet. */
  mark: string;
  sentences: Sentence[];
}

/** The lines of a snapshot as units, none lost: their lines joined are the snapshot. */
export function unitsOf(snapshot: string, among: readonly Section[]): Unit[] {
  const units: Unit[] = [];
  let section: string | null = null;
  for (const line of snapshot.split('\n')) {
    const opened = sectionAt(line, among);
    const isHeading = opened !== null;
    if (isHeading) section = opened;
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
    else units.push({ lines: [line], section, isHeading, mark, sentences: [] });
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
