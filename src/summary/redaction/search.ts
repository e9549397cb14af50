/** Searches a long text in windows, so that other work may run between them. */
import type { Steps } from '../../steps.js';

/** Characters of a window. @internal Tests use sizes on either side of it. */
export const WINDOW = 16_384;

/** Characters that an attempt sees after the window in which it begins, unless the form needs more. */
const REACH = 4_608;

/** Characters before an attempt that lookbehinds see. */
const BEFORE = 20_000;

/** A match, and the place in the text at which its input begins. */
export interface Read {
  read: RegExpExecArray;
  base: number;
}

/**
 * The first match of a form (with the flag `g`) that begins at `at` or later; null if there is none. A match that ends near the
 * end of what was searched is searched again in a longer part. Yields after each window.
 */
export function* nextMatch(form: RegExp, text: string, at: number, reach = REACH): Steps<Read | null> {
  for (let from = at, beyond = reach; from <= text.length;) {
    const last = from + WINDOW + beyond >= text.length;
    const base = last && from < BEFORE ? 0 : Math.max(0, from - BEFORE);
    const searched = base === 0 && last ? text : text.slice(base, from + WINDOW + beyond);
    form.lastIndex = from - base;
    const read = form.exec(searched);
    if (last) return read && { read, base };
    yield;
    if (read === null || base + read.index >= from + WINDOW) [from, beyond] = [from + WINDOW, reach];
    else if (read.index + read[0].length < searched.length - REACH / 2) return { read, base };
    else beyond = 2 * (WINDOW + beyond);
  }
  return null;
}
