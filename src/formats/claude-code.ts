import { instantIn } from '../conversation/instant.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import { chatMessages, withCallIds } from './anthropic-blocks.js';
import { render } from './anthropic-render.js';
import { abandonedLines } from './claude-code-branches.js';
import { isFields, textOr, unitsOf, type Fields } from './content.js';
import type { Format, Unit } from './format.js';
import { piecesFor } from './log-pieces.js';

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
