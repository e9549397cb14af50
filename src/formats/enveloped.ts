/** Files that hold their messages in one or more lists among other fields: opened into items, and closed again. */
import type { Json } from '../conversation/message.js';
import { isFields, type Fields } from './content.js';
import { envelope, envelopeOf } from './envelope.js';

/** A list of messages in a document. `text`: a lone text stands in its place, opened as a user message. */
export interface List {
  path: string[];
  items: Json[];
  text?: boolean;
}

/** The list at a path of a document; null where there is none. A text counts where `textToo`. */
export function listAt(document: Fields, path: string[], textToo = false): List | null {
  let value: Json | undefined = document;
  for (const step of path) value = isFields(value) ? value[step] : undefined;
  if (Array.isArray(value)) return { path, items: value };
  if (!textToo || typeof value !== 'string') return null;
  return { path, items: [{ role: 'user', content: value }], text: true };
}

/** `more`: fields of the envelope that the format reads. */
export function openLists(document: Fields, lists: readonly List[], more: Fields = {}): Json[] {
  const rest = lists.reduce((left, { path }) => withValue(left, path, null), document);
  const places = lists.map(({ path, items, text = false }) => ({ path, count: items.length, text }));
  return [envelope({ ...more, lists: places, document: rest }), ...lists.flatMap(({ items }) => items)];
}

/** The lists that items were opened from, in order; none where they are no such document. */
export function listsOf(items: readonly Json[]): { path: string[]; count: number; text: boolean }[] {
  const lists = envelopeOf(items[0])?.lists;
  return Array.isArray(lists) ? (lists as unknown as { path: string[]; count: number; text: boolean }[]) : [];
}

/** The document of {@link openLists}; without an envelope the items are all of it. What came later ends the last list. */
export function closeLists(items: readonly Json[]): Json {
  const fields = envelopeOf(items[0]);
  if (!fields || !Array.isArray(fields.lists) || !isFields(fields.document)) return [...items];
  const lists = listsOf(items);
  let from = 1;
  return lists.reduce<Fields>((document, { path, count, text }, index) => {
    const until = index === lists.length - 1 ? items.length : from + count;
    const own = items.slice(from, until);
    from = until;
    const [only] = own;
    return withValue(document, path, text && own.length === 1 && isFields(only) ? only.content! : own);
  }, fields.document);
}

function withValue(document: Fields, [step, ...rest]: readonly string[], value: Json): Fields {
  return Object.fromEntries(
    Object.entries(document).map(([field, inner]): [string, Json] => {
      if (field !== step) return [field, inner];
      return [field, rest.length > 0 && isFields(inner) ? withValue(inner, rest, value) : value];
    }),
  );
}
