/**
 * Stores histories of other providers in the log as chat messages, together with their originals: the first message of each
 * unit holds the unit's items, byte for byte, in a field that ordinary chat messages do not have.
 */
import { moveMedia } from '../context/view/moved-media.js';
import { isBlank, noOutput } from '../context/view/projection.js';
import type { ViewItem } from '../context/view/view.js';
import type { ContextFormat, FormatName } from '../conversation/format-names.js';
import {
  type ChatMessage,
  isMedia,
  type Json,
  type LoggedMessage,
  type Native,
} from '../conversation/message.js';
import { checkPlainJson } from '../conversation/json.js';
import { metaOf, nativeField } from '../conversation/validate.js';
import { invalid, isFailure, restated } from '../errors.js';
import type { TokenCounter } from '../tokens/counter.js';
import { type Fields, isFields } from './content.js';
import { withoutEnvelope } from './envelope.js';
import type { Format, ShownUnit, Unit } from './format.js';
import { candidates, contextFormatOf, formatOf, opens } from './index.js';
import { timeOf } from './openai-chat.js';

/** Messages in their logged form, and the time of each in ISO 8601, or null if the input has none. */
export interface LoggedTurn {
  messages: readonly ChatMessage[];
  times: readonly (string | null)[];
}

/** Converts a caller's input to the messages to log. Throws `Input.Invalid` with the path of the first offending field. */
export function readNative(value: unknown, format: FormatName, path = 'messages'): LoggedTurn {
  if (!Array.isArray(value)) throw invalid(`${path} must be an array of messages`, path);
  checkPlainJson(value, path);
  return readPlain(value, format, path);
}

/** Like `readNative`, for values that are known to be plain JSON. */
export function readPlain(value: readonly Json[], format: FormatName, path = 'messages'): LoggedTurn {
  const adapter = formatOf(format);
  refuseForeign(value, format, path);
  const units = unitsOf(value, adapter, path);
  const times = units.flatMap(({ messages, times }) => messages.map((_, index) => times?.[index] ?? null));
  return { messages: withNative(units, format), times };
}

/** Names the format that the messages of a session without a `format` seem to have, if they are refused. */
function unitsOf(value: readonly Json[], adapter: Format, path: string): Unit[] {
  try {
    return adapter.normalize(value, path);
  } catch (error) {
    if (adapter.name !== 'openai-chat' || !isFailure(error, 'Input.Invalid')) throw error;
    const seeming = candidates.find((format) => opens(format, [...value], 'document'))?.name ?? adapter.name;
    if (seeming === adapter.name) throw error;
    const hint = `The messages look like the format ${seeming}. ${beginWith(seeming)}`;
    throw restated(error, { hint, cause: error });
  }
}

const beginWith = (format: FormatName): string =>
  `The first turn names the format of its session: begin a session with \`format: '${format}'\`, or convert the messages.`;

/** Returns the messages of units; each unit's first message holds the unit's items. A chat message needs no items. */
function withNative(units: readonly Unit[], format: FormatName): ChatMessage[] {
  return units.flatMap(({ items, messages }) =>
    messages.map((message, index) =>
      index > 0 || (items.length === 1 && items[0] === (message as unknown))
        ? message
        : { ...message, [nativeField]: { format, items, messages: messages.length } },
    ),
  );
}

/** Parses a stored body into its message and the originals stored with it. */
export function parseBody(body: string): { message: ChatMessage; native?: Native } {
  return splitNative(JSON.parse(body) as ChatMessage);
}

/** Separates a logged message from its originals. */
export function splitNative(logged: ChatMessage): { message: ChatMessage; native?: Native } {
  if (!Object.hasOwn(logged, nativeField)) return { message: logged };
  const { [nativeField]: native, ...message } = logged;
  return { message, native: native as Native };
}

/**
 * Yields the original input from the messages of a log in order: items of its format, or the chat messages themselves. A chat
 * message gets a field `at` if its turn told a time that the message lacks.
 */
export async function* originalItems(log: AsyncIterable<LoggedMessage>): AsyncGenerator<Json> {
  let rest = 0;
  for await (const { message, native, at } of log) {
    rest = native ? native.messages - 1 : rest - 1;
    if (native) yield* native.items;
    else if (rest < 0)
      yield (at === undefined || timeOf(message) ? message : { ...message, at }) as unknown as Json;
  }
}

