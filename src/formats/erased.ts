/** Originals in another format after an erasure: of the units with an erased message, and of units that repeat its text. */
import type { ChatMessage, Json, Native } from '../conversation/message.js';
import { textsIn } from '../conversation/tombstone.js';
import { metaOf } from '../conversation/validate.js';
import { envelopeOf } from './envelope.js';
import { contextFormatOf, formatOf } from './index.js';

/**
 * The original of a unit of which a message was erased; `messages` are the unit's messages as the log keeps them now. A
 * provider's format gets new items, made from these messages. The file of an agent loses the items of the unit, except the
 * beginning of the file without the erased texts. `null`: the chat messages themselves stand for the unit.
 */
export function rewrittenNative(
  native: Native,
  messages: readonly ChatMessage[],
  erasedTexts: readonly string[],
): Native | null {
  const format = formatOf(native.format);
  const begin = native.items
    .filter((item) => envelopeOf(item) !== null)
    .map((item) => withoutTexts(item, erasedTexts));
  if (format.contextFormat !== format.name) return { ...native, items: begin };
  const rendered = contextFormatOf(format.contextFormat).render([{ items: null, messages: [...messages] }]);
  const items = [...begin, ...rendered.messages];
  return standsFor(native, items, messages) ? { ...native, items } : null;
}

/** Whether the format reads these items as messages of the same roles and links. */
function standsFor(native: Native, items: Json[], messages: readonly ChatMessage[]): boolean {
  try {
    const read = formatOf(native.format)
      .normalize(items, 'items')
      .flatMap((unit) => unit.messages);
    const links = (all: readonly ChatMessage[]) =>
      JSON.stringify(all.map((message) => ({ ...metaOf(message), empty: false })));
    return links(read) === links(messages);
  } catch {
    return false;
  }
}

/**
 * The original of a unit whose messages stay, without the erased texts that only its other fields repeat: an agent's log may
 * write a message twice.
 */
export function maskedNative(
  native: Native,
  messages: readonly ChatMessage[],
  erasedTexts: readonly string[],
): Native | null {
  const own = textsIn(messages);
  const foreign = erasedTexts.filter((text) => !own.some((one) => one.includes(text)));
  const items = native.items.map((item) => withoutTexts(item, foreign));
  if (JSON.stringify(items) === JSON.stringify(native.items)) return native;
  return standsFor(native, items, messages)
    ? { ...native, items }
    : rewrittenNative(native, messages, erasedTexts);
}

/** The value with a mark in place of every string that contains one of these texts. */
function withoutTexts(value: Json, texts: readonly string[]): Json {
  if (typeof value === 'string') return texts.some((text) => value.includes(text)) ? '[erased]' : value;
  if (Array.isArray(value)) return value.map((item) => withoutTexts(item, texts));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(
    Object.entries(value).map(([field, inner]): [string, Json] => [field, withoutTexts(inner, texts)]),
  );
}
