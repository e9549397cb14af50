// eslint-disable-next-line no-restricted-imports -- the vocabulary is part of a package, as a required module is.
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

/** There are fewer than 2 ** RANK_BITS tokens; their table has 2 ** TABLE_BITS places. */
const RANK_BITS = 18;
const TABLE_BITS = 19;

/** The rank of bytes that are no token. */
const NONE = 1 << RANK_BITS;

/**
 * Returns a function that counts the tokens of a text. The file has tiktoken's format: in each line a token in base64 and its
 * rank, ordered by rank. `splitter` matches the pieces of a text, without gaps; no token is in two of them.
 */
export function bytePairCount(file: string, splitter: RegExp): (text: string) => number {
  const tokens = readTokens(file);
  const pieces = new RegExp(splitter);
  let piece = new Piece(1_024, tokens);
  return (text) => {
    let count = 0;
    let from = 0;
    pieces.lastIndex = 0;
    while (pieces.test(text)) {
      const to = pieces.lastIndex;
      if ((to - from) * 3 > piece.room) piece = new Piece((to - from) * 3, tokens);
      count += piece.count(text, from, to);
      from = to;
    }
    return count;
  };
}

/** The tokens by their bytes, in typed arrays: 4 MB for 200,000 tokens, which as strings in a map take 45 MB. */
class Tokens {
  private readonly ends = new Uint32Array(NONE);
  /** Rank + 1 in the lower bits, lower bits of the hash above them; 0 where there is no token. */
  private readonly table = new Int32Array(1 << TABLE_BITS);
  private size = 0;

  /** @param bytes all tokens, one after the other */
  constructor(private readonly bytes: Uint8Array) {}

  /** Takes the bytes up to `end` as the next token. */
  add(end: number): void {
    const start = this.ends[this.size - 1] ?? 0;
    const hash = hashOf(this.bytes, start, end);
    let place = hash >>> (32 - TABLE_BITS);
    while (this.table[place] !== 0) place = (place + 1) % this.table.length;
    this.ends[this.size++] = end;
    this.table[place] = (hash << RANK_BITS) | this.size;
  }

  rankOf(bytes: Uint8Array, start: number, end: number): number {
    const hash = hashOf(bytes, start, end);
    for (let place = hash >>> (32 - TABLE_BITS); ; place = (place + 1) % this.table.length) {
      const entry = this.table[place] ?? 0;
      if (entry === 0) return NONE;
      if ((entry ^ (hash << RANK_BITS)) >>> RANK_BITS !== 0) continue;
      const rank = (entry & (NONE - 1)) - 1;
      if (this.is(rank, bytes, start, end)) return rank;
    }
  }

  private is(rank: number, bytes: Uint8Array, start: number, end: number): boolean {
    const from = this.ends[rank - 1] ?? 0;
    if ((this.ends[rank] ?? 0) - from !== end - start) return false;
    for (let at = start; at < end; at++) if (bytes[at] !== this.bytes[from + at - start]) return false;
    return true;
  }
}

function hashOf(bytes: Uint8Array, start: number, end: number): number {
  let hash = 0;
  for (let at = start; at < end; at++) hash = Math.imul(hash ^ (bytes[at] ?? 0), 0x9e37_79b1) ^ (hash >>> 15);
  return hash;
}

const lineEnd = 0x0a;
const base64 = new Int8Array(128).fill(-1);
for (const [sextet, digit] of [
  ...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/',
].entries())
  base64[digit.charCodeAt(0)] = sextet;

/** Decodes the file in small chunks, so that nothing of it stays in memory. */
function readTokens(path: string): Tokens {
  const file = openSync(path, 'r');
  try {
    const bytes = new Uint8Array(fstatSync(file).size);
    const tokens = new Tokens(bytes);
    const chunk = new Uint8Array(65_536);
    let [start, end, bits, held] = [0, 0, 0, 0];
    let inToken = true;
    for (let read = readSync(file, chunk); read > 0; read = readSync(file, chunk))
      for (const character of chunk.subarray(0, read)) {
        const sextet = base64[character] ?? -1;
        if (character === lineEnd) {
          if (startsWithMark(bytes, start, end)) end = start;
          else tokens.add(end);
          start = end;
          held = 0;
          inToken = true;
        } else if (sextet === -1) inToken = false;
        else if (inToken) {
          bits = (bits << 6) | sextet;
          held += 6;
          if (held < 8) continue;
          held -= 8;
          bytes[end++] = bits >> held;
        }
      }
    return tokens;
  } finally {
    closeSync(file);
  }
}

