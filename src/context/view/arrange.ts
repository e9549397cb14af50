/** The last step from a view to a request: media where the format takes them, roles in turn where the model wants that. */
import type { TokenCounter } from '../../tokens/counter.js';
import { fieldsOf } from '../../conversation/media.js';
import { countMessage } from '../../tokens/message.js';
import { alternateRoles } from './alternate.js';
import type { ViewItem } from './view-types.js';
import type { ChatMessage, ContentPart } from '../../conversation/message.js';
import { moveMedia, type RefusesPart } from './moved-media.js';

/** OpenAI takes media from users alone (platform.openai.com/docs/api-reference/chat/create). */
export const refusesChatMedia: RefusesPart = (role) => role !== 'user';

/** A view as chat messages. `alternate`: users and assistants take turns. */
export function arrangeChat(view: readonly ViewItem[], counter: TokenCounter, alternate = false): ViewItem[] {
  const sendable = view.map((item) => {
    const message = withChatParts(item.message);
    return message === item.message ? item : { ...item, message, tokens: countMessage(message, counter) };
  });
  const moved = moveMedia(sendable, { refuses: refusesChatMedia, counter });
  return alternate ? alternateRoles(moved) : moved;
}

/** Pictures in another provider's store, and files that only an address names, are told: no part of a chat message holds them. */
function withChatParts(message: ChatMessage): ChatMessage {
  const { content } = message;
  if (!Array.isArray(content) || !content.some(isElsewhere)) return message;
  return { ...message, content: content.map((part) => (isElsewhere(part) ? toldPart(part) : part)) };
}

function isElsewhere({ type, file }: ContentPart): boolean {
  return type === 'image_file' || (type === 'file' && typeof fieldsOf(file).file_url === 'string');
}

function toldPart({ type, file, image_file: stored }: ContentPart): ContentPart {
  const { filename, file_url: url, file_id: id } = fieldsOf(type === 'file' ? file : stored);
  const known = [type === 'file' ? 'file' : 'image', filename, url ?? id];
  const words = known.filter((value) => typeof value === 'string' && value !== '');
  return { type: 'text', text: `[${words.join(' ')}]` };
}
