/**
 * Exact values that a summary lacks, from structure: arguments that the agent passed, by name; ids of results that a later
 * call used; what the user marked as a value or wrote in the form of one. They are frozen behind an entry or a snapshot as
 * `exact: reservation_id 2FBBAH [m88] · path src/get.ts [m12]`.
 */
import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import { argumentsOf } from '../../conversation/render.js';
import { containsAtom, plainTextOf } from '../text/sentences.js';
import type { TokenCounter } from '../../tokens/counter.js';

export interface ExactInput {
  /** Lines that were frozen before, oldest first, and that these take the place of. */
  before: readonly string[];
  evicted: readonly LoggedMessage[];
  /** The entry or snapshot that the line stands behind. */
  text: string;
  /** What stays in the context for now: its values wait until their last mention is evicted. */
  visible: string;
  /** What stays for good: system messages and pins. */
  fixed: string;
  maxTokens: number;
  counter: TokenCounter;
}

/** A value as a line says it, and how much it was used beside the others. */
interface Value {
  item: string;
  value: string;
  worth: number;
}

interface Found {
  label: string;
  value: string;
  /** Where it was first met. */
  seq: number;
  /** Messages of agent and user that wrote it. */
  uses: number;
}

/** Characters. */
const LONGEST_VALUE = 160;
const SHORTEST_VALUE = 4;
const LONGEST_LABEL = 40;
/** A longer message of the user is a document: its values are no more the user's than a tool's. */
const LONGEST_MESSAGE = 8_000;
/** Values that wait at most; of more, those used least are forgotten. */
const MOST_WAITING = 60;
/** Different words of results that are remembered as possible ids. */
const MOST_SEEN = 50_000;

const separator = ' · ';
const marks = { exact: 'exact: ', waiting: 'waiting: ' };

/** Both lines, '' where there is nothing to say; `waiting` is for the next generation alone. */
export function exactValues(input: ExactInput): { exact: string; waiting: string } {
  const { before, evicted, text, visible, fixed, maxTokens, counter } = input;
  const used = valuesIn(evicted);
  const holds = (held: string) => (one: { value: string }) =>
    containsAtom(held, one.value) || (isPath(one.value) && containsAtom(held, baseOf(one.value)));
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

/** Whether a line of the journal holds exact values. */
export function isExactLine(line: string): boolean {
  return line.startsWith(marks.exact);
}

/** As much as fits, '' for nothing. */
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

/** The values of several lists, each most used first, as one such list; the first list goes first among equals. */
function ranked(lists: readonly Value[][]): Value[] {
  const merged = new Map<string, Value>();
  for (const one of lists.flat()) {
    const known = merged.get(one.value);
    merged.set(one.value, known ? { ...known, worth: known.worth + one.worth } : one);
  }
  return [...merged.values()].sort((a, b) => b.worth - a.worth);
}

const written = /^(?:(\S{1,40}) )?("[^"]*"|\S+) \[m\d+\]$/;

/** The values of a line as it was frozen; none in a ledger of earlier versions. */
function valuesOfLine(line: string): Value[] {
  const mark = Object.values(marks).find((one) => line.startsWith(one));
  const items = mark === undefined ? [] : line.slice(mark.length).split(separator);
  return items.flatMap((item, index) => {
    const value = written.exec(item)?.[2]?.replace(/^"(.*)"$/, '$1');
    return value === undefined ? [] : [{ item, value, worth: 1 - index / (items.length + 1) }];
  });
}

/** Most used first, the newer before the older. */
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

/** Used by agent or user. */
function valuesIn(messages: readonly LoggedMessage[]): Found[] {
  const used = new Map<string, Found>();
  const seen = new Set<string>();
  for (const { seq, message } of messages) {
    if (message.role === 'tool' || message.role === 'function') {
      for (const word of wordsOf(plainTextOf(message))) if (seen.size < MOST_SEEN) seen.add(word);
      continue;
    }
    const values = new Map(valuesOf(message, seen).filter(([value]) => isWritable(value)));
    for (const [value, label] of values) {
      const known = used.get(value);
      if (known) known.uses++;
      else used.set(value, { label: nameOf(label), value, seq, uses: 1 });
    }
  }
  return [...used.values()];
}

function nameOf(label: string): string {
  return label.trim().replace(/\s+/g, '_').slice(0, LONGEST_LABEL);
}

/** Neither what redaction put in the place of a secret, nor anything that a line could not give back. */
function isWritable(value: string): boolean {
  return (
    value.length >= SHORTEST_VALUE && value.length <= LONGEST_VALUE && !/[\n\r"]|\[REDACTED:| · /.test(value)
  );
}

/** By value, what it is called. */
type Labelled = [value: string, label: string];

function valuesOf(message: ChatMessage, seen: ReadonlySet<string>): Labelled[] {
  if (message.role === 'user') return writtenValues(plainTextOf(message)).map((value) => [value, '']);
  if (message.role !== 'assistant') return [];
  const calls = [
    ...(message.tool_calls ?? []).map(argumentsOf),
    ...(message.function_call ? [message.function_call.arguments] : []),
  ];
  return calls.flatMap((json) => argumentValues(json, seen));
}

/** What a call names exactly: ids and paths, and what `seen` holds of what earlier results have named. */
export function argumentValues(json: string, seen: ReadonlySet<string> = new Set()): Labelled[] {
  return leavesOf(json).flatMap(([label, leaf]): Labelled[] => {
    if (isId(leaf) || isPath(leaf) || (seen.has(leaf) && !isPlain(leaf))) return [[leaf, label]];
    // A command, a query, a text: what of it a result has named, and its paths.
    return wordsOf(leaf.slice(0, LONGEST_MESSAGE)).flatMap((word): Labelled[] =>
      isPath(word) || (seen.has(word) && isIdAlone(word)) ? [[word, '']] : [],
    );
  });
}

/** Texts and numbers of a JSON text by the name nearest to them; none in what is no JSON. */
function leavesOf(json: string): [label: string, leaf: string][] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(json);
  } catch {
    return [];
  }
  const leaves: [string, string][] = [];
  collect(parsed, '');
  return leaves;

  function collect(value: unknown, label: string): void {
    if (Array.isArray(value)) value.slice(0, 50).forEach((item) => collect(item, label));
    else if (typeof value === 'object' && value !== null)
      Object.entries(value)
        .slice(0, 100)
        .forEach(([name, inner]) => collect(inner, name));
    else if (typeof value === 'string' || typeof value === 'number') leaves.push([label, String(value)]);
  }
}

