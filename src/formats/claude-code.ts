import { instantIn } from '../conversation/instant.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import { chatMessages, withCallIds } from './anthropic-blocks.js';
import { render } from './anthropic-render.js';
import { type Fields, isFields, piecesFor, textOr, unitsOf } from './content.js';
import type { Format, Unit } from './format.js';

/**
 * Session logs of Claude Code (`~/.claude/projects/<project>/<session>.jsonl`); an item is a line. Lines of type `user` and
 * `assistant` carry Anthropic messages. An answer has one line for each of its blocks, under one `message.id`. All other lines
 * (summaries, snapshots, progress, hooks) and rewound lines stand for no message. Lines of a side chain are the conversation of
 * another agent. They count only if the log contains nothing else, as in the logs of subagents.
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
  /** Its messages in the form of Anthropic's API. */
  native: Fields[];
  times: (string | null)[];
}

interface Line {
  /** The message of the line, if the line belongs to this conversation. */
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

/**
 * Returns the index after the last line of the answer that starts here. Results of its first calls may lie between its lines.
 */
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

/** Returns a line as a message of the API, or null for lines that stand for none, including broken ones. */
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

/**
 * Returns whether a line is one of Claude Code: it has a link to another line, is a file snapshot, or names its session and has
 * a uuid or a timestamp.
 */
function isOwnLine(line: Json): boolean {
  if (!isFields(line) || typeof line.type !== 'string') return false;
  if ('parentUuid' in line || 'leafUuid' in line || line.type === 'file-history-snapshot') return true;
  return typeof line.sessionId === 'string' && ('uuid' in line || 'timestamp' in line);
}

/** Logs of subagents name the session of the agent that started them. */
function sessionOf(lines: readonly Json[]): string {
  const named = lines.filter(isFields).filter(({ sessionId }) => textOr(sessionId) !== '');
  const session = textOr(named[0]?.sessionId);
  const agent = named.every(isSidechain) ? textOr(named[0]?.agentId) : '';
  return agent === '' ? session : `${session}-agent-${agent}`;
}

/**
 * Returns the indexes of lines that no longer belong to the conversation: those that were rewound, and those that repeat an
 * earlier line. A rewind deletes nothing: the new prompt names an earlier line as its parent, and the lines after that parent
 * become a branch that is never continued. Parallel calls and hooks also fork the chain but abandon nothing; only two prompts
 * with the same parent indicate a rewind.
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
  // Parents precede their children.
  lines.forEach((_, index) => {
    const parent = parentOf(index, lines, byUuid);
    if (rewound.has(index) || (parent !== undefined && abandoned.has(parent))) abandoned.add(index);
  });
  return abandoned;
}

const uuidOf = (line: Json): string => (isFields(line) ? textOr(line.uuid) : '');
const sameMessage = (one: Json, other: Json): boolean =>
  isFields(one) && isFields(other) && JSON.stringify(one.message) === JSON.stringify(other.message);

/** Returns prompts that a later prompt replaced: both follow the same line of the conversation. */
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
    // Logs without links, and lines after a compaction, start at the root again; this is not a rewind.
    const comparable = anchor >= 0 || (boundary < (before ?? 0) && isAnswered(before, lines));
    if (before !== undefined && comparable) rewound.add(before);
    prompts.set(anchor, index);
  });
  return rewound;
}

/** Returns the line of the conversation that a prompt follows: -1 for the root, null if its parent is in another file. */
function anchorOf(index: number, lines: readonly Json[], byUuid: ReadonlyMap<string, number>): number | null {
  let last = index;
  for (let at = parentOf(index, lines, byUuid); at !== undefined; at = parentOf(at, lines, byUuid)) {
    if (isConversation(lines[at]!)) return at;
    last = at;
  }
  const { parentUuid } = lines[last] as Fields;
  return parentUuid === null ? -1 : null;
}

/** A link to a later line is ignored, because it would form a cycle. */
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
