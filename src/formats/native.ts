/**
 * Histories in the formats of other providers are logged as chat messages, and what came in travels with them: the first
 * message of each unit holds the unit's items, byte for byte, in a field that no chat message has of itself.
 */
import { invalid } from '../errors.js';
import type { ViewItem } from '../context/view/view-types.js';
import { refuseForeign } from './foreign.js';
import { formatOf } from './index.js';
import { timeOf } from './openai-chat.js';
import type { FormatName } from '../conversation/format-names.js';
import type { ShownUnit, Unit } from './format.js';
import type { ChatMessage, Json, LoggedMessage, Native } from '../conversation/message.js';
import { checkPlainJson } from '../conversation/plain-json.js';
import { isBlank, noOutput } from '../context/view/projection.js';
import { metaOf, nativeField } from '../conversation/validate.js';

/** Messages as they are logged, and when each was said, ISO 8601; null: what came in does not tell. */
export interface LoggedTurn {
  messages: readonly ChatMessage[];
  times: readonly (string | null)[];
}

/**
 * What a caller hands over, as the messages to log. Throws `Input.Invalid` with the path of the first offending field.
 */
export function readNative(value: unknown, format: FormatName, path = 'messages'): LoggedTurn {
  if (!Array.isArray(value)) throw invalid(`${path} must be an array of messages`, path);
  checkPlainJson(value, path);
  return readPlain(value, format, path);
}

/** The same of values that are known to be plain JSON. */
export function readPlain(value: readonly Json[], format: FormatName, path = 'messages'): LoggedTurn {
  const adapter = formatOf(format);
  refuseForeign(value, format, path);
  const units = adapter.normalize(value, path);
  const times = units.flatMap(({ messages, times }) => messages.map((_, index) => times?.[index] ?? null));
  return { messages: withNative(units, format), times };
}

/** The messages of units, each first one with its unit's items; a chat message is its own. */
function withNative(units: readonly Unit[], format: FormatName): ChatMessage[] {
  return units.flatMap(({ items, messages }) =>
    messages.map((message, index) =>
      index > 0 || (items.length === 1 && items[0] === (message as unknown))
        ? message
        : { ...message, [nativeField]: { format, items, messages: messages.length } },
    ),
  );
}

/** A stored body as its message and what came with it. */
export function parseBody(body: string): { message: ChatMessage; native?: Native } {
  return splitNative(JSON.parse(body) as ChatMessage);
}

/** A logged message without what came with it, and that. */
export function splitNative(logged: ChatMessage): { message: ChatMessage; native?: Native } {
  if (!Object.hasOwn(logged, nativeField)) return { message: logged };
  const { [nativeField]: native, ...message } = logged;
  return { message, native: native as Native };
}

/**
 * What came in, from the messages of a log in order: items of its format, or the chat messages themselves, with a field
 * `at` where their turn told a time that they do not bear.
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

/** The view in units: those that it shows whole and unchanged with their items, as its format has them. */
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

/** By the index of its first item in the view: the units that it shows whole and unchanged. */
export function wholeUnits(
  view: readonly ViewItem[],
  logged: ReadonlyMap<number, LoggedMessage>,
  format: FormatName,
): Map<number, ShownUnit> {
  const unitOf = new Map<number, LoggedUnit>();
  for (const { seq, native } of logged.values()) {
    if (!native || formatOf(native.format).contextFormat !== format) continue;
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
 * The unit whose first shown message stands at `from`, where all of it that is not empty stands there: in any order, for
 * results are shown in the order of their calls.
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

/** `inOtherWords`: call ids may differ, and a result without a word may say so. */
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
