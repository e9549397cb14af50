import { createHash } from 'node:crypto';

/** A statement that the server parses and plans once for each connection. */
export interface Prepared {
  name: string;
  text: string;
}

/** The name tells texts of several versions apart, because a pooler may give them the same connection. */
export function prepared(name: string, text: string): Prepared {
  return { name: `${name}_${createHash('sha256').update(text).digest('hex').slice(0, 16)}`, text };
}
