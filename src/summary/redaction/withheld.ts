import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import { redacting, type Redact } from './redact.js';
import { inSlices, type Steps } from '../../steps.js';
import type { Policy } from '../../policy/defaults.js';

/** The redaction settings of a policy, and the redactor. */
interface Redaction {
  policy: Pick<Policy, 'redact'>;
  redact: Redact;
}

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
  return messages.map((logged, index) => ({ ...logged, message: shown[index] ?? logged.message }));
}

export function* redactedMessages(messages: readonly ChatMessage[], redact: Redact): Steps<ChatMessage[]> {
  const shown: ChatMessage[] = [];
  for (const message of messages) shown.push((yield* redactedValue(message, redact)) as ChatMessage);
  return shown;
}

function* redactedValue(value: unknown, redact: Redact): Steps<unknown> {
  if (typeof value === 'string') return yield* redacting(redact, value);
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    const items: unknown[] = [];
    for (const item of value) items.push(yield* redactedValue(item, redact));
    return items;
  }
  const fields: [string, unknown][] = [];
  for (const [field, inner] of Object.entries(value))
    if (inner !== undefined)
      fields.push([
        field,
        typeof inner === 'string' && links.has(field) ? inner : yield* redactedValue(inner, redact),
      ]);
  return Object.fromEntries(fields);
}

/** The messages as a summarizer may read them; chunks are made from these. */
export async function readable(
  messages: readonly LoggedMessage[],
  { redaction }: { redaction: string },
  redact: Redact,
): Promise<readonly LoggedMessage[]> {
  return redaction === '' ? messages : inSlices(withoutSecrets(messages, redact));
}

/** The messages of which a part is withheld from the summarizer. */
export function* redactedIn(
  messages: readonly LoggedMessage[],
  { policy, redact }: Redaction,
): Steps<LoggedMessage[]> {
  if (policy.redact === null) return [];
  const shown = yield* withoutSecrets(messages, redact);
  return messages.filter(
    ({ message }, index) => JSON.stringify(message) !== JSON.stringify(shown[index]!.message),
  );
}