/** The items of a part of a log that begins with a unit, as they were appended. */
export function appendedItems(log: readonly LoggedMessage[]): Json[] {
  let rest = 0;
  return log.flatMap(({ message, native }): Json[] => {
    rest = native ? native.messages - 1 : rest - 1;
    if (native) return native.items;
    return rest < 0 ? [message as unknown as Json] : [];
  });
}

/**
 * Groups the view (the messages of a context) into units. A unit that the view shows whole and unchanged keeps its items, as
 * messages of the context's format.
 */
export function shownUnits(
  view: readonly ViewItem[],
  logged: ReadonlyMap<number, LoggedMessage>,
  format: FormatName,
): ShownUnit[] {
  const whole = wholeUnits(view, logged, format);
  const units: ShownUnit[] = [];
  for (let index = 0; index < view.length;) {
    const { message, fromSeq: seq } = view[index]!;
    units.push({
      ...(whole.get(index) ?? { items: null, messages: [message] }),
      ...(seq > 0 ? { seq } : {}),
    });
    index += units.at(-1)!.messages.length;
  }
  return units;
}

/** Returns the units that the view shows whole and unchanged, keyed by the index of their first item in the view. */
function wholeUnits(
  view: readonly ViewItem[],
  logged: ReadonlyMap<number, LoggedMessage>,
  format: FormatName,
): Map<number, ShownUnit> {
  const unitOf = new Map<number, LoggedUnit>();
  for (const { seq, native } of logged.values()) {
    if (!native || formatOf(native.format).contextFormat !== format) continue;
    // An erasure may have left no item of a message.
    if (withoutEnvelope(native.items).length === 0) continue;
    const unit = { ...native, fromSeq: seq };
    for (let offset = 0; offset < native.messages; offset++) unitOf.set(seq + offset, unit);
  }
  const found = new Map<number, ShownUnit>();
  for (let index = 0; index < view.length;) {
    const { fromSeq, source } = view[index]!;
    const unit = source === 'media' ? undefined : unitOf.get(fromSeq);
    const whole = unit && wholeUnit(unit, view, index, logged);
    if (whole) found.set(index, whole);
    index += whole?.messages.length ?? 1;
  }
  return found;
}

interface LoggedUnit extends Native {
  fromSeq: number;
}

/**
 * Returns the unit whose first shown message is at `from`, if the view has all its messages that are not empty from there on.
 * The messages may be in any order, because results are shown in the order of their calls.
 */
function wholeUnit(
  unit: LoggedUnit,
  view: readonly ViewItem[],
  from: number,
  logged: ReadonlyMap<number, LoggedMessage>,
): ShownUnit | null {
  const originals = Array.from({ length: unit.messages }, (_, offset) => logged.get(unit.fromSeq + offset));
  const visible = originals.filter((original) => original && !metaOf(original.message).empty).length;
  const bySeq = new Map(view.slice(from, from + visible).map((item) => [item.fromSeq, item]));
  const format = formatOf(unit.format);
  const messages: ChatMessage[] = [];
  for (const original of originals) {
    if (!original) return null;
    const item = bySeq.get(original.seq);
    if (!item && !metaOf(original.message).empty) return null;
    if (item && !isOriginal(item, original, format.requestItems !== undefined)) return null;
    messages.push(item?.message ?? original.message);
  }
  return {
    items: format.requestItems?.(unit.items, messages) ?? unit.items,
    messages: [...bySeq.values()].map(({ message }) => message),
  };
}

/** `inOtherWords` allows different call ids, and the placeholder text for an empty result. */
function isOriginal(item: ViewItem, { message }: LoggedMessage, inOtherWords: boolean): boolean {
  if (item.throughSeq !== item.fromSeq) return false;
  if (item.message === message || JSON.stringify(item.message) === JSON.stringify(message)) return true;
  return inOtherWords && JSON.stringify(withoutIds(item.message)) === JSON.stringify(withoutIds(message));
}

function withoutIds(message: ChatMessage): ChatMessage {
  const { role, tool_calls: calls, content } = message;
  if (calls) return { ...message, tool_calls: calls.map((call) => ({ ...call, id: '' })) };
  if (role !== 'tool') return message;
  return { ...message, tool_call_id: '', content: isBlank(content) ? noOutput : content };
}

