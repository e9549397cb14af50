/** Entries at most: with their keys about 150 MB. */
const most = 1_000_000;

/** A map by text that keeps the latest million entries. */
export class Remembered<Value> {
  private readonly entries = new Map<string, Value>();

  get(key: string): Value | undefined {
    return this.entries.get(detached(key));
  }

  set(key: string, value: Value): void {
    this.entries.delete(key);
    this.entries.set(detached(key), value);
    if (this.entries.size > most)
      for (const [oldest] of this.entries) return void this.entries.delete(oldest);
  }

  delete(key: string): void {
    this.entries.delete(key);
  }
}

/** A copy: a text that was cut out of another one keeps all of that in memory. */
export const detached = (text: string): string => Buffer.from(text, 'utf16le').toString('utf16le');
