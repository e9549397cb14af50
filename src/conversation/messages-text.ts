/**
 * Messages of a turn as JSON text in UTF-8, checked to be exact: too many or too long to be held as values where others
 * wait. Threads share the bytes, so that nobody copies them.
 */
export class MessagesText {
  constructor(
    readonly bytes: SharedArrayBuffer,
    /** Of the list. */
    readonly count: number,
  ) {}
}

/** A text in UTF-8 in memory that threads share. It must hold whole surrogate pairs only, as `JSON.stringify` writes them. */
export function sharedText(text: string): SharedArrayBuffer {
  const shared = new SharedArrayBuffer(Buffer.byteLength(text));
  Buffer.from(shared).write(text, 'utf8');
  return shared;
}

export function textOfShared(shared: SharedArrayBuffer): string {
  return Buffer.from(shared).toString('utf8');
}
