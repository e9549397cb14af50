/** Writes files back from their items, one piece of text at a time. */
import type { Json } from '../conversation/message.js';
import { isFields, type Fields } from './content.js';
import { envelopeOf, type ListPlace, listsOf } from './envelope.js';
import type { Format, ItemReader } from './format.js';

/**
 * Writes the file that these items were opened from, as the envelope describes it. Without an envelope, writes a file of the
 * items alone. Keeps two items in memory. If the document has its lists in another order than the items, keeps in addition the
 * text of lists whose items come first but whose place in the document comes later.
 */
export async function* closeItems(
  items: ItemReader,
  format: Pick<Format, 'bareLayout' | 'isFile'>,
): AsyncGenerator<string> {
  const fields = envelopeOf(await items.peek());
  const document = fields?.document;
  const lists = listsOf(fields);
  if (fields?.layout === 'lines') await items.next();
  if (fields?.layout === 'lines' || (fields === null && format.bareLayout === 'lines')) {
    yield* linesOf(items.rest());
    return;
  }
  if (isFields(document) && areIn(document, lists)) {
    await items.next();
    yield* documentOf(document, [], new Lists(items, lists));
  } else yield* listOf(items.rest(), (only) => (format.isFile?.(only) ? only : undefined));
  yield '\n';
}

async function* linesOf(items: AsyncGenerator<Json>): AsyncGenerator<string> {
  for await (const item of items) yield `${JSON.stringify(item)}\n`;
}

/** `alone` replaces a list of one item; undefined keeps the list. */
async function* listOf(
  items: AsyncGenerator<Json>,
  alone: (item: Json) => Json | undefined,
): AsyncGenerator<string> {
  const first = await items.next();
  if (first.done) {
    yield '[]';
    return;
  }
  let further = await items.next();
  const instead = further.done ? alone(first.value) : undefined;
  if (instead !== undefined) {
    yield JSON.stringify(instead);
    return;
  }
  yield `[${JSON.stringify(first.value)}`;
  for (; !further.done; further = await items.next()) yield `,${JSON.stringify(further.value)}`;
  yield ']';
}

/** Provides the lists in the order of the document, although the reader yields them in the order of the items. */
class Lists {
  private read = 0;
  private readonly held: string[] = [];

  constructor(
    private readonly items: ItemReader,
    private readonly lists: readonly ListPlace[],
  ) {}

  /** Returns -1 if there is no list at the path. */
  at(path: readonly string[]): number {
    return this.lists.findIndex((list) => isSamePath(list.path, path));
  }

  isBelow(path: readonly string[]): boolean {
    return this.lists.some((list) => isSamePath(list.path.slice(0, path.length), path));
  }

  async *text(index: number): AsyncGenerator<string> {
    while (this.read < index) {
      let text = '';
      for await (const piece of this.following()) text += piece;
      this.held.push(text);
    }
    if (index < this.read) yield this.held[index]!;
    else yield* this.following();
  }

  /** Items added after the file was opened go to the end of its last list. */
  private following(): AsyncGenerator<string> {
    const { count, text } = this.lists[this.read]!;
    this.read++;
    const isLast = this.read === this.lists.length;
    const own = isLast ? this.items.rest() : this.items.take(count);
    return listOf(own, (only) => (text && isFields(only) ? only.content : undefined));
  }
}

async function* documentOf(value: Json, path: readonly string[], lists: Lists): AsyncGenerator<string> {
  const list = lists.at(path);
  if (list >= 0) yield* lists.text(list);
  else if (isFields(value) && lists.isBelow(path)) {
    let before = '{';
    for (const [field, inner] of Object.entries(value)) {
      yield `${before}${JSON.stringify(field)}:`;
      yield* documentOf(inner, [...path, field], lists);
      before = ',';
    }
    yield '}';
  } else yield JSON.stringify(value);
}

const isSamePath = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((step, index) => step === b[index]);

/** Returns whether each of these lists was taken out of the document, each from a different place. */
function areIn(document: Fields, lists: readonly ListPlace[]): boolean {
  const places = new Set(lists.map(({ path }) => JSON.stringify(path)));
  return (
    places.size > 0 && places.size === lists.length && lists.every(({ path }) => isEmpty(document, path))
  );
}

function isEmpty(document: Fields, path: readonly string[]): boolean {
  let value: Json | undefined = document;
  for (const step of path) value = isFields(value) && Object.hasOwn(value, step) ? value[step] : undefined;
  return value === null;
}
