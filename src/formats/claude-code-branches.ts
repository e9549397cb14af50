/**
 * Lines of a Claude Code log that are no longer part of the conversation. A rewind deletes nothing: the new prompt names an
 * earlier line as its parent, and what stood behind that line is a branch that no line takes up again. Parallel calls and
 * hooks fork the chain as well, and abandon nothing: only a prompt beside a prompt tells of a rewind.
 */
import type { Json } from '../conversation/message.js';
import { isFields, textOr, type Fields } from './content.js';

/** Indexes of lines that were rewound, and of lines that repeat one before them. */
export function abandonedLines(lines: readonly Json[]): Set<number> {
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
