import type { ChatMessage, ContentPart } from '../conversation/message.js';
import type { TokenCounter } from './counter.js';

/** Tokens around each message and each tool call: role, separators, JSON braces (OpenAI cookbook, "How to count tokens"). */
export const FRAMING_TOKENS = 4;

/**
 * An image at high detail: 85 + 6 tiles of 170, the price of 2,048 × 4,096 pixels
 * (platform.openai.com/docs/guides/images-vision); its size is not known without fetching it, so this leans high.
 */
export const IMAGE_TOKENS = 1_105;
/** An image asked for with `detail: "low"` (same page). */
export const LOW_DETAIL_IMAGE_TOKENS = 85;
/** Audio, video and files: their cost depends on seconds and pages, which are not known here. */
export const OTHER_MEDIA_TOKENS = 2_000;

/** Whether a content part carries media: its cost is fixed and its data is never text. */
export function isMedia(part: ContentPart): boolean {
  return /image|audio|video|file|document|media/i.test(part.type);
}

function record(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === 'object' ? { ...value } : {};
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '');

function mediaTokens(part: ContentPart): number {
  if (!part.type.includes('image')) return OTHER_MEDIA_TOKENS;
  const detail = record(part.image_url).detail ?? part.detail;
  return detail === 'low' ? LOW_DETAIL_IMAGE_TOKENS : IMAGE_TOKENS;
}

/** Data inside parts of unknown types: a data URL or base64 without a space. */
const looksEncoded = (value: string): boolean =>
  value.length > 1_000 && (value.startsWith('data:') || /^[\w+/=-]+$/.test(value));

/** A part of an unknown type goes to the provider as it is: its JSON is weighed, encoded data in it as media. */
function unknownPartTokens(part: ContentPart, counter: TokenCounter): number {
  let media = 0;
  const json = JSON.stringify(part, (_key, value: unknown) => {
    if (typeof value !== 'string' || !looksEncoded(value)) return value;
    media += OTHER_MEDIA_TOKENS;
    return '';
  });
  return media + counter.count(json);
}

function partTokens(part: ContentPart, counter: TokenCounter): number {
  if (isMedia(part)) return mediaTokens(part);
  const texts = [part.text, part.refusal, part.reasoning, part.thinking]
    .map(text)
    .filter((value) => value !== '');
  if (texts.length === 0 && !/text|refusal|reasoning|thinking/.test(part.type))
    return unknownPartTokens(part, counter);
  return texts.reduce((sum, value) => sum + counter.count(value), 0);
}

/** Name and arguments of each call. OpenAI's `custom` calls carry `input` where function calls carry `arguments`. */
function callsOf(message: ChatMessage): Record<string, unknown>[] {
  const calls = (message.tool_calls ?? []).map((call) => record(call.function ?? call.custom));
  return message.function_call ? [...calls, record(message.function_call)] : calls;
}

/**
 * Tokens of one message in a request: framing, text of its content, `name`, refusal and reasoning text, and for each
 * tool call its name, its arguments and the framing again. Media weigh a fixed cost.
 */
export function countMessage(message: ChatMessage, counter: TokenCounter): number {
  const { content } = message;
  let tokens = FRAMING_TOKENS + counter.count(text(content));
  if (Array.isArray(content)) for (const part of content) tokens += partTokens(part, counter);
  for (const field of [message.name, message.refusal, message.reasoning, message.reasoning_content]) {
    tokens += counter.count(text(field));
  }
  for (const call of callsOf(message)) {
    const input = text(call.arguments ?? call.input);
    tokens += FRAMING_TOKENS + counter.count(text(call.name)) + counter.count(input);
  }
  return tokens;
}
