import { instantIn } from '../conversation/instant.js';
import type { Json } from '../conversation/message.js';
import { type Fields, fieldsAt, isFields, piecesFor, textOr } from './content.js';
import type { FileLayout, Format, Opened, Unit } from './format.js';
import { areItems } from './openai-responses.js';
import { type Meaning, readItem, unitsOfItems } from './responses-items.js';
import { renderResponses, withCallIds } from './responses-render.js';

/**
 * Rollouts of the Codex CLI (`~/.codex/sessions/…/rollout-*.jsonl`; codex-rs/protocol, `RolloutItem`): lines of `{timestamp,
 * type, payload}`. The conversation consists of the `response_item`s. Other lines are kept but stand for no message. These are
 * events, contexts of turns and Codex's own compactions, whose items the file contains anyway, and turns that were rolled back.
 * Older files contain bare items after a first line with id and timestamp.
 */
export const codex: Format = {
  name: 'codex',
  title: 'Codex rollout',
  contextFormat: 'openai-responses',
  normalize: unitsAt,
  requestItems(items, messages) {
    const rolledBack = rolledBackLines(items, itemOf);
    const standing = items.filter((_, index) => !rolledBack.has(index));
    const said = piecesFor(unitsAt(standing, 'items'), messages);
    if (!said) return renderResponses([{ items: null, messages: [...messages] }]).messages;
    const own = said.flatMap((unit) => unit.items);
    return withCallIds(own.flatMap(payloadOf), messages);
  },
  open,
  bareLayout: 'lines',
};

function unitsAt(items: readonly Json[], path: string): Unit[] {
  const rolledBack = rolledBackLines(items, itemOf);
  return unitsOfItems(
    items.map((item, index) => ({
      item,
      meaning: rolledBack.has(index) ? null : meaningOf(item, `${path}[${index}]`),
      at: isFields(item) ? instantIn(item.timestamp) : null,
    })),
  );
}

/** Items that no request contains: snapshots of the working tree, and items of a type that Codex did not know (`other`). */
const leftOut = /^(?:ghost_snapshot|other)$/;

function itemOf(line: Fields): Json | null {
  const item = 'payload' in line ? (line.type === 'response_item' ? line.payload! : null) : line;
  const isItem = item !== line || (line.type !== undefined && line.record_type === undefined);
  return isItem && !(isFields(item) && leftOut.test(textOr(item.type))) ? item : null;
}

function meaningOf(value: Json, path: string): Meaning {
  const line = fieldsAt(value, path);
  const item = itemOf(line);
  if (item === null && line.type === 'response_item') return null;
  return item === null ? null : readItem(item, item === line ? path : `${path}.payload`);
}

/** Fields that are null in the file are omitted in requests. */
function payloadOf(line: Json): Json[] {
  const item = isFields(line) ? itemOf(line) : null;
  if (!isFields(item ?? undefined)) return [];
  return [Object.fromEntries(Object.entries(item as Fields).filter(([, value]) => value !== null))];
}

function open(document: Json, layout: FileLayout): Opened | null {
  if (layout !== 'lines' || !Array.isArray(document) || !document.every((line) => isFields(line)))
    return null;
  const [first] = document;
  if (!first) return null;
  const meta = document.find(({ type }) => type === 'session_meta')?.payload;
  const id = isFields(meta) ? textOr(meta.id) : textOr(first.id);
  const rollout = document.every(({ type, payload }) => typeof type === 'string' && isFields(payload));
  const known = document.some(({ type }) => lineTypes.test(textOr(type)));
  if (!(rollout && known) && !isOlder(document)) return null;
  return { ...(id === '' ? {} : { id }), items: document };
}

const lineTypes = /^(?:session_meta|response_item|event_msg|turn_context|compacted)$/;

function isOlder([first, ...rest]: readonly Fields[]): boolean {
  const meta = first?.type === undefined && Boolean(textOr(first?.id)) && Boolean(textOr(first?.timestamp));
  const items = rest.filter(({ record_type: state }) => state === undefined);
  return meta && items.length > 0 && areItems(items);
}

/**
 * Returns the indexes of lines whose items were rolled back. `thread_rolled_back` with `num_turns` drops the last remaining
 * turns, each from the user message that started it; messages that Codex added before that message are dropped with it
 * (codex-rs/core/src/context_manager/history.rs, drop_last_n_user_turns). `itemOf` returns the item of a line, or null for
 * events.
 */
function rolledBackLines(lines: readonly Json[], itemOf: (line: Fields) => Json | null): Set<number> {
  const standing: { index: number; item: Fields }[] = [];
  const all = new Set<number>();
  lines.forEach((line, index) => {
    if (!isFields(line)) return;
    const turns = rolledBackTurns(line);
    const item = itemOf(line);
    if (turns > 0)
      for (const { index: dropped } of standing.splice(cutBefore(standing, turns))) all.add(dropped);
    else if (isFields(item ?? undefined)) standing.push({ index, item: item as Fields });
  });
  return all;
}

function rolledBackTurns({ type, payload }: Fields): number {
  if (type !== 'event_msg' || !isFields(payload) || payload.type !== 'thread_rolled_back') return 0;
  return typeof payload.num_turns === 'number' ? payload.num_turns : 0;
}

function cutBefore(standing: readonly { item: Fields }[], turns: number): number {
  const starts = standing.flatMap(({ item }, index) => (beginsTurn(item) ? [index] : []));
  const [first] = starts;
  if (first === undefined) return standing.length;
  let cut = starts.at(-turns) ?? first;
  while (cut > first && isContext(standing[cut - 1]!.item)) cut -= 1;
  return cut;
}

const beginsTurn = (item: Fields): boolean => item.role === 'user' && !isContext(item);

/** Messages that Codex writes as user or developer, recognised by its markers. */
const contextual =
  /^\s*(?:# AGENTS\.md instructions|<(?:environment_context|user_instructions|skill|user_shell_command|turn_aborted|subagents?|subagent_notification|hook_prompt)\b)/i;

function isContext({ role, content }: Fields): boolean {
  if (role === 'developer') return true;
  if (role !== 'user') return false;
  if (!Array.isArray(content)) return contextual.test(textOr(content));
  return content.some((part) => isFields(part) && contextual.test(textOr(part.text)));
}
