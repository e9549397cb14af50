/** Splits a snapshot into the units that can be moved: headings, and bullets and lines by sentence. */
import type { Section } from '../answer/sections.js';
import { sectionAt } from '../answer/snapshot.js';
import { wordsOf, type Word } from './wording.js';

/** Minimum words of a sentence that is judged alone. */
const SHORTEST_SENTENCE = 3;

export interface Sentence {
  text: string;
  words: Word[];
  /** The tools that said the sentence, or null. `isLeftOut`: the sentence does not fit with its label. */
  said: { origins: readonly string[]; isLeftOut: boolean } | null;
}

/** A heading, or a bullet or line with the lines that continue it. */
export interface Unit {
  lines: string[];
  /** Section that the unit opens or belongs to; null before the first heading. */
  section: string | null;
  isHeading: boolean;
  /** The text before its first sentence: indentation and bullet. */
  mark: string;
  sentences: Sentence[];
}

/** The lines of a snapshot as units. Joined, their lines are the whole snapshot. */
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

/** Sentences, each with the one or two words that introduce it, such as "IMPORTANT:". */
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
