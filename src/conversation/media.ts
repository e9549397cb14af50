import type { ContentPart } from './message.js';

/** Whether a content part carries media: its data is never text. A document may carry plain text (Anthropic) instead. */
export function isMedia(part: ContentPart): boolean {
  return /image|audio|video|file|document|media/i.test(part.type) && documentText(part) === null;
}

/** The text of a document that carries it as such; null for all other parts. */
export function documentText(part: ContentPart): string | null {
  const { type, data } = fieldsOf(part.source);
  return type === 'text' && typeof data === 'string' ? data : null;
}

/** The fields of a value that is an object, none of any other. */
export function fieldsOf(value: unknown): Record<string, unknown> {
  return value !== null && typeof value === 'object' ? { ...value } : {};
}
