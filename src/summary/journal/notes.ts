/** A model's answer to a request for notes on a chunk: the notes, and the changes of the state if requested. */
import type { TokenCounter } from '../../tokens/counter.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { referencesIn, referencesWithin, type Reference } from './references.js';
import { writtenIn } from './witness.js';

export interface NotesAnswer {
  notes: string;
  /** Null if the answer has no such part. */
  changes: string | null;
}

const notesHeading = /^#{1,4}[ \t]*notes?:?[ \t]*$/im;
const stateHeading = /^#{1,4}[ \t]*state\b[^\n]{0,40}$/im;

export function readNotes(answer: string): NotesAnswer {
  const heading = stateHeading.exec(answer);
  const before = heading ? answer.slice(0, heading.index) : answer;
  const after = heading ? answer.slice(heading.index + heading[0].length).trim() : null;
  const opening = notesHeading.exec(before);
  const notes = opening ? before.slice(opening.index + opening[0].length) : before;
  return { notes: linesOf(notes).join('\n'), changes: after };
}

/** The stored form of an answer: both parts, with the hash of the state that the changes apply to. */
export function writeNotes({ notes, changes }: NotesAnswer, ofState: string): string {
  return changes === null ? notes : `${notes}\n\n## State ${ofState}\n${changes}`;
}

/** The changes of a stored answer if they apply to this state, else null. */
export function changesOf(stored: string, ofState: string): string | null {
  const heading = stateHeading.exec(stored);
  if (!heading?.[0].endsWith(` ${ofState}`)) return null;
  return stored.slice(heading.index + heading[0].length).trim();
}

/**
 * Returns the notes with their references limited to `range`, the messages that the model was shown. A quotation that differs
 * from a cited message only in white space or letter case is replaced by the original words.
 */
export function groundedNotes(notes: string, range: Reference, messages: readonly LoggedMessage[]): string {
  return notes
    .split('\n')
    .map((written) => {
      const line = referencesWithin(written, range);
      return line.replace(quotation, (whole, ...groups: (string | undefined)[]) => {
        const quoted = groups.slice(0, 3).find((group) => group !== undefined) ?? '';
        const said = asSaid(quoted, referencesIn(line), messages);
        return said === null ? whole : whole.replace(quoted, () => said);
      });
    })
    .join('\n');
}

/** A quotation of 8 to 300 characters in backticks or quotes; other quotations are not compared. */
const quotation = /`([^`\n]{8,300})`|"([^"\n]{8,300})"|\u201C([^\u201D\n]{8,300})\u201D/g;

/**
 * Returns the words of a quotation as a cited message has them. Null if the quotation is exact, if no cited message contains
 * it, or if the words extend over two lines.
 */
function asSaid(
  quoted: string,
  cited: readonly Reference[],
  messages: readonly LoggedMessage[],
): string | null {
  const isCited = ({ seq }: LoggedMessage) =>
    cited.some(({ fromSeq, throughSeq }) => seq >= fromSeq && seq <= throughSeq);
  const texts = messages.filter(isCited).flatMap(writtenIn);
  if (texts.some((text) => text.includes(quoted))) return null;
  const escaped = quoted.trim().replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
  const loosely = new RegExp(escaped.replace(/\s+/g, '\\s+'), 'iu');
  const said = texts.map((text) => loosely.exec(text)?.[0]).find((found) => found !== undefined);
  return said === undefined || said.includes('\n') ? null : said;
}

/** The complete lines of an answer that was cut off. */
export function wholeLines(answer: string): string {
  const end = answer.lastIndexOf('\n');
  return end < 0 ? '' : answer.slice(0, end);
}

/** Returns as many of the first lines as fit. */
export function linesWithin(notes: string, maxTokens: number, counter: TokenCounter): string {
  const lines = notes.split('\n');
  while (lines.length > 1 && counter.count(lines.join('\n')) > maxTokens) lines.pop();
  return lines.join('\n');
}

/** Returns the lines that are not blank, without trailing white space. */
function linesOf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trimEnd())
    .filter((line) => line.trim() !== '');
}

const dateLine = /^\W{0,4}\d{4}-\d\d-\d\d\W{0,4}$/;

/** Returns the end of notes as the request for the next chunk shows it: the last lines, and the last date before them. */
export function endOf(notes: string, lines = 3): string {
  const all = notes.split('\n');
  const last = all.slice(-lines);
  if (last.some((line) => dateLine.test(line))) return last.join('\n');
  const date = all.findLast((line) => dateLine.test(line));
  return date === undefined ? last.join('\n') : [date, '…', ...last].join('\n');
}
