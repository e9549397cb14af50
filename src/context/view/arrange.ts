/** The last step from a view to a request: media where the format takes them, roles in turn where the model wants that. */
import type { TokenCounter } from '../../tokens/counter.js';
import { countMessage, isMedia } from '../../tokens/message.js';
import { alternateRoles } from './alternate.js';
import type { ViewItem } from './view.js';
import { isFields, textOr } from '../../formats/content.js';
import { contextFormatOf, type ContextFormat } from '../../formats/index.js';
import type { ChatMessage, ContentPart, Json, LoggedMessage } from '../../conversation/message.js';
import { moveMedia } from './moved-media.js';
import { wholeUnits } from '../../formats/native.js';

/** A view as chat messages. `alternate`: users and assistants take turns. */
export function arrangeChat(view: readonly ViewItem[], counter: TokenCounter, alternate = false): ViewItem[] {
  const { refusesMedia: refuses } = contextFormatOf('openai-chat');
  const sendable = view.map((item) => {
    const message = withChatParts(item.message);
    return message === item.message ? item : { ...item, message, tokens: countMessage(message, counter) };
  });
  const moved = moveMedia(sendable, { refuses, counter });
  return alternate ? alternateRoles(moved) : moved;
}

/**
 * A view for a request in another format: units that are shown as they came in stay whole, the media of all else are where
 * the format takes them. `shownUnits` makes the units of it.
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

/** Pictures in another provider's store, and files that only an address names, are told: no part of a chat message holds them. */
function withChatParts(message: ChatMessage): ChatMessage {
  const { content } = message;
  if (!Array.isArray(content) || !content.some(isElsewhere)) return message;
  return { ...message, content: content.map((part) => (isElsewhere(part) ? toldPart(part) : part)) };
}

function isElsewhere({ type, file }: ContentPart): boolean {
  if (type === 'image_file') return true;
  const fields = file as Json | undefined;
  return type === 'file' && isFields(fields) && typeof fields.file_url === 'string';
}

function toldPart({ type, file, image_file: stored }: ContentPart): ContentPart {
  const fields = (type === 'file' ? file : stored) as Json | undefined;
  const { filename, file_url: url, file_id: id } = isFields(fields) ? fields : {};
  const known = [type === 'file' ? 'file' : 'image', filename, url ?? id].map((value) => textOr(value));
  return { type: 'text', text: `[${known.filter(Boolean).join(' ')}]` };
}
