/**
 * Histories in the formats of other providers are logged as chat messages, and what came in travels with them: the first
 * message of each unit holds the unit's items, byte for byte, in a field that no chat message has of itself.
 */
import { createHash } from 'node:crypto';
import { invalid } from '../errors.js';
import type { ViewItem } from './context.js';
import { formatOf, type FormatName, type ShownUnit, type Unit } from './formats/index.js';
import type { ChatMessage, Json, LoggedMessage, Native } from './message.js';
import { checkPlainJson } from './plain-json.js';
import { nativeField } from './validate.js';

/**
 * What a caller hands over, as the messages to log. Throws `Input.Invalid` with the path of the first offending field.
 */
export function readNative(value: unknown, format: FormatName, path = 'messages'): ChatMessage[] {
  const adapter = formatOf(format);
  if (!Array.isArray(value)) throw invalid(`${path} must be an array of messages`, path);
  checkPlainJson(value, path);
  const units = adapter.normalize(value, path);
  return format === 'openai-chat' ? units.flatMap(({ messages }) => messages) : withNative(units, format);
}

/** The messages of units, each first one with its unit's items. */
export function withNative(units: readonly Unit[], format: FormatName): ChatMessage[] {
  return units.flatMap(({ items, messages }) =>
    messages.map((message, index) =>
      index > 0 ? message : { ...message, [nativeField]: { format, items, messages: messages.length } },
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

/** The view in units: those that it shows whole and unchanged with their items. */
export function shownUnits(
  view: readonly ViewItem[],
  logged: ReadonlyMap<number, LoggedMessage>,
  format: FormatName,
): ShownUnit[] {
  const units: ShownUnit[] = [];
  for (let index = 0; index < view.length;) {
    const { fromSeq } = view[index]!;
    const native = logged.get(fromSeq)?.native;
    const whole =
      native !== undefined &&
      formatOf(native.format).contextFormat === format &&
      Array.from({ length: native.messages }, (_, offset) => view[index + offset]).every(
        (item, offset) => item?.fromSeq === fromSeq + offset && isOriginal(item, logged.get(item.fromSeq)),
      );
    const length = whole ? native.messages : 1;
    units.push({
      items: whole ? native.items : null,
      messages: view.slice(index, index + length).map(({ message }) => message),
    });
    index += length;
  }
  return units;
}

function isOriginal({ fromSeq, throughSeq, message }: ViewItem, logged: LoggedMessage | undefined): boolean {
  if (!logged || throughSeq !== fromSeq) return false;
  return message === logged.message || JSON.stringify(message) === JSON.stringify(logged.message);
}

/** Turn ids of imported histories: the same messages at the same place have the same id. */
export function contentId(messages: readonly Json[]): string {
  return createHash('sha256').update(JSON.stringify(messages)).digest('hex').slice(0, 32);
}
