/**
 * Slices of the evicted range that fit one summarizer request. They are cut from the beginning of the range, so that a later
 * plan that evicts more messages finds the digests of all chunks but the last. Offsets are UTF-16 positions in {@link
 * renderMessage}'s text.
 */
import { createHash } from 'node:crypto';
import type { LoggedMessage } from '../../conversation/message.js';
import { nameOf, openingTag, renderParts } from '../../conversation/render.js';
import { PalimpsestError } from '../../errors.js';
import type { TokenCounter } from '../../tokens/counter.js';
import { PROMPT_HASH } from './prompts.js';

/** From character `fromChar` of message `fromSeq` up to character `throughChar` (exclusive; null: to the end) of message `throughSeq`. */
export interface ChunkRef {
  fromSeq: number;
  fromChar: number;
  throughSeq: number;
  throughChar: number | null;
  /** Tokens of the transcript of this slice, labels included; an upper estimate. */
  tokens: number;
}

/**
 * One message of the range. `tokens` is its stored size; `text` its rendered text, or '' if the message need not be split and
 * `tokens` is enough.
 */
interface ChunkItem {
  seq: number;
  tokens: number;
  text: () => string;
}

/** Tokens of the tags around an ordinary message, beyond the framing in its stored size. */
const LABEL_TOKENS = 28;

/** Tokens of the tool name in a label (not part of the rendered text) and of the line end between messages. */
const NAME_TOKENS = 8;

/** Tokens that a transcript adds to each message. */
export const MESSAGE_LABEL_TOKENS = LABEL_TOKENS + NAME_TOKENS;

/** Tokens of the mark before each message in a record of the journal. */
export const MESSAGE_MARK_TOKENS = 12;

/** Tokens of the label around a slice of a message: its tags with both ids, and its range of characters. */
const SLICE_LABEL_TOKENS = 80;

/** A smaller chunk is not halved: a model for which it is too long has no tokens left besides the instructions. */
const SMALLEST_HALVED = 512;

/**
 * Chunks of at most `chunkTokens` tokens that cover all items, in order and without overlap. Chunks end at message boundaries;
 * only a message larger than a whole chunk is split. Ranges that begin at the same message give the same chunks, except for the
 * last. An eighth of each chunk, at most 256 tokens, stays free, so that a short remainder can join the chunk before it. The
 * label of a slice counts as 80 tokens, in chunks below 400 tokens as less than it may need.
 */
export function cutChunks(
  items: readonly ChunkItem[],
  chunkTokens: number,
  counter: TokenCounter,
  labelTokens = MESSAGE_LABEL_TOKENS,
): ChunkRef[] {
  const spare = Math.min(256, Math.floor(chunkTokens / 8));
  const limit = chunkTokens - spare;
  const sliceLabel = Math.min(SLICE_LABEL_TOKENS, Math.floor(limit / 4));
  const chunks: ChunkRef[] = [];
  let open: ChunkRef | null = null;

  for (const { seq, tokens, text } of items) {
    const rendered = text();
    const pieces = measurePieces(rendered, pieceSize(limit), limit - sliceLabel, counter);
    const whole = Math.max(tokens + labelTokens - NAME_TOKENS, total(pieces)) + NAME_TOKENS;
    if (whole <= limit || pieces.length < 2) {
      if (open && open.tokens + whole > limit) close();
      open = extend(open, seq, whole);
      continue;
    }
    if (open && open.tokens > limit / 2) close();
    if (open && open.tokens + sliceLabel + pieces[0]!.tokens > limit) close();
    open = split(seq, pieces);
  }
  close();
  return withoutShortRemainder(chunks, spare);

  function close(): void {
    if (open) chunks.push(open);
    open = null;
  }

  /** Fills the open chunk and as many more as the pieces need; the last chunk stays open. */
  function split(seq: number, pieces: readonly Piece[]): ChunkRef {
    let current = extend(open, seq, sliceLabel);
    let from = 0;
    for (const piece of pieces) {
      if (piece.from > from && current.tokens + piece.tokens > limit) {
        chunks.push({ ...current, throughChar: piece.from });
        from = piece.from;
        current = { fromSeq: seq, fromChar: from, throughSeq: seq, throughChar: null, tokens: sliceLabel };
      }
      current.tokens += piece.tokens;
    }
    return current;
  }
}

function extend(open: ChunkRef | null, seq: number, tokens: number): ChunkRef {
  if (open) return { ...open, throughSeq: seq, tokens: open.tokens + tokens };
  return { fromSeq: seq, fromChar: 0, throughSeq: seq, throughChar: null, tokens };
}

