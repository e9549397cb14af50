import { invalid, isFailure, type PalimpsestError, restated } from '../errors.js';
import type { Json } from '../conversation/message.js';
import { metaOf } from '../conversation/validate.js';
import { isFields } from './content.js';
import { closeItems } from './close.js';
import { envelope, envelopeOf, listsOf } from './envelope.js';
import { refuseForeign } from './native.js';
import { formatNames, type FormatName } from '../conversation/format-names.js';
import { candidates, formatOf, opens } from './index.js';
import { type FileLayout, type Format, ItemReader, type Opened } from './format.js';

/** A file of conversations: its format and its items. */
export interface OpenedDocument extends Opened {
  format: FormatName;
}

/**
 * Returns the items of a parsed file. With `lines`, `value` is the array of the values of its lines. Without a format, each is
 * tried. Throws `Input.Invalid` if the file is in no known format, contains no message, or violates its format (with the path
 * in the file; `details.item` is the index of the item).
 */
export function openDocument(value: Json, layout: FileLayout, format?: FormatName): OpenedDocument {
  for (const adapter of format === undefined ? candidates : [formatOf(format)]) {
    const opened = adapter.open?.(value, layout) ?? null;
    if (opened) return checked(adapter, opened, layout);
  }
  if (format !== undefined && Array.isArray(value))
    return checked(formatOf(format), { items: value }, layout);
  throw unknown(value, layout, format);
}

/** Writes the file that was opened into these items, in pieces of text: compact JSON, or JSON lines. */
export async function* closeDocument(items: AsyncIterable<Json>, format: FormatName): AsyncGenerator<string> {
  const adapter = formatOf(format);
  const reader = new ItemReader(items);
  try {
    yield* adapter.close?.(reader) ?? closeItems(reader, adapter);
  } finally {
    await reader.end();
  }
}

function checked(adapter: Format, opened: Opened, layout: FileLayout): OpenedDocument {
  const units = inDocument(opened.items, layout, () => {
    refuseForeign(opened.items, adapter.name, 'items');
    return adapter.normalize(opened.items, 'items');
  });
  if (units.some(({ messages }) => messages.some((message) => !metaOf(message).empty)))
    return { ...opened, format: adapter.name, items: withLayout(adapter, opened.items, layout) };
  const hint = 'A session begins with its first message; there is nothing to import.';
  throw invalid(`The file was recognised as ${adapter.title}, but contains no message.`, 'messages', hint);
}

/** Adds an envelope with the layout to the items of a file of lines, if `closeItems` would otherwise write them as a list. */
function withLayout({ bareLayout }: Format, items: readonly Json[], layout: FileLayout): Json[] {
  const isTold = layout === 'document' || bareLayout === 'lines' || envelopeOf(items[0]) !== null;
  return isTold ? [...items] : [envelope({ layout }), ...items];
}

const itemPath = /^items\[(\d+)\](.*)$/s;

/** Runs `read` and replaces paths within items by paths within the document; `details.item` is the index of the item. */
function inDocument<Result>(items: readonly Json[], layout: FileLayout, read: () => Result): Result {
  try {
    return read();
  } catch (error) {
    const [, number = '', rest = ''] = (isFailure(error) && itemPath.exec(error.path ?? '')) || [];
    if (!isFailure(error) || number === '') throw error;
    const item = Number(number);
    const place = layout === 'lines' ? `lines[${item}]` : placeOf(items, item);
    const path = `${place}${rest}`;
    const message = error.message.replaceAll(error.path!, path).replaceAll(`items[${item}]`, place);
    throw restated(error, { message, path, details: { ...error.details, item } });
  }
}

/** Returns the place of an item: in the lists of its file, or in the list that the file consists of. */
function placeOf(items: readonly Json[], item: number): string {
  const lists = listsOf(envelopeOf(items[0]));
  let from = 1;
  for (const { path, count } of lists) {
    if (item < from + count) return `${path.join('.')}[${item - from}]`;
    from += count;
  }
  return `messages[${item}]`;
}

export interface LineKind {
  format: FormatName;
  /** A whole session, or one item of the session in the file. */
  kind: 'session' | 'item';
}

/** Classifies one line of a file; returns null if no format recognises it. */
export function classifyLine(value: Json): LineKind | null {
  for (const format of candidates) {
    if (opens(format, [value], 'lines')) return { format: format.name, kind: 'item' };
    if (opens(format, value, 'document')) return { format: format.name, kind: 'session' };
  }
  return null;
}

function unknown(value: Json, layout: FileLayout, format: FormatName | undefined): PalimpsestError {
  const [first] = layout === 'lines' && Array.isArray(value) ? value : [];
  const line = first === undefined || format !== undefined ? null : classifyLine(first);
  if (line?.kind === 'session')
    return invalid(
      `Each line is a session in the format ${line.format}; together they do not form one session.`,
      undefined,
      'Open the lines one by one.',
    );
  const wanted = format === undefined ? 'not in a known format' : `not a file of ${formatOf(format).title}`;
  const hint =
    format === undefined
      ? `Known formats: ${formatNames.join(', ')}. Name the format of the file.`
      : `Omit the format to have it detected; known formats: ${formatNames.join(', ')}.`;
  const path = isFields(value) ? 'messages' : Array.isArray(value) && value.length > 0 ? '[0]' : undefined;
  return invalid(`The file is ${wanted}: it is ${seen(value, layout)}.`, path, hint);
}

const MOST_FIELDS = 12;

function seen(value: Json, layout: FileLayout): string {
  if (Array.isArray(value)) {
    const [first] = value;
    const of = layout === 'lines' ? `${value.length} lines` : `a list of ${value.length}`;
    return first === undefined ? `${of}, empty` : `${of}, the first of them ${seen(first, 'document')}`;
  }
  if (!isFields(value)) return value === null ? 'null' : `a ${typeof value}`;
  const fields = Object.keys(value).map((field) => JSON.stringify(field.slice(0, 40)));
  if (fields.length === 0) return 'an object without fields';
  const more = fields.length > MOST_FIELDS ? `, and ${fields.length - MOST_FIELDS} more` : '';
  return `an object with the fields ${fields.slice(0, MOST_FIELDS).join(', ')}${more}`;
}
