/** Exact values that entries lack: arguments that the agent passed, and what the user wrote as a value. They come from structure, not from patterns of text alone. */
import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import { argumentsOf } from '../../conversation/render.js';
import { plainTextOf } from '../text/sentences.js';
import type { TokenCounter } from '../../tokens/counter.js';

/** `reservation_id 2FBBAH [m88]`: a value, what it is called, and the message where it was first met. */
interface ExactValue {
  label: string;
  value: string;
  seq: number;
  /** Times that agent or user have written it. */
  uses: number;
}

/** Characters of a value worth keeping to the letter. */
const LONGEST_VALUE = 160;
const SHORTEST_VALUE = 4;
/** Values that are looked at; of a longer stretch the newest. */
const MOST_VALUES = 400;

/**
 * `exact: reservation_id 2FBBAH [m88] · path src/get.ts [m12]`, most used first, of the values in `evicted` that neither the
 * entry nor what stays in the context holds; '' for none.
 */
export function exactLine(
  evicted: readonly LoggedMessage[],
  {
    entry,
    visible,
    maxTokens,
    counter,
  }: { entry: string; visible: string; maxTokens: number; counter: TokenCounter },
): string {
  const wanted = valuesIn(evicted)
    .filter(({ value }) => !entry.includes(value) && !visible.includes(value))
    .sort((a, b) => b.uses - a.uses || b.seq - a.seq);
  return line(
    wanted.map(({ label, value, seq }) => `${label === '' ? '' : `${label} `}${value} [m${seq}]`),
    maxTokens,
    counter,
  );
}

/** Whether a line of the journal holds exact values. */
export function isExactLine(line: string): boolean {
  return line.startsWith('exact: ');
}

/** Lines of merged entries as one: what the merged text says is left out, what comes first goes last. */
export function mergedExact(
  lines: readonly string[],
  text: string,
  maxTokens: number,
  counter: TokenCounter,
): string {
  const values = lines.flatMap((one) => one.replace(/^exact: /, '').split(' · ')).filter((one) => one !== '');
  const lacking = values.filter(
    (one) =>
      !text.includes(
        one
          .replace(/ \[m\d+\]$/, '')
          .split(' ')
          .at(-1)!,
      ),
  );
  return line([...new Set(lacking)], maxTokens, counter);
}

function line(values: readonly string[], maxTokens: number, counter: TokenCounter): string {
  const kept: string[] = [];
  let tokens = counter.count('exact: ');
  for (const value of values) {
    const more = counter.count(` · ${value}`);
    if (tokens + more > maxTokens) continue;
    tokens += more;
    kept.push(value);
  }
  return kept.length === 0 ? '' : `exact: ${kept.join(' · ')}`;
}

function valuesIn(messages: readonly LoggedMessage[]): ExactValue[] {
  const found = new Map<string, ExactValue>();
  for (const { seq, message } of messages) {
    for (const { label, value } of valuesOf(message)) {
      const known = found.get(value);
      if (known) known.uses++;
      else found.set(value, { label, value, seq, uses: 1 });
    }
  }
  return [...found.values()].slice(-MOST_VALUES);
}

function valuesOf(message: ChatMessage): { label: string; value: string }[] {
  if (message.role === 'user')
    return writtenValues(plainTextOf(message)).map((value) => ({ label: '', value }));
  if (message.role !== 'assistant') return [];
  const calls = (message.tool_calls ?? []).flatMap((call) => argumentValues(argumentsOf(call)));
  return message.function_call ? [...calls, ...argumentValues(message.function_call.arguments)] : calls;
}

function argumentValues(json: string): { label: string; value: string }[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(json);
  } catch {
    return [];
  }
  const values: { label: string; value: string }[] = [];
  collect(parsed, '');
  return values;

  function collect(value: unknown, label: string): void {
    if (Array.isArray(value)) value.slice(0, 20).forEach((item) => collect(item, label));
    else if (typeof value === 'object' && value !== null)
      Object.entries(value).forEach(([name, inner]) => collect(inner, name));
    else if (typeof value === 'string' && isValue(value)) values.push({ label, value });
    else if (typeof value === 'number' && Math.abs(value) >= 1_000)
      values.push({ label, value: String(value) });
  }
}

function isValue(text: string): boolean {
  if (text.length < SHORTEST_VALUE || text.length > LONGEST_VALUE || /[\n\r]/.test(text)) return false;
  return isExact(text) || (text.length <= 60 && !/\s/.test(text) && /[\p{Lu}_.\-/]/u.test(text.slice(1)));
}

/** What nobody would write again from memory: letters with digits, paths, addresses. */
function isExact(text: string): boolean {
  if (/\s/.test(text)) return false;
  const isPath = /^(?:~|\.{1,2})?\/[\w.@-]|[\w-]\/[\w.@-]+(?:\/|\.\w{1,8}$)/.test(text);
  return isPath || (/\p{L}/u.test(text) && /\d/.test(text)) || /^[\w.+-]+@[\w-]+\.\w/.test(text);
}

const quoted = /`([^`\n]{4,160})`|"([^"\n]{4,80})"|“([^”\n]{4,80})”/g;
const unquoted = /[^\s"'`“”<>(),;]{5,160}/g;

/** What a user marks as a value, or writes in the form of one. */
function writtenValues(text: string): string[] {
  // The user's message may be a file: then its values are no more the user's than a tool's.
  if (text.length > 8_000) return [];
  const marked = [...text.matchAll(quoted)].map((match) => (match[1] ?? match[2] ?? match[3])!.trim());
  const bare = [...text.matchAll(unquoted)].map(([word]) => word.replace(/[.:!?]+$/, '')).filter(isExact);
  return [...new Set([...marked.filter((value) => value.length >= SHORTEST_VALUE), ...bare])];
}