/**
 * Prepares a view for a request in another format. Units that are shown unchanged stay whole; media of all other messages move
 * to places that the format accepts. `shownUnits` turns the result into units.
 */
export function arrangeNative(
  view: readonly ViewItem[],
  logged: ReadonlyMap<number, LoggedMessage>,
  format: ContextFormat,
  counter: TokenCounter,
): ViewItem[] {
  const { refusesMedia: refuses } = contextFormatOf(format);
  const hasMedia = ({ message: { content } }: ViewItem) => Array.isArray(content) && content.some(isMedia);
  if (!view.some(hasMedia)) return [...view];
  const kept = new Set<ViewItem>();
  const joined = new Set<number>();
  for (const [from, { messages }] of wholeUnits(view, logged, format)) {
    for (const item of view.slice(from, from + messages.length)) kept.add(item);
    for (let index = from; index < from + messages.length - 1; index++) joined.add(index);
  }
  return moveMedia(view, {
    ...{ refuses, counter },
    isKept: (item) => kept.has(item),
    isJoined: (index) => joined.has(index),
  });
}

/** The format that a message seems to have. */
interface Look {
  format: FormatName;
  /** The field that shows it. */
  field: string;
}

/**
 * Formats whose messages have a role. LangChain and Cline are left out: LangChain's adapter reads the messages of all these
 * formats, and Cline's messages are Anthropic's with additional fields.
 */
const strict = new Set<FormatName>(['openai-chat', 'anthropic', 'openai-responses', 'gemini', 'ai-sdk']);

/** Agent records with a `type` or an `author` where a message has its role. */
const logs = new Set<FormatName>(['claude-code', 'codex', 'gemini-cli', 'google-adk']);

/**
 * Detects messages of another provider's format in a session. Every format allows unknown fields, so most of these messages
 * would be read without an error. Their content would then be missing in the context, and their calls would lose their results.
 * Throws `Input.Invalid`, which names the format that the message seems to have.
 */
export function refuseForeign(items: readonly Json[], format: FormatName, path: string): void {
  if (!strict.has(format) && !logs.has(format)) return;
  items.forEach((item, index) => {
    if (!isFields(item) || typeof item.role !== 'string') return;
    const look = strict.has(format) ? lookOf(item, format) : lookOfRecord(item);
    if (look === null || look.format === format) return;
    const at = `${path}[${index}]`;
    throw invalid(
      `${at} is a message in the format ${look.format}, not ${format}.`,
      `${at}.${look.field}`,
      beginWith(look.format),
    );
  });
}

/** OpenAI's calls are checked first, because gateways keep blocks of other providers next to them. */
function lookOf(message: Fields, format: FormatName): Look | null {
  const { content, parts } = message;
  const isUntyped = message.type === undefined;
  if (isUntyped && Array.isArray(message.tool_calls) && message.tool_calls.length > 0)
    return { format: 'openai-chat', field: 'tool_calls' };
  if (isUntyped && typeof message.tool_call_id === 'string')
    return { format: 'openai-chat', field: 'tool_call_id' };
  if (content === undefined && Array.isArray(parts) && parts.every(isFields) && parts.length > 0)
    return { format: parts.every((part) => part.type === undefined) ? 'gemini' : 'ai-sdk', field: 'parts' };
  if (format === 'gemini' && parts === undefined && content !== undefined && content !== null)
    return { format: lookOfParts(content)?.format ?? 'openai-chat', field: 'content' };
  return lookOfParts(content);
}

function lookOfParts(content: Json | undefined): Look | null {
  if (!Array.isArray(content)) return null;
  for (const [index, part] of content.entries()) {
    const type = isFields(part) ? part.type : undefined;
    const field = `content[${index}].type`;
    if (type === 'tool_use' || type === 'tool_result') return { format: 'anthropic', field };
    if (type === 'tool-call' || type === 'tool-result') return { format: 'ai-sdk', field };
  }
  return null;
}

function lookOfRecord(record: Fields): Look | null {
  if (record.type !== undefined || record.content === undefined) return null;
  return { format: lookOfParts(record.content)?.format ?? 'openai-chat', field: 'role' };
}
