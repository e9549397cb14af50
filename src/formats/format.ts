import type { RefusesPart } from '../context/view/moved-media.js';
import type { ContextFormat, FormatName } from '../conversation/format-names.js';
import type { ChatMessage, Json } from '../conversation/message.js';

/**
 * The smallest piece of a native history that stands for whole messages: items as they came (one or more, in order), and
 * the chat messages (at least one) they mean. Items that mean no message by themselves (metadata lines of a log) belong
 * to the unit of a neighbour, so that the items of all units, joined, are the input again.
 */
export interface Unit {
  items: Json[];
  messages: ChatMessage[];
  /** When each of `messages` was said, as the items tell (`instantIn`). */
  times?: (string | null)[];
}

/** A piece of a context. `items` null: converted from `messages`, because the original is not shown whole and unchanged. */
export interface ShownUnit {
  items: Json[] | null;
  messages: ChatMessage[];
  /** Seq of its first message; absent where the log has none. */
  seq?: number;
}

/** A context as the format's provider takes it. */
export interface Rendered {
  messages: Json[];
  /** Where the provider wants instructions apart from the messages: its own form of them. */
  system?: Json;
}

export interface Format {
  name: FormatName;
  /** How a person calls it. */
  title: string;
  /** The format of this session's contexts: itself, or for logs the provider's. */
  contextFormat: ContextFormat;
  /**
   * Items (plain JSON, any shape) as units, in order. Throws `Input.Invalid` with the path of the offending field, which
   * begins with `path`; what real histories get wrong between messages is accepted, as in `checkMessages`.
   */
  normalize(items: readonly Json[], path: string): Unit[];
  /**
   * The items of a unit that a context shows whole, as messages of the context's format. `messages` are the unit's, in
   * the order of the log, as the context shows them: their call ids are unique, those of the items may not be, and a
   * result without a word says `(no output)`. @default the items themselves, where the context changes nothing of the messages
   */
  requestItems?(items: readonly Json[], messages: readonly ChatMessage[]): Json[];
  /**
   * A parsed file as the items of its history; null when it is no file of this format. `lines`: `document` is the array
   * of the values of the file's lines. What the file holds beside its messages becomes an item too (metadata, usually
   * the first), so that the file can be written back whole. `id`: what the file calls its session.
   */
  open?(document: Json, layout: FileLayout): Opened | null;
  /** How items stand in a file that holds nothing beside them, where that is no list. @default document */
  bareLayout?: FileLayout;
  /** Whether an item that is the only one stands in its file without a list around it. @default never */
  isFile?(item: Json): boolean;
  /** The inverse of `open`: the text of the file that these items were opened from. @default `closeItems` */
  close?(items: ItemReader): AsyncGenerator<string>;
}

/** One JSON value a line, or one JSON value. */
export type FileLayout = 'lines' | 'document';

/** What a message format of another provider or agent needs to be read from, kept, and written back. */
export interface Opened {
  id?: string;
  items: Json[];
}

/** A format that contexts can be rendered in. */
export interface RequestFormat extends Format {
  name: ContextFormat;
  /** Media that messages of a role may not hold, where they are converted: they move into a user message (see `moveMedia`). */
  refusesMedia: RefusesPart;
  /** Valid for the provider, whatever the units are; originals of units that are shown whole come out as they came in. */
  render(units: readonly ShownUnit[]): Rendered;
  /** What the provider would refuse; empty: nothing. */
  violations(rendered: Rendered): string[];
}

/** Items in order, the first of which can be looked at before it is taken. */
export class ItemReader {
  private readonly source: AsyncIterator<Json>;
  private ahead: IteratorResult<Json> | undefined;

  constructor(items: AsyncIterable<Json>) {
    this.source = items[Symbol.asyncIterator]();
  }

  /** Undefined at the end. */
  async peek(): Promise<Json | undefined> {
    this.ahead ??= await this.source.next();
    return this.ahead.done ? undefined : this.ahead.value;
  }

  /** Undefined at the end. */
  async next(): Promise<Json | undefined> {
    const item = await this.peek();
    this.ahead = undefined;
    return item;
  }

  async *take(most: number): AsyncGenerator<Json> {
    for (let taken = 0; taken < most; taken++) {
      const item = await this.next();
      if (item === undefined) return;
      yield item;
    }
  }

  rest(): AsyncGenerator<Json> {
    return this.take(Infinity);
  }

  /** Ends the reading, also before its end. */
  async end(): Promise<void> {
    await this.source.return?.();
  }
}
