/** Contexts as they were last answered, so that one that has not changed need not be sent again. */
export interface KeptContext {
  /** The header as it came. */
  etag: string;
  text: string;
}

export class KeptContexts {
  private readonly kept = new Map<string, KeptContext>();

  /** `most`: contexts at most; the one used least recently goes first. */
  constructor(private readonly most: number) {}

  get(key: string): KeptContext | undefined {
    const found = this.kept.get(key);
    if (found) this.put(key, found);
    return found;
  }

  put(key: string, context: KeptContext): void {
    // A map keeps the order of insertion: what is put in anew comes last.
    this.kept.delete(key);
    this.kept.set(key, context);
    const [oldest] = this.kept.keys();
    if (this.kept.size > this.most && oldest !== undefined) this.kept.delete(oldest);
  }
}
