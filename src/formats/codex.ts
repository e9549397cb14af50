import { instantIn } from '../conversation/instant.js';
import type { Json } from '../conversation/message.js';
import { fieldsAt, isFields, textOr, type Fields } from './content.js';
import { rolledBackLines } from './codex-rollback.js';
import type { FileLayout, Format, Opened, Unit } from './format.js';
import { piecesFor } from './log-pieces.js';
import { areItems } from './openai-responses.js';
import { readItem, unitsOfItems, type Meaning } from './responses-items.js';
import { renderResponses, withCallIds } from './responses-render.js';

/**
 * Rollouts of the Codex CLI (`~/.codex/sessions/…/rollout-*.jsonl`; codex-rs/protocol, `RolloutItem`): lines of
 * `{timestamp, type, payload}`. The conversation is its `response_item`s; events, contexts of turns and Codex's own
 * compactions are kept beside them, for the items they tell of stand in the file themselves, and so are turns that were
 * rolled back. Older files hold bare items after a first line with id and timestamp.
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

/** Snapshots of the working tree are no part of a request. */
const ownItems = /^(?:ghost_snapshot|other)$/;

function itemOf(line: Fields): Json | null {
  const item = 'payload' in line ? (line.type === 'response_item' ? line.payload! : null) : line;
  const isItem = item !== line || (line.type !== undefined && line.record_type === undefined);
  return isItem && !(isFields(item) && ownItems.test(textOr(item.type))) ? item : null;
}

function meaningOf(value: Json, path: string): Meaning {
  const line = fieldsAt(value, path);
  const item = itemOf(line);
  if (item === null && line.type === 'response_item') return null;
  return item === null ? null : readItem(item, item === line ? path : `${path}.payload`);
}

/** Fields that are null on disk are left out of requests. */
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
