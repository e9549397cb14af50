import type { RefusesPart } from '../context/view/moved-media.js';
import type { ContextFormat, FormatName } from '../conversation/format-names.js';
import type { ChatMessage, Json } from '../conversation/message.js';

/**
 * The smallest piece of a native history that corresponds to whole messages: the original items (one or more, in order), and
 * the chat messages (at least one) that they stand for. Items without a message (metadata lines of a log) belong to a
 * neighbouring unit, so that the items of all units, joined, equal the input.
 */
export interface Unit {
  items: Json[];
  messages: ChatMessage[];
  /** The time of each of `messages`, as the items tell it (`instantIn`). */
  times?: (string | null)[];
}

/**
 * A piece of a context. `items` is null if it must be converted from `messages`, because the original is not shown whole and
 * unchanged.
 */
export interface ShownUnit {
  items: Json[] | null;
  messages: ChatMessage[];
  /** Seq of its first message; absent if it is not in the log. */
  seq?: number;
}

/** A context in the form that the format's provider accepts. */
export interface Rendered {
  messages: Json[];
  /** The provider's own form of instructions, if it takes them separately from the messages. */
  system?: Json;
}

/** Operations to read, store and write back the message format of another provider or agent. */
export interface Format {
  name: FormatName;
  /** Name for people. */
  title: string;
  /** The format of contexts of such a session: the format itself or, for logs, the provider's. */
  contextFormat: ContextFormat;
  /**
   * Returns items (plain JSON, any shape) as units, in order. Throws `Input.Invalid` with the path of the offending field,
   * which begins with `path`. Inconsistencies between messages that occur in real histories are accepted, as in
   * `checkMessages`.
   */
  normalize(items: readonly Json[], path: string): Unit[];
  /**
   * Returns the items of a unit that a context shows whole, as messages of the context's format. `messages` are the unit's
   * messages as the context shows them, in the order of the log: their call ids are unique, which those of the items need not
   * be, and an empty result says `(no output)`. @default the items themselves, if the context does not change the messages
   */
  requestItems?(items: readonly Json[], messages: readonly ChatMessage[]): Json[];
  /**
   * Returns a parsed file as the items of its history, or null if it is not a file of this format. With `lines`, `document` is
   * the array of the values of the file's lines. Content of the file besides its messages also becomes an item (metadata,
   * usually the first), so that the file can be written back completely. `id` is the session's name in the file.
   */
  open?(document: Json, layout: FileLayout): Opened | null;
  /** Layout of a file that contains nothing but items, if it is not a list. @default document */
  bareLayout?: FileLayout;
  /** Returns whether a single item forms a file without a list around it. @default never */
  isFile?(item: Json): boolean;
  /** The inverse of `open`: writes the text of the file that these items were opened from. @default `closeItems` */
  close?(items: ItemReader): AsyncGenerator<string>;
}

/** One JSON value per line, or one JSON value. */
export type FileLayout = 'lines' | 'document';

/** The items of a file, and the id of its session if it names one. */
export interface Opened {
  id?: string;
  items: Json[];
}

/** A format in which contexts can be rendered. */
export interface RequestFormat extends Format {
  name: ContextFormat;
  /**
   * Media that messages of a role must not contain when they are converted; they move into a user message (see `moveMedia`).
   */
  refusesMedia: RefusesPart;
  /**
   * Returns a context that is valid for the provider, whatever the units are. Units that are shown whole keep their originals.
   */
  render(units: readonly ShownUnit[]): Rendered;
  /** Lists what the provider would refuse; empty if nothing. */
  violations(rendered: Rendered): string[];
}

/** Reads items in order and allows a look at the next one. */
export class ItemReader {
  private readonly source: AsyncIterator<Json>;
  private ahead: IteratorResult<Json> | undefined;

  constructor(items: AsyncIterable<Json>) {
    this.source = items[Symbol.asyncIterator]();
  }

  /** Returns undefined at the end. */
  async peek(): Promise<Json | undefined> {
    this.ahead ??= await this.source.next();
    return this.ahead.done ? undefined : this.ahead.value;
  }

  /** Returns undefined at the end. */
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

  /** Ends the reading, even before the last item. */
  async end(): Promise<void> {
    await this.source.return?.();
  }
}
