/**
 * Extracts exact values that a summary lacks: named arguments of the agent's calls; ids in results that a later call used;
 * texts of the user that are quoted or have the form of an id or a path. They are written once after an entry or a snapshot, as
 * `exact: reservation_id 2FBBAH [m88] · path src/get.ts [m12]`.
 */
import { jsonWithin } from '../../conversation/json.js';
import type { ChatMessage, Json, LoggedMessage } from '../../conversation/message.js';
import { argumentsOf } from '../../conversation/render.js';
import { containsAtom, plainTextOf } from '../text/sentences.js';
import type { TokenCounter } from '../../tokens/counter.js';

export interface ExactInput {
  /** Earlier lines, oldest first, which the new lines replace. */
  before: readonly string[];
  evicted: readonly LoggedMessage[];
  /** The entry or snapshot that the line follows, and the other entries with their values. */
  text: string;
  /** Text that stays in the context for now: its values wait until their last mention is evicted. */
  visible: string;
  /** Text that always stays: system messages and pins. */
  fixed: string;
  maxTokens: number;
  counter: TokenCounter;
}

/** A value as written in a line, and how often it was used. */
interface Value {
  item: string;
  value: string;
  worth: number;
}

interface Found {
  label: string;
  value: string;
  /** Message of its first occurrence. */
  seq: number;
  /** Number of messages of agent and user that contain it. */
  uses: number;
}

/** Characters. */
const LONGEST_VALUE = 160;
const SHORTEST_VALUE = 4;
const LONGEST_LABEL = 40;
/** Maximum characters that are read of one argument of a call; a longer user message is not read. */
const LONGEST_MESSAGE = 8_000;
/** A longer user message is assumed to contain a document or tool output: only values that the agent used count. */
const LONGEST_SAID = 400;
/** Maximum number of waiting values; the least used values are dropped. */
const MOST_WAITING = 60;
/** Maximum number of different words of results that are kept as possible ids. */
const MOST_SEEN = 50_000;

const separator = ' · ';
const marks = { exact: 'exact: ', waiting: 'waiting: ' };

/** Both lines, '' if they have no values; `waiting` is for the next generation only. */
export function exactValues(input: ExactInput): { exact: string; waiting: string } {
  const { before, evicted, text, visible, fixed, maxTokens, counter } = input;
  const used = valuesIn(evicted);
  const holds = (held: string) => (one: { value: string }) =>
    [[one.value], isPath(one.value) ? [baseOf(one.value)] : one.value.split('/')].some((parts) =>
      parts.every((part) => containsAtom(held, part)),
    );
  const lacking = ranked([valuesBy(used), ...before.map(valuesOfLine).toReversed()]).filter(
    (one) => !holds(text)(one) && !holds(fixed)(one),
  );
  const inSight = new Set(lacking.filter(holds(visible)));
  const waiting = [...inSight].slice(0, MOST_WAITING);
  const gone = lacking.filter((one) => !inSight.has(one));
  return {
    exact: lineWithin(gone, maxTokens, counter),
    waiting: waiting.length === 0 ? '' : marks.waiting + waiting.map(({ item }) => item).join(separator),
  };
}

/** Whether a line of the journal has exact values. */
export function isExactLine(line: string): boolean {
  return line.startsWith(marks.exact);
}

/** A line of as many values as fit; '' for none. */
function lineWithin(values: readonly Value[], maxTokens: number, counter: TokenCounter): string {
  const kept: string[] = [];
  let tokens = counter.count(marks.exact);
  let misses = 0;
  for (const { item } of values) {
    const more = counter.count(separator + item);
    if (tokens + more > maxTokens) {
      if (++misses > 20) break;
      continue;
    }
    tokens += more;
    kept.push(item);
  }
  return kept.length === 0 ? '' : marks.exact + kept.join(separator);
}

/** Merges several lists, each with the most used value first; among equal values, the first list has precedence. */
function ranked(lists: readonly Value[][]): Value[] {
  const merged = new Map<string, Value>();
  for (const one of lists.flat()) {
    const known = merged.get(one.value);
    merged.set(one.value, known ? { ...known, worth: known.worth + one.worth } : one);
  }
  return [...merged.values()].sort((a, b) => b.worth - a.worth);
}

const written = /^(?:(\S{1,40}) )?("[^"]*"|\S+) \[m\d+\]$/;

