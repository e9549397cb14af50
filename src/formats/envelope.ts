/**
 * Everything that a file contains besides its messages (its session id, model, timestamps, …) becomes the first item of the
 * history, so that the file can be written back completely. No provider knows such an item, so requests leave it out.
 */
import type { Json } from '../conversation/message.js';
import { type Fields, isFields } from './content.js';

const envelopeField = 'palimpsest.document';

export function envelope(fields: Fields): Json {
  return { [envelopeField]: fields };
}

/** Returns the content of an envelope, or null for any other item. */
export function envelopeOf(item: Json | undefined): Fields | null {
  if (item === null || typeof item !== 'object' || Array.isArray(item)) return null;
  const fields = item[envelopeField];
  return fields && typeof fields === 'object' && !Array.isArray(fields) ? fields : null;
}

export function withoutEnvelope(items: readonly Json[]): Json[] {
  return items.filter((item) => envelopeOf(item) === null);
}

/** A list of messages in a document. `text`: the document has a single text in its place, opened as a user message. */
export interface List {
  path: string[];
  items: Json[];
  text?: boolean;
}

/** The path of a list, the number of its opened items, and whether it was a single text. */
export interface ListPlace {
  path: string[];
  count: number;
  text: boolean;
}

/** Returns the list at a path of a document, or null if there is none. `textToo` also accepts a text. */
export function listAt(document: Fields, path: string[], textToo = false): List | null {
  let value: Json | undefined = document;
  for (const step of path) value = isFields(value) ? value[step] : undefined;
  if (Array.isArray(value)) return { path, items: value };
  if (!textToo || typeof value !== 'string') return null;
  return { path, items: [{ role: 'user', content: value }], text: true };
}

/**
 * Returns the items of a document: an envelope with everything except the lists, then the items of the lists. `more` holds
 * further fields for the envelope, which the format itself reads.
 */
export function openLists(document: Fields, lists: readonly List[], more: Fields = {}): Json[] {
  const rest = lists.reduce((left, { path }) => withValue(left, path, null), document);
  const places = lists.map(({ path, items, text = false }) => ({ path, count: items.length, text }));
  return [envelope({ ...more, lists: places, document: rest }), ...lists.flatMap(({ items }) => items)];
}

/** Returns the lists that an envelope describes, in the order of their items. */
export function listsOf(fields: Fields | null): ListPlace[] {
  return Array.isArray(fields?.lists) ? fields.lists.filter(isListPlace) : [];
}

function isListPlace(place: Json): place is Json & ListPlace {
  return (
    isFields(place) &&
    Array.isArray(place.path) &&
    place.path.every((step) => typeof step === 'string') &&
    typeof place.count === 'number' &&
    typeof place.text === 'boolean'
  );
}

function withValue(document: Fields, [step, ...rest]: readonly string[], value: Json): Fields {
  return Object.fromEntries(
    Object.entries(document).map(([field, inner]): [string, Json] => {
      if (field !== step) return [field, inner];
      return [field, rest.length > 0 && isFields(inner) ? withValue(inner, rest, value) : value];
    }),
  );
}
