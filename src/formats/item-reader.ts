/** Items in order, the first of which can be looked at before it is taken. */
import type { Json } from '../conversation/message.js';

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
