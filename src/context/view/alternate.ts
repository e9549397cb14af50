import type { Policy } from '../../policy/defaults.js';
import type { ViewItem } from './view.js';
import type { ChatMessage, ContentPart } from '../../conversation/message.js';

/**
 * Models whose endpoints or chat templates refuse two consecutive turns of a role, or a first turn of the assistant: Anthropic ("first
 * message must use the user role"), Gemini ("function call turn comes immediately after a user turn"), Mistral, Gemma and Llama 2
 * ("Conversation roles must alternate user/assistant/user/assistant/...", from their templates), Perplexity.
 */
const alternating =
  /(?:^|[/:._-])(?:claude|anthropic|gemini|gemma|mistral|mixtral|ministral|codestral|magistral|devstral|pixtral|sonar)|llama-?2(?![\d.])/i;

/**
 * Whether the provider requires alternating roles, so that neighbours of the same role are joined into one message. Messages
 * that are appended later change a joined message only at its end.
 */
export function wantsAlternation({ roles, model }: Pick<Policy, 'roles' | 'model'>): boolean {
  if (roles !== 'auto') return roles === 'alternate';
  return model !== null && alternating.test(model);
}

/** Placed before a context that would begin with the assistant. */
const OPENING: ChatMessage = { role: 'user', content: '(The session begins with the assistant.)' };

/** Tokens of {@link OPENING}, an upper bound for all tokenizers. */
const OPENING_TOKENS = 20;

/**
 * Joins neighbours of the same role: user messages; an assistant's text with the text or the calls that follow it. Results,
 * calls before their results and system messages are not joined. If the first turn is not a user's, a placeholder precedes
 * it. The tokens of a joined message are the sum of its parts, which is never below its count.
 */
export function alternateRoles(items: readonly ViewItem[]): ViewItem[] {
  const joined: ViewItem[] = [];
  for (const item of items) {
    const before = joined.at(-1);
    if (before && joins(before.message, item.message)) joined[joined.length - 1] = join(before, item);
    else joined.push(item);
  }
  const first = joined.findIndex(({ message: { role } }) => role !== 'system' && role !== 'developer');
  if (first < 0 || joined[first]?.message.role === 'user') return joined;
  return [...joined.slice(0, first), opening(), ...joined.slice(first)];
}

function opening(): ViewItem {
  return {
    fromSeq: 0,
    throughSeq: 0,
    message: { ...OPENING },
    tokens: OPENING_TOKENS,
    source: 'synthetic',
    group: 0,
    role: 'user',
    tool: null,
  };
}

function joins(before: ChatMessage, after: ChatMessage): boolean {
  if (before.role !== after.role) return false;
  return before.role === 'user' || (before.role === 'assistant' && !hasCalls(before));
}

function hasCalls({ tool_calls, function_call }: ChatMessage): boolean {
  return (tool_calls ?? []).length > 0 || Boolean(function_call);
}

/** The joined item has the group of its calls, so that they stay with their results; otherwise the group of the first item. */
function join(before: ViewItem, after: ViewItem): ViewItem {
  const seqs = [before.fromSeq, after.fromSeq].filter((seq) => seq > 0);
  return {
    ...before,
    fromSeq: seqs.length === 0 ? 0 : Math.min(...seqs),
    throughSeq: Math.max(before.throughSeq, after.throughSeq),
    message: joinMessages(before.message, after.message),
    tokens: before.tokens + after.tokens + separatorTokens,
    group: hasCalls(after.message) ? after.group : before.group,
    joined: [before, after].flatMap((item) => item.joined ?? { source: item.source, tokens: item.tokens }),
  };
}

const separator = '\n\n';

/** Tokens of the blank line between two texts, including changed tokens at both ends. */
const separatorTokens = 2;

function joinMessages(before: ChatMessage, after: ChatMessage): ChatMessage {
  const content = joinContent(before.content, labelled(before, after));
  const joined: ChatMessage = { ...after, ...before, ...(content === undefined ? {} : { content }) };
  for (const field of ['reasoning', 'reasoning_content', 'refusal']) {
    const texts = [before[field], after[field]].filter((text) => typeof text === 'string' && text !== '');
    if (texts.length === 2) joined[field] = texts.join(separator);
    else if (texts.length === 1) joined[field] = texts[0];
  }
  if (after.name !== undefined && before.name === undefined) delete joined.name;
  if (hasCalls(after)) {
    if (after.tool_calls) joined.tool_calls = after.tool_calls;
    if (after.function_call) joined.function_call = after.function_call;
  }
  return joined;
}

/** The content of the later message. If its name differs, the name precedes it, since a message has only one name. */
function labelled(before: ChatMessage, { name, content }: ChatMessage): ChatMessage['content'] {
  if (!name || name === before.name) return content;
  if (typeof content === 'string') return `[${name}] ${content}`;
  return content ? [{ type: 'text', text: `[${name}]` }, ...content] : content;
}

function joinContent(before: ChatMessage['content'], after: ChatMessage['content']): ChatMessage['content'] {
  if (isEmpty(after)) return before;
  if (isEmpty(before)) return after;
  if (typeof before === 'string' && typeof after === 'string') return before + separator + after;
  return [...partsOf(before), ...partsOf(after)];
}

function isEmpty(content: ChatMessage['content']): content is null | undefined | '' | [] {
  return content === null || content === undefined || content.length === 0;
}

function partsOf(content: string | ContentPart[]): ContentPart[] {
  return typeof content === 'string' ? [{ type: 'text', text: content }] : content;
}
