/**
 * What a file holds beside its messages (its session id, model, timestamps, …) is an item of the history as well, the
 * first one, so that the file can be written back whole. No provider has such an item: `shown` leaves it out.
 */
import type { Json } from '../conversation/message.js';

const envelopeField = 'palimpsest.document';

export type Fields = { [field: string]: Json };

export function envelope(fields: Fields): Json {
  return { [envelopeField]: fields };
}

/** What an envelope holds; null for every other item. */
export function envelopeOf(item: Json | undefined): Fields | null {
  if (item === null || typeof item !== 'object' || Array.isArray(item)) return null;
  const fields = item[envelopeField];
  return fields && typeof fields === 'object' && !Array.isArray(fields) ? fields : null;
}

export function withoutEnvelope(items: readonly Json[]): Json[] {
  return items.filter((item) => envelopeOf(item) === null);
}