/** The values of a written line; none in a ledger of earlier versions. */
function valuesOfLine(line: string): Value[] {
  const mark = Object.values(marks).find((one) => line.startsWith(one));
  const items = mark === undefined ? [] : line.slice(mark.length).split(separator);
  return items.flatMap((item, index) => {
    const value = written.exec(item)?.[2]?.replace(/^"(.*)"$/, '$1');
    return value === undefined ? [] : [{ item, value, worth: 1 - index / (items.length + 1) }];
  });
}

/** Values sorted by use, then newest first. */
function valuesBy(found: readonly Found[]): Value[] {
  const most = Math.max(1, ...found.map(({ uses }) => uses));
  return found
    .toSorted((a, b) => b.uses - a.uses || b.seq - a.seq)
    .map(({ label, value, seq, uses }) => ({
      item: `${label === '' ? '' : `${label} `}${/\s/.test(value) ? `"${value}"` : value} [m${seq}]`,
      value,
      worth: uses / most,
    }));
}

/** Values used by agent or user. */
function valuesIn(messages: readonly LoggedMessage[]): Found[] {
  const used = new Map<string, Found>();
  const seen = new Set<string>();
  const said = saidIn(messages);
  for (const { seq, message } of messages) {
    if (message.role === 'tool' || message.role === 'function') {
      for (const word of wordsOf(plainTextOf(message))) if (seen.size < MOST_SEEN) seen.add(word);
      continue;
    }
    const labelled = said.get(message)?.map((value): Labelled => [value, '']) ?? calledIn(message, seen);
    const values = new Map(labelled.filter(([value]) => isWritable(value)));
    for (const [value, label] of values) {
      const known = used.get(value);
      if (known) known.uses++;
      else used.set(value, { label: nameOf(label), value, seq, uses: 1 });
    }
  }
  return [...used.values()];
}

/** Values in the messages of the user. Of a long message only values that the agent used. */
function saidIn(messages: readonly LoggedMessage[]): ReadonlyMap<ChatMessage, string[]> {
  const said = messages.flatMap(({ message }) => {
    const text = message.role === 'user' ? plainTextOf(message) : null;
    return text === null
      ? []
      : [{ message, values: writtenValues(text), isLong: text.length > LONGEST_SAID }];
  });
  const doubted = new Set(said.flatMap(({ values, isLong }) => (isLong ? values : [])));
  const taken = takenUp(messages, doubted);
  return new Map(
    said.map(({ message, values, isLong }) => [
      message,
      isLong ? values.filter((value) => taken.has(value)) : values,
    ]),
  );
}

/** Those of the values that are words in the agent's texts and calls. */
function takenUp(messages: readonly LoggedMessage[], values: ReadonlySet<string>): Set<string> {
  const taken = new Set<string>();
  let left = MOST_SEEN;
  for (const { message } of messages) {
    if (values.size === taken.size) break;
    if (message.role !== 'assistant') continue;
    const words = [plainTextOf(message), ...callsOf(message)].flatMap(wordsOf).slice(0, left);
    for (const word of words) if (values.has(word)) taken.add(word);
    left -= words.length;
  }
  return taken;
}

function nameOf(label: string): string {
  return label.trim().replace(/\s+/g, '_').slice(0, LONGEST_LABEL);
}

/**
 * Whether a value may be written. Excluded are placeholders of redaction, values that a line cannot represent, lines of
 * listings, and days, which are useless without their events.
 */