/** A digest of a shorter slice could not be smaller than its source. */
function withoutShortRemainder(chunks: ChunkRef[], spare: number): ChunkRef[] {
  const last = chunks.at(-1);
  const before = chunks.at(-2);
  if (!last || !before || last.tokens > spare) return chunks;
  const { throughSeq, throughChar } = last;
  return [
    ...chunks.slice(0, -2),
    { ...before, throughSeq, throughChar, tokens: before.tokens + last.tokens },
  ];
}

/** Characters counted together when a message is split; fewer for small chunks. */
function pieceSize(limit: number): number {
  return Math.max(16, Math.min(2_048, Math.floor(limit / 2)));
}

function total(pieces: readonly Piece[]): number {
  return pieces.reduce((sum, { tokens }) => sum + tokens, 0);
}

/**
 * Splits a chunk into two of about equal size that together have exactly its text, between two messages if a boundary lies in
 * the middle third. Null for a chunk below 64 tokens. `items` has the messages of the chunk, with their texts.
 */
export function halveChunk(
  chunk: ChunkRef,
  items: readonly ChunkItem[],
  counter: TokenCounter,
): [ChunkRef, ChunkRef] | null {
  const spans = items
    .filter(({ seq }) => seq >= chunk.fromSeq && seq <= chunk.throughSeq)
    .map(({ seq, text }) => {
      const rendered = text();
      const [from, to] = rangeIn(chunk, seq, rendered.length);
      const size = Math.max(8, Math.min(2_048, Math.floor((to - from) / 32)));
      const pieces = measurePieces(rendered.slice(from, to), size, Infinity, counter);
      return {
        seq,
        length: rendered.length,
        pieces: pieces.map((piece) => ({ ...piece, from: piece.from + from })),
      };
    });
  const all = spans.reduce((sum, { pieces }) => sum + total(pieces), 0);
  if (all < SMALLEST_HALVED) return null;

  const cuts: { seq: number; char: number; atBoundary: boolean; left: number }[] = [];
  let left = 0;
  for (const { seq, pieces } of spans) {
    pieces.forEach((piece, index) => {
      if (left > 0) cuts.push({ seq, char: piece.from, atBoundary: index === 0, left });
      left += piece.tokens;
    });
  }
  const nearest = (candidates: typeof cuts) =>
    candidates.sort((a, b) => Math.abs(a.left - all / 2) - Math.abs(b.left - all / 2))[0];
  const cut =
    nearest(cuts.filter((one) => one.atBoundary && one.left >= all / 3 && one.left <= (2 * all) / 3)) ??
    nearest(cuts);
  if (!cut) return null;

  const before = items.filter(({ seq }) => seq < cut.seq).at(-1)?.seq ?? cut.seq;
  const share = Math.round((chunk.tokens * cut.left) / all);
  const leftEnd = cut.atBoundary
    ? { throughSeq: before, throughChar: null }
    : { throughSeq: cut.seq, throughChar: cut.char };
  return [
    { fromSeq: chunk.fromSeq, fromChar: chunk.fromChar, ...leftEnd, tokens: share },
    {
      fromSeq: cut.seq,
      fromChar: cut.atBoundary ? 0 : cut.char,
      throughSeq: chunk.throughSeq,
      throughChar: chunk.throughChar,
      tokens: chunk.tokens - share,
    },
  ];
}

/** The range of characters that the chunk contains of a message of this length. */
function rangeIn(chunk: ChunkRef, seq: number, length: number): [from: number, to: number] {
  const from = seq === chunk.fromSeq ? chunk.fromChar : 0;
  const to = seq === chunk.throughSeq && chunk.throughChar !== null ? chunk.throughChar : length;
  if (from <= to && to <= length) return [from, to];
  throw new PalimpsestError(
    'Store.Corrupt',
    `a chunk reads characters ${from} to ${to} of message ${seq}, which has ${length}`,
    {
      details: { seq, from, to, length },
      hint: 'The message or its rendering changed after the plan was made; plan again.',
    },
  );
}

/**
 * The text of a chunk for the summarizer: its messages in order, each inside its label. The label of a slice gives its range of
 * characters. A result that does not name its tool gets the name from its call among `messages`.
 */
export function transcriptOf(chunk: ChunkRef, messages: readonly LoggedMessage[]): string {
  const toolNames = new Map<string, string>();
  const shown: string[] = [];
  for (const logged of messages) {
    const { message, seq } = logged;
    if (seq >= chunk.fromSeq && seq <= chunk.throughSeq) {
      shown.push(slice(chunk, logged, toolNames.get(message.tool_call_id ?? '')));
    }
    for (const call of message.tool_calls ?? []) if (call.id) toolNames.set(call.id, nameOf(call));
  }
  return shown.join('\n');
}

