import { instantIn } from '../conversation/instant.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import { chatMessages, withCallIds } from './anthropic-blocks.js';
import { render } from './anthropic-render.js';
import { type Fields, isFields, piecesFor, textOr, unitsOf } from './content.js';
import type { Format, Unit } from './format.js';

/**
 * Session logs of Claude Code (`~/.claude/projects/<project>/<session>.jsonl`), a line an item. Lines of type `user` and
 * `assistant` carry Anthropic messages; an answer is written in a line for each of its blocks, under one `message.id`.
 * All other lines (summaries, snapshots, progress, hooks) say nothing to the model, nor do lines that were rewound. Lines of
 * a side chain are the conversation of another agent: they count only where the log holds nothing else, as the logs of
 * subagents do.
 */
export const claudeCode: Format = {
  name: 'claude-code',
  title: 'Claude Code logs',
  contextFormat: 'anthropic',
  normalize: (items, path) =>
    unitsOf(piecesOf(items, path).map(({ items, messages, times }) => ({ items, messages, times }))),
  requestItems(items, messages) {
    const said = piecesFor(piecesOf(items, 'items'), messages);
    if (!said) return render([{ items: null, messages: [...messages] }]).messages;
    const native = said.flatMap((piece) => piece.native);
    return withCallIds(native, messages);
  },
  open(document, layout) {
    if (layout !== 'lines' || !Array.isArray(document) || !document.some(isOwnLine)) return null;
    const id = sessionOf(document);
    return { ...(id === '' ? {} : { id }), items: document };
  },
  bareLayout: 'lines',
};

interface Piece extends Unit {
  /** Its messages as Anthropic's API has them. */
  native: Fields[];
  times: (string | null)[];
}

interface Line {
  /** The message of a line that carries one of this conversation. */
  message: Fields | null;
  id: string;
  at: string | null;
}

function piecesOf(items: readonly Json[], path: string): Piece[] {
  const main = items.some((item) => messageOf(item) && !isSidechain(item));
  const abandoned = abandonedLines(items);
  const lines = items.map((item, index): Line => {
    const isLeftOut = abandoned.has(index) || (main && isSidechain(item));
    const message = isLeftOut ? null : messageOf(item);
    return {
      message,
      id: message?.role === 'assistant' ? textOr((item as { message: Fields }).message.id) : '',
      at: isFields(item) ? instantIn(item.timestamp) : null,
    };
  });
  const pieces: Piece[] = [];
  for (let from = 0; from < items.length;) {
    const to = endOfAnswer(lines, from);
    pieces.push(pieceOf(items, lines, from, to, path));
    from = to;
  }
  return pieces;
}

/** Behind the last line of the answer that begins here. Results of its first calls may stand between its lines. */
function endOfAnswer(lines: readonly Line[], from: number): number {
  const { id } = lines[from]!;
  let to = from + 1;
  if (id === '') return to;
  for (let index = to; index < lines.length; index++) {
    const line = lines[index]!;
    if (line.id === id) to = index + 1;
    else if (line.message && !isResult(line.message)) break;
  }
  return to;
}

function pieceOf(
  items: readonly Json[],
  lines: readonly Line[],
  from: number,
  to: number,
  path: string,
): Piece {
  const native: Fields[] = [];
  const messages: ChatMessage[] = [];
  const times: (string | null)[] = [];
  lines.slice(from, to).forEach(({ message, id, at }, offset) => {
    if (!message) return;
    const read = chatMessages(message, `${path}[${from + offset}].message`);
    const joins = offset > 0 && id !== '';
    if (!joins) {
      native.push(message);
      messages.push(...read);
      times.push(...read.map(() => at));
    } else native[0] = { role: 'assistant', content: [...blocksOf(native[0]!), ...blocksOf(message)] };
  });
  if (native[0]?.role === 'assistant')
    messages.splice(0, 1, ...chatMessages(native[0], `${path}[${from}].message`));
  return { items: items.slice(from, to), messages, times, native };
}

function blocksOf({ content }: Fields): Json[] {
  return Array.isArray(content) ? content : [{ type: 'text', text: content! }];
}

/** What a line says as a message of the API; null for lines that say nothing, broken ones among them. */
function messageOf(line: Json): Fields | null {
  if (!isFields(line) || (line.type !== 'user' && line.type !== 'assistant') || !isFields(line.message))
    return null;
  const { content } = line.message;
  if (typeof content === 'string') return { role: line.type, content };
  if (!Array.isArray(content)) return null;
  const blocks = content.map((block) => (typeof block === 'string' ? { type: 'text', text: block } : block));
  return { role: line.type, content: blocks };
}

const isSidechain = (line: Json): boolean => isFields(line) && line.isSidechain === true;

function isResult({ role, content }: Fields): boolean {
  return (
    role === 'user' &&
    Array.isArray(content) &&
    content.length > 0 &&
    content.every((block) => isFields(block) && block.type === 'tool_result')
  );
}

