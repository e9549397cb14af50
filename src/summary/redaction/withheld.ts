import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import { redacting, type Redact } from './redact.js';
import { inSlices, type Steps } from '../../steps.js';

/** Fields with names and links, which have no written text. */
const links = new Set(['role', 'type', 'id', 'tool_call_id', 'name']);

/**
 * Redacts messages before code quotes from them. Redacting a quotation is too late: a secret is often recognized only by the
 * words next to it, which the quotation lacks.
 */
export function* withoutSecrets(messages: readonly LoggedMessage[], redact: Redact): Steps<LoggedMessage[]> {
  const shown = yield* redactedMessages(
    messages.map(({ message }) => message),
    redact,
  );
  return messages.map((logged, index) => {
    const message = shown[index] ?? logged.message;
    return message === logged.message ? logged : { ...logged, message };
  });
}

export function* redactedMessages(messages: readonly ChatMessage[], redact: Redact): Steps<ChatMessage[]> {
  const shown: ChatMessage[] = [];
  for (const message of messages) shown.push((yield* redactedValue(message, redact)) as ChatMessage);
  return shown;
}

/** The value itself if it has no secret. */
function* redactedValue(value: unknown, redact: Redact): Steps<unknown> {
  yield;
  if (typeof value === 'string') return yield* redacting(redact, value);
  if (typeof value !== 'object' || value === null) return value;
  let changed = false;
  const shown: [string, unknown][] = [];
  for (const [field, inner] of Object.entries(value)) {
    if (inner === undefined) continue;
    const isLink = !Array.isArray(value) && typeof inner === 'string' && links.has(field);
    const safe = isLink ? inner : yield* redactedValue(inner, redact);
    changed ||= safe !== inner;
    shown.push([field, safe]);
  }
  if (!changed) return value;
  return Array.isArray(value) ? shown.map(([, item]) => item) : Object.fromEntries(shown);
}

/** The messages as a summarizer may read them; chunks are made from these. */
export async function readable(
  messages: readonly LoggedMessage[],
  { redaction }: { redaction: string },
  redact: Redact,
): Promise<readonly LoggedMessage[]> {
  return redaction === '' ? messages : inSlices(withoutSecrets(messages, redact));
}
