/**
 * Whether an answer holds anything of what it was asked about. A summary does, in whatever language and form; a refusal, an
 * error page, a placeholder or a question back does not, however it is worded. Nothing here knows such texts.
 */
import {
  isLatinWord,
  isMostlyLatin,
  matterOf,
  namesIn,
  plainForm,
  weightOfGram,
  weightOfWord,
  type Matter,
} from './evidence.js';

/** What speaks for an answer and how much of it is needed. */
export interface Grounding {
  /** Weight of what the answer shares with the record, less half of what it does not. */
  found: number;
  needed: number;
}

/**
 * Set with recorded sessions and the half of test/acceptance that is meant for it; the other half says what they are worth
 * (docs/decisions.md).
 */
const LEAST_JUDGED = 4;
const SHARE_NEEDED = 0.12;
const FIRST_NEEDED = 6;
/** Where the record holds numbers or identifiers and the answer none of them. */
const FIRST_WITHOUT_EXACT = 15;
const PER_ROOT = 0.7;
/** What is not in the record speaks against the answer, by this share of its weight; pairs also arise where two words meet. */
const FOREIGN_WORD = 0.5;
const FOREIGN_GRAM = 0.25;
/** In another language than the record's, numbers, identifiers and names are all that can be shared. */
const ABROAD = { least: 6, most: 16, perRoot: 0.8, oneName: 5, longestName: 8 };
/** Letters of an ending, and of what it may be an ending of. */
const ENDINGS = [1, 2, 3];
const SHORTEST_STEM = 5;

/** The record, to compare answers with. Takes time linear in the texts. */
export class Ground {
  private readonly matter: Matter;
  private readonly names: ReadonlySet<string>;
  /** Names without up to three letters of their end. */
  private readonly stems: ReadonlySet<string>;
  private readonly isLatin: boolean;
  /** Every word once, between spaces. */
  private readonly words: string;
  private readonly text: string;
  private readonly asked: ReadonlySet<string>;
  private readonly weight: number;
  private readonly exactWeight: number;

  /** `asked`: what the request itself says around the record. An answer that repeats it says nothing. */
  constructor(record: string, asked: string) {
    const plain = plainForm(withoutLabels(record));
    this.text = plain.toLowerCase();
    this.matter = matterOf(this.text);
    this.names = namesIn(plain);
    this.stems = new Set([...this.names].flatMap((name) => ENDINGS.map((ending) => name.slice(0, -ending))));
    this.isLatin = isMostlyLatin(plain);
    this.words = ` ${[...this.matter.words.keys()].join(' ')} `;
    this.asked = new Set([...matterOf(plainForm(asked).toLowerCase()).words.keys()].map(beginning));
    this.weight = this.weightOf(this.matter);
    this.exactWeight = total(this.matter.exact.values());
  }

  /** Null where the record holds nothing to compare with: a word of greeting, or media alone. */
  of(answer: string): Grounding | null {
    if (this.weight + this.exactWeight < LEAST_JUDGED) return null;
    const matter = matterOf(plainForm(answer.replace(/<[^<>\n]{0,400}>/g, ' ')).toLowerCase());
    const exact = this.exactIn(matter);
    const found = this.wordsIn(matter) + this.gramsIn(matter) + Math.max(0, exact);
    const first = exact <= 0 && this.exactWeight >= ABROAD.least ? FIRST_WITHOUT_EXACT : FIRST_NEEDED;
    const needed = Math.max(Math.min(first, SHARE_NEEDED * this.weight), PER_ROOT * Math.sqrt(this.weight));
    if (found >= needed) return { found, needed };
    const abroad = this.abroad(matter, exact, answer);
    return abroad.found >= abroad.needed ? abroad : { found, needed };
  }

  private weightOf({ words, grams }: Matter): number {
    let sum = 0;
    for (const [word, length] of words)
      if (!this.asked.has(beginning(word))) sum += weightOfWord(length, this.matter.meanLength);
    for (const gram of grams) sum += weightOfGram(gram);
    return sum;
  }