/** Letters with digits, addresses, and numbers too long to count anything: nobody would write them again from memory. */
function isId(text: string): boolean {
  if (/\s/.test(text) || text.length < SHORTEST_VALUE) return false;
  if (/^\d+$/.test(text)) return text.length >= 5 && !text.endsWith('000');
  // A line of a listing, a day.
  if (/^\d+:|^\d{4}-\d\d-\d\d$/.test(text)) return false;
  if (/^[\w.+-]+@[\w-]+\.\w/.test(text)) return true;
  return /\p{L}/u.test(text) && /\d/.test(text) && !isPlain(text);
}

/** Without a name beside it a number says nothing. */
function isIdAlone(text: string): boolean {
  return isId(text) && !/^\d+$/.test(text);
}

/** Words, with the number of a version or of a unit at most: `python3`, `utf-8`, `HTTP/2`, `in_progress`, `30min`, `1990s`. */
function isPlain(text: string): boolean {
  return (
    /^\p{L}?[\p{Ll}_]+(?:-?\d{1,3}(?:\.\d{1,3})*)?$/u.test(text) ||
    /^\p{Lu}+[-/]?\d(?:\.\d)?$/u.test(text) ||
    /^\d+(?:[.,]\d+)?\p{L}{1,3}$/u.test(text)
  );
}

/** The name of a file, which finds it where its path is lost. */
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

const word = /[^\s"'`“”«»<>(){}[\],;|=]{4,160}/g;

function wordsOf(text: string): string[] {
  return [...text.matchAll(word)].map(([found]) => found.replace(/[.:!?…\\]+$/, ''));
}

const quoted = /`([^`\n]{4,160})`|"([^"\n]{4,40})"|“([^”\n]{4,40})”/g;

/** What a user marks as a value, or writes in the form of one. */
function writtenValues(text: string): string[] {
  if (text.length > LONGEST_MESSAGE) return [];
  const marked = [...text.matchAll(quoted)]
    .map(([, code, straight, curly]) => (code ?? straight ?? curly ?? '').trim())
    .filter((value) => !isPlain(value) && /[({[]/.test(value) === /[)}\]]/.test(value));
  return [...new Set([...marked, ...wordsOf(text).filter((found) => isIdAlone(found) || isPath(found))])];
}