/** gpt-tokenizer makes no token that begins with a byte order mark. */
function startsWithMark(bytes: Uint8Array, start: number, end: number): boolean {
  return end - start >= 3 && bytes[start] === 0xef && bytes[start + 1] === 0xbb && bytes[start + 2] === 0xbf;
}

/** Counts the tokens of one piece at a time. */
class Piece {
  private readonly bytes: Uint8Array;
  /** By a part's first byte: the first bytes of the parts beside it, and the rank of the token that it forms with the next. */
  private readonly before: Int32Array;
  private readonly next: Int32Array;
  private readonly ranks: Int32Array;
  private readonly joints: Joints;

  constructor(
    readonly room: number,
    private readonly tokens: Tokens,
  ) {
    this.bytes = new Uint8Array(room);
    this.before = new Int32Array(room + 1);
    this.next = new Int32Array(room);
    this.ranks = new Int32Array(room);
    this.joints = new Joints(room * 3);
  }

  count(text: string, from: number, to: number): number {
    const length = this.encode(text, from, to);
    return this.tokens.rankOf(this.bytes, 0, length) === NONE ? this.merge(length) : 1;
  }

  /** Writes UTF-8 as TextEncoder does, of which a call costs more than all that is done with a word here. */
  private encode(text: string, from: number, to: number): number {
    const { bytes } = this;
    let length = 0;
    for (let at = from; at < to; at++) {
      let point = text.charCodeAt(at);
      if (point < 0x80) {
        bytes[length++] = point;
        continue;
      }
      point = text.codePointAt(at) ?? 0;
      if (point > 0xffff) at++;
      else if (point >= 0xd800 && point <= 0xdfff) point = 0xfffd;
      if (point < 0x800) bytes[length++] = 0xc0 | (point >> 6);
      else {
        if (point < 0x1_0000) bytes[length++] = 0xe0 | (point >> 12);
        else {
          bytes[length++] = 0xf0 | (point >> 18);
          bytes[length++] = 0x80 | ((point >> 12) & 0x3f);
        }
        bytes[length++] = 0x80 | ((point >> 6) & 0x3f);
      }
      bytes[length++] = 0x80 | (point & 0x3f);
    }
    return length;
  }

  /** Joins the two parts that form the token of the lowest rank, the first such two, until none do. Returns how many are left. */
  private merge(length: number): number {
    const { before, next, ranks, joints, room } = this;
    for (let at = 0; at < length; at++) {
      before[at] = at - 1;
      next[at] = at + 1;
    }
    for (let at = 0; at < length; at++) this.look(at, length);
    let parts = length;
    while (joints.size > 0) {
      const joint = joints.pop();
      const at = joint % room;
      // Parts that were joined otherwise since.
      if (ranks[at] !== (joint - at) / room) continue;
      const joined = next[at] ?? length;
      const after = next[joined] ?? length;
      ranks[joined] = NONE;
      next[at] = after;
      before[after] = at;
      parts--;
      this.look(at, length);
      if (at > 0) this.look(before[at] ?? 0, length);
    }
    return parts;
  }

  private look(at: number, length: number): void {
    const second = this.next[at] ?? length;
    const rank = second < length ? this.tokens.rankOf(this.bytes, at, this.next[second] ?? length) : NONE;
    this.ranks[at] = rank;
    if (rank !== NONE) this.joints.push(rank * this.room + at);
  }
}

/** A heap of numbers. */
class Joints {
  size = 0;
  private readonly heap: Float64Array;

  constructor(room: number) {
    this.heap = new Float64Array(room);
  }

  push(value: number): void {
    const { heap } = this;
    let at = this.size++;
    for (let above; at > 0; at = above) {
      above = (at - 1) >> 1;
      const over = heap[above] ?? 0;
      if (over <= value) break;
      heap[at] = over;
    }
    heap[at] = value;
  }

  pop(): number {
    const { heap } = this;
    const least = heap[0] ?? 0;
    const value = heap[--this.size] ?? 0;
    let at = 0;
    for (let below = 1; below < this.size; below = 2 * at + 1) {
      if (below + 1 < this.size && (heap[below + 1] ?? 0) < (heap[below] ?? 0)) below++;
      const under = heap[below] ?? 0;
      if (under >= value) break;
      heap[at] = under;
      at = below;
    }
    heap[at] = value;
    return least;
  }
}