function isWritable(value: string): boolean {
  return (
    value.length >= SHORTEST_VALUE &&
    value.length <= LONGEST_VALUE &&
    !/[\n\r"]|\[REDACTED:| · |^\d+:|^\d{1,4}[-/]\d{1,2}[-/]\d{1,4}$/.test(value)
  );
}

/** A value and its name. */
type Labelled = [value: string, label: string];

function calledIn(message: ChatMessage, seen: ReadonlySet<string>): Labelled[] {
  if (message.role !== 'assistant') return [];
  return callsOf(message).flatMap((json) => argumentValues(json, seen));
}

function callsOf({ tool_calls, function_call }: ChatMessage): string[] {
  return [...(tool_calls ?? []).map(argumentsOf), ...(function_call ? [function_call.arguments] : [])];
}

/** The exact values of a call: ids, paths, and words of earlier results in `seen`. */
export function argumentValues(json: string, seen: ReadonlySet<string> = new Set()): Labelled[] {
  return leavesOf(json).flatMap(([label, leaf]): Labelled[] => {
    if (isId(leaf) || isPath(leaf) || (seen.has(leaf) && !isPlain(leaf))) return [[leaf, label]];
    // A command, a query or a text is not a value itself, but it may contain paths, and ids that an earlier result contained.
    return wordsOf(leaf.slice(0, LONGEST_MESSAGE)).flatMap((word): Labelled[] =>
      isPath(word) || (seen.has(word) && isIdAlone(word)) ? [[word, '']] : [],
    );
  });
}

/** Texts and numbers of a JSON text with their nearest names; none if the text is not JSON. */
function leavesOf(json: string): [label: string, leaf: string][] {
  const leaves: [string, string][] = [];
  collect(jsonWithin(json), '');
  return leaves;

  function collect(value: Json | undefined, label: string): void {
    if (Array.isArray(value)) value.slice(0, 50).forEach((item) => collect(item, label));
    else if (typeof value === 'object' && value !== null)
      Object.entries(value)
        .slice(0, 100)
        .forEach(([name, inner]) => collect(inner, name));
    else if (typeof value === 'string' || typeof value === 'number') leaves.push([label, String(value)]);
  }
}

/** Whether a text is an id: letters with digits, an address, or a number too long to be a count. */
function isId(text: string): boolean {
  if (/\s/.test(text) || text.length < SHORTEST_VALUE) return false;
  if (/^\d+$/.test(text)) return text.length >= 5 && !text.endsWith('000');
  if (/^[\w.+-]+@[\w-]+\.\w/.test(text)) return true;
  return /\p{L}/u.test(text) && /\d/.test(text) && !isPlain(text);
}

/** Whether a text is recognised as an id even without a name; a number is not. */
function isIdAlone(text: string): boolean {
  return isId(text) && !/^\d+$/.test(text);
}

/** Whether a text is an ordinary word, with at most a version number or a unit: `python3`, `utf-8`, `HTTP/2`, `in_progress`, `30min`, `1990s`. */
function isPlain(text: string): boolean {
  return (
    /^\p{L}?[\p{Ll}_]+(?:-?\d{1,3}(?:\.\d{1,3})*)?$/u.test(text) ||
    /^\p{Lu}+[-/]?\d(?:\.\d)?$/u.test(text) ||
    /^\d+(?:[.,]\d+)?\p{L}{1,3}$/u.test(text)
  );
}

/** The name of a file, by which it can be found without its path. */
function baseOf(path: string): string {
  const name = path.slice(path.lastIndexOf('/') + 1);
  return name.length >= SHORTEST_VALUE && name.includes('.') ? name : path;
}

function isPath(text: string): boolean {
  return (
    !/\s/.test(text) &&
    /^(?:~|\.{1,2})\/[\w.@-]+|^\/[\w.@-]+(?:\/|\.\w{1,8}$)|[\w-]\/[\w.@-]+(?:\/|\.\w{1,8}$)|^\w+:\/\/\w/.test(
      text,
    )
  );
}

/** Characters and punctuation of scripts without spaces end a word, since values are not written in them. */
const word =
  /[^\s"'`“”‘’«»<>(){}[\],;|=、。，；：！？（）【】《》「」『』…—\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}]{4,160}/gu;

const endMarks = '.:!?…\\';

function wordsOf(text: string): string[] {
  return (text.match(word) ?? []).map((found) =>
    endMarks.includes(found[found.length - 1]!) ? found.replace(/[.:!?…\\]+$/, '') : found,
  );
}

const quoted = /`([^`\n]{4,160})`|"([^"\n]{4,40})"|“([^”\n]{4,40})”/g;

/** Texts of a user that are quoted, or that have the form of an id or a path. */
function writtenValues(text: string): string[] {
  if (text.length > LONGEST_MESSAGE) return [];
  const marked = [...text.matchAll(quoted)]
    .map(([, code, straight, curly]) => (code ?? straight ?? curly ?? '').trim())
    .filter((value) => !isPlain(value) && /[({[]/.test(value) === /[)}\]]/.test(value));
  return [...new Set([...marked, ...wordsOf(text).filter((found) => isIdAlone(found) || isPath(found))])];
}