/** Lines are linked by their uuids, or name their session and what happened in it. */
function isOwnLine(line: Json): boolean {
  if (!isFields(line) || typeof line.type !== 'string') return false;
  if ('parentUuid' in line || 'leafUuid' in line || line.type === 'file-history-snapshot') return true;
  return typeof line.sessionId === 'string' && ('uuid' in line || 'timestamp' in line);
}

/** The logs of subagents bear the session of the agent that started them. */
function sessionOf(lines: readonly Json[]): string {
  const named = lines.filter(isFields).filter(({ sessionId }) => textOr(sessionId) !== '');
  const session = textOr(named[0]?.sessionId);
  const agent = named.every(isSidechain) ? textOr(named[0]?.agentId) : '';
  return agent === '' ? session : `${session}-agent-${agent}`;
}

/**
 * Lines of a Claude Code log that are no longer part of the conversation. A rewind deletes nothing: the new prompt
 * names an earlier line as its parent, and what stood behind that line is a branch that no line takes up again.
 * Parallel calls and hooks fork the chain as well, and abandon nothing: only a prompt beside a prompt tells of a
 * rewind. Indexes of lines that were rewound, and of lines that repeat one before them.
 */
function abandonedLines(lines: readonly Json[]): Set<number> {
  const abandoned = new Set<number>();
  const byUuid = new Map<string, number>();
  lines.forEach((line, index) => {
    const uuid = uuidOf(line);
    if (uuid === '') return;
    const before = byUuid.get(uuid);
    if (before === undefined) byUuid.set(uuid, index);
    else if (sameMessage(line, lines[before]!)) abandoned.add(index);
  });
  const rewound = rewoundPrompts(lines, byUuid, abandoned);
  // Parents stand before their children.
  lines.forEach((_, index) => {
    const parent = parentOf(index, lines, byUuid);
    if (rewound.has(index) || (parent !== undefined && abandoned.has(parent))) abandoned.add(index);
  });
  return abandoned;
}

const uuidOf = (line: Json): string => (isFields(line) ? textOr(line.uuid) : '');
const sameMessage = (one: Json, other: Json): boolean =>
  isFields(one) && isFields(other) && JSON.stringify(one.message) === JSON.stringify(other.message);

/** Prompts in whose place another one was written later: both follow the same line of the conversation. */
function rewoundPrompts(
  lines: readonly Json[],
  byUuid: ReadonlyMap<string, number>,
  repeated: ReadonlySet<number>,
): Set<number> {
  const prompts = new Map<number, number>();
  const rewound = new Set<number>();
  let boundary = -1;
  lines.forEach((line, index) => {
    if (isFields(line) && line.subtype === 'compact_boundary') boundary = index;
    if (!isPrompt(line) || repeated.has(index)) return;
    const anchor = anchorOf(index, lines, byUuid);
    if (anchor === null) return;
    const before = prompts.get(anchor);
    // Logs without links, and what follows a compaction, begin at the root again: nothing was taken back.
    const comparable = anchor >= 0 || (boundary < (before ?? 0) && isAnswered(before, lines));
    if (before !== undefined && comparable) rewound.add(before);
    prompts.set(anchor, index);
  });
  return rewound;
}

/** The line of the conversation that a prompt follows: -1 for the root, null where its parent is in another file. */
function anchorOf(index: number, lines: readonly Json[], byUuid: ReadonlyMap<string, number>): number | null {
  let last = index;
  for (let at = parentOf(index, lines, byUuid); at !== undefined; at = parentOf(at, lines, byUuid)) {
    if (isConversation(lines[at]!)) return at;
    last = at;
  }
  const { parentUuid } = lines[last] as Fields;
  return parentUuid === null ? -1 : null;
}

/** A link to a later line is none: that would be a circle. */
function parentOf(
  index: number,
  lines: readonly Json[],
  byUuid: ReadonlyMap<string, number>,
): number | undefined {
  const line = lines[index]!;
  const parent = isFields(line) ? byUuid.get(textOr(line.parentUuid)) : undefined;
  return parent !== undefined && parent < index ? parent : undefined;
}

const isConversation = (line: Json): boolean =>
  isFields(line) && (line.type === 'user' || line.type === 'assistant') && line.isSidechain !== true;

function isPrompt(line: Json): boolean {
  if (!isFields(line) || !isConversation(line) || line.type !== 'user' || !isFields(line.message))
    return false;
  if (line.isMeta === true || line.isCompactSummary === true) return false;
  const { content } = line.message;
  const texts = Array.isArray(content) ? content : [{ type: 'text', text: content ?? null }];
  return texts.every(
    (block) =>
      isFields(block) && block.type !== 'tool_result' && !/^\[Request interrupted/.test(textOr(block.text)),
  );
}

function isAnswered(prompt: number | undefined, lines: readonly Json[]): boolean {
  const uuid = prompt === undefined ? '' : uuidOf(lines[prompt]!);
  return (
    uuid !== '' &&
    lines.some((line) => isFields(line) && line.type === 'assistant' && line.parentUuid === uuid)
  );
}