/**
 * Returns the messages as the chunk contains them: of a message that is split, only the text of the slice; calls stay whole.
 * Comparing them with the digest of a slice therefore takes time in proportion to the slice, not to the message.
 */
export function readBy(chunk: ChunkRef, messages: readonly LoggedMessage[]): LoggedMessage[] {
  return messages.map((logged) => {
    const { seq, message } = logged;
    const isWhole =
      (seq !== chunk.fromSeq || chunk.fromChar === 0) &&
      (seq !== chunk.throughSeq || chunk.throughChar === null);
    if (isWhole || message.role === 'assistant') return logged;
    const { open, content, close } = renderParts(logged);
    const [from, to] = rangeIn(chunk, seq, open.length + content.length + close.length);
    const text = content.slice(Math.max(0, from - open.length), Math.max(0, to - open.length));
    return { ...logged, message: { ...message, content: text } };
  });
}

function slice(chunk: ChunkRef, logged: LoggedMessage, toolName: string | undefined): string {
  const plain = renderParts(logged);
  const { length } = plain.content;
  const [from, to] = rangeIn(chunk, logged.seq, plain.open.length + length + plain.close.length);
  const start = Math.min(length, Math.max(0, from - plain.open.length));
  const end = Math.min(length, Math.max(0, to - plain.open.length));
  const part = start === 0 && end === length ? undefined : `characters ${start + 1}-${end} of ${length}`;
  return (
    openingTag(logged.seq, logged.message, toolName, part) + plain.content.slice(start, end) + plain.close
  );
}

interface KeyParts {
  tenant: string;
  kind: 'chunk' | 'fold' | 'merge' | 'repair' | 'notes' | 'state';
  /** The inputs in order: sha256 of each message (`<sha256>:<from>-<to>` for a slice), or keys of digests. */
  members: readonly string[];
  promptVersion: number | string;
  /** @default the hash of the built-in prompts and of the rendering */
  promptHash?: string;
  model: string;
  limits: Record<string, number>;
}

/** The key under which a result of the model is stored: sha256 of its input, hex. It differs between tenants. */
export function digestKey({ promptHash = PROMPT_HASH, limits, ...parts }: KeyParts): string {
  const { tenant, kind, members, promptVersion, model } = parts;
  const ordered = Object.entries(limits).sort(([a], [b]) => (a < b ? -1 : 1));
  const text = JSON.stringify([
    'palimpsest digest',
    tenant,
    kind,
    members,
    promptVersion,
    promptHash,
    model,
    ordered,
  ]);
  return createHash('sha256').update(text).digest('hex');
}

/** A range of text and its size in tokens; `to` is exclusive. */
interface Piece {
  from: number;
  to: number;
  tokens: number;
}

/**
 * Splits a text into pieces of about `size` characters, in order and without gaps. Each piece is counted once: the sum is
 * slightly above the count of the whole, and the time is linear. No piece has more than `most` tokens, unless it is a single
 * character. Pieces depend only on the text before their end, and end at code points.
 */
function measurePieces(text: string, size: number, most: number, counter: TokenCounter): Piece[] {
  const pieces: Piece[] = [];
  for (let from = 0; from < text.length;) {
    const to = endOf(text, from, size);
    pieces.push(...counted(text, from, to, most, counter));
    from = to;
  }
  return pieces;
}

function counted(text: string, from: number, to: number, most: number, counter: TokenCounter): Piece[] {
  const tokens = counter.count(text.slice(from, to));
  if (tokens <= most) return [{ from, to, tokens }];
  const middle = codePointAt(text, from + Math.ceil((to - from) / 2));
  if (middle <= from || middle >= to) return [{ from, to, tokens }];
  return [...counted(text, from, middle, most, counter), ...counted(text, middle, to, most, counter)];
}

/** The end of a piece: after a line end or a space in its last quarter if there is one, never inside a code point. */
function endOf(text: string, from: number, size: number): number {
  const latest = from + size;
  if (latest >= text.length) return text.length;
  const earliest = from + Math.ceil((size * 3) / 4);
  for (const separator of ['\n', ' ']) {
    const at = text.slice(earliest, latest).lastIndexOf(separator);
    if (at >= 0) return earliest + at + 1;
  }
  return Math.max(codePointAt(text, latest), codePointAt(text, from + 2));
}

/** The position, or the position before it if it is between the halves of a surrogate pair. */
function codePointAt(text: string, at: number): number {
  const isLow = text.charCodeAt(at) >= 0xdc00 && text.charCodeAt(at) <= 0xdfff;
  const afterHigh = at > 0 && text.charCodeAt(at - 1) >= 0xd800 && text.charCodeAt(at - 1) <= 0xdbff;
  return isLow && afterHigh ? at - 1 : at;
}
