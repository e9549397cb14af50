import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import { redacting, type Redact } from './redact.js';
import { inSlices, type Steps } from '../../steps.js';
import type { Policy } from '../../policy/resolve.js';

/** A policy that may redact, and what does it. */
interface Redaction {
  policy: Pick<Policy, 'redact'>;
  redact: Redact;
}

/** Fields that name and link; they hold no text of anybody. */
const links = new Set(['role', 'type', 'id', 'tool_call_id', 'name']);

/**
 * Messages as code may quote from them. Redacting the quote would come too late: what is a secret often shows only by
 * the words beside it, and those a quote leaves behind.
 */
export function* withoutSecrets(messages: readonly LoggedMessage[], redact: Redact): Steps<LoggedMessage[]> {
  const shown: LoggedMessage[] = [];
  for (const logged of messages)
    shown.push({ ...logged, message: (yield* redactedValue(logged.message, redact)) as ChatMessage });
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

/** The messages as a summarizer may read them; chunks are cut of these. */
export async function readable(
  messages: readonly LoggedMessage[],
  { redaction }: { redaction: string },
  redact: Redact,
): Promise<readonly LoggedMessage[]> {
  return redaction === '' ? messages : inSlices(withoutSecrets(messages, redact));
}

/** Of these messages, those of which something is withheld from a summarizer. */
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
