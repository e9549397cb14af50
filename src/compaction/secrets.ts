import type { ChatMessage, LoggedMessage } from '../conversation/message.js';
import type { SummarizerSettings } from './plan-types.js';
import type { ReplacementInput } from './replacement.js';

/** Fields that name and link; they hold no text of anybody. */
const links = new Set(['role', 'type', 'id', 'tool_call_id', 'name']);

/** What `redactorFor` puts in the place of a secret. */
const placeholder = /\[REDACTED:[a-z_]{1,30}:[0-9a-f]{8}\]/g;

/** Leaves nothing in the place of a secret that looks like an identifier worth a line of the ledger. */
function blanking(redact: (text: string) => string): (text: string) => string {
  return (text) => redact(text).replace(placeholder, '…');
}

/**
 * Messages as code may quote from them. Redacting the quote would come too late: what is a secret often shows only by
 * the words beside it, and those a quote leaves behind.
 */
export function withoutSecrets(
  messages: readonly LoggedMessage[],
  redact: (text: string) => string,
): LoggedMessage[] {
  return messages.map((logged) => {
    const message: ChatMessage = JSON.parse(JSON.stringify(logged.message), (field, value: unknown) =>
      typeof value === 'string' && !links.has(field) ? redact(value) : value,
    );
    return { ...logged, message };
  });
}

/** The messages as a summarizer may read them; chunks are cut of these. */
export function readable(
  messages: readonly LoggedMessage[],
  { redaction }: Pick<SummarizerSettings, 'redaction'>,
  redact: (text: string) => string,
): readonly LoggedMessage[] {
  return redaction === '' ? messages : withoutSecrets(messages, redact);
}

/** Of these messages, those of which something is withheld from a summarizer. */
export function redactedIn(
  messages: readonly LoggedMessage[],
  { policy, redact }: Pick<ReplacementInput, 'policy' | 'redact'>,
): LoggedMessage[] {
  if (policy.redact === null) return [];
  const shown = withoutSecrets(messages, redact);
  return messages.filter(
    ({ message }, index) => JSON.stringify(message) !== JSON.stringify(shown[index]!.message),
  );
}

/** What identifiers are copied from. */
export interface Mentions {
  previousSnapshot: string | null;
  evicted: readonly LoggedMessage[];
  kept: readonly LoggedMessage[];
}

/** The same without secrets, where the policy redacts. */
export function mentionsWithoutSecrets(
  { policy, redact }: Pick<ReplacementInput, 'policy' | 'redact'>,
  { previousSnapshot, evicted, kept }: Mentions,
): Mentions {
  if (policy.redact === null) return { previousSnapshot, evicted, kept };
  const blank = blanking(redact);
  return {
    previousSnapshot: previousSnapshot === null ? null : blank(previousSnapshot),
    evicted: withoutSecrets(evicted, blank),
    kept: withoutSecrets(kept, blank),
  };
}