  /** Words of the request count nowhere. */
  private wordsIn({ words }: Matter): number {
    let sum = 0;
    for (const [word, length] of words) {
      if (this.asked.has(beginning(word))) continue;
      const weight = weightOfWord(length, this.matter.meanLength);
      sum += this.hasWord(word) ? weight : -weight * FOREIGN_WORD;
    }
    return sum;
  }

  private gramsIn({ grams }: Matter): number {
    let sum = 0;
    for (const gram of grams) sum += weightOfGram(gram) * (this.matter.grams.has(gram) ? 1 : -FOREIGN_GRAM);
    return sum;
  }

  /** What an answer in another language than the record's can share with it; in another script, every word in Latin letters. */
  private abroad({ words }: Matter, exact: number, answer: string): Grounding {
    const isForeignScript = this.isLatin && !isMostlyLatin(plainForm(answer));
    const isKept = (word: string) =>
      !this.asked.has(beginning(word)) &&
      (this.hasName(word) || (isForeignScript && isLatinWord(word) && this.matter.words.has(word)));
    const kept = [...words].filter(([word]) => isKept(word));
    const named = total(kept.map(([, length]) => Math.min(ABROAD.longestName, length)));
    const root = ABROAD.perRoot * Math.sqrt(this.exactWeight + 8 * this.names.size);
    return {
      found: exact + (kept.length === 1 ? Math.min(ABROAD.oneName, named) : named),
      needed: Math.max(ABROAD.least, Math.min(ABROAD.most, root)),
    };
  }

  /** Names are inflected too: up to three letters more or less at their end. */
  private hasName(word: string): boolean {
    if (this.names.has(word)) return true;
    if (word.length < SHORTEST_STEM) return false;
    return (
      ENDINGS.some(
        (ending) => word.length - ending >= SHORTEST_STEM && this.names.has(word.slice(0, -ending)),
      ) || this.stems.has(word)
    );
  }

  /** A word counts in another form too: where about two thirds of it, from its beginning or to its end, are part of one. */
  private hasWord(word: string): boolean {
    if (this.matter.words.has(word)) return true;
    if (word.length >= 4 && this.words.includes(` ${beginning(word)}`)) return true;
    // Arabic and Hebrew write article and preposition in front of the word.
    if (/^[\p{Script=Arabic}\p{Script=Hebrew}]/u.test(word)) {
      return [1, 2, 3].some((from) => word.length - from >= 3 && this.words.includes(word.slice(from)));
    }
    return word.length >= 6 && this.words.includes(word.slice(-Math.ceil(word.length * 0.7)));
  }

  private exactIn({ exact }: Matter): number {
    let sum = 0;
    for (const [token, weight] of exact) {
      const isPart = token.length >= 5 && /[a-z]/.test(token) && this.text.includes(token);
      // A time or a decimal may be written in another way; its parts speak for it.
      sum += this.matter.exact.has(token) || isPart ? weight : /[.:]/.test(token) ? 0 : -weight / 2;
    }
    return sum;
  }
}

function beginning(word: string): string {
  return word.length <= 4 ? word : word.slice(0, Math.max(4, Math.ceil(word.length * 0.65)));
}

function total(weights: Iterable<number>): number {
  let sum = 0;
  for (const weight of weights) sum += weight;
  return sum;
}

/**
 * What renderMessage and the prompts put around messages and digests is nobody's word, and neither is the role of who
 * speaks; names in labels are.
 */
function withoutLabels(record: string): string {
  return record.replace(
    /<\/?(?:message|call|media|transcript|digest|previous_snapshot|state_snapshot)\b([^>\n]{0,400})>/g,
    (_tag, attributes: string) =>
      ` ${[...attributes.matchAll(/(?:name|origin)="(?:(?:system|developer|user|assistant|tool|function)(?![^":]):?)?([^"]*)"/g)].map(([, value = '']) => value).join(' ')} `,
  );
}
