/**
 * What a recording of Gemini CLI says in the end. The file is appended to: a record that is written again under its id
 * replaces the one before, `{"$rewindTo": id}` takes back that record and all behind it, and `{"$set": {"messages": […]}}`
 * is a checkpoint, the whole conversation as the CLI holds it then
 * (packages/core/src/services/chatRecordingService.ts, loadConversationRecord and updateMessagesFromHistory).
 */
import type { Json } from '../conversation/message.js';
import { isFields, textOr, type Fields } from './content.js';
import { readObject } from './gemini-parts.js';

/** A record that counts, and the items from the first that wrote it to the last. `to` is inclusive. */
export interface Entry {
  record: Fields;
  path: string;
  from: number;
  to: number;
}

export const isRecord = (value: Json | undefined): value is Fields =>
  isFields(value) && typeof value.type === 'string' && 'id' in value;

/** The records of a conversation in its order. */
export function conversationOf(items: readonly Json[], path: string): Entry[] {
  const conversation = new Conversation();
  items.forEach((item, index) => {
    if (!isFields(item)) return;
    const at = `${path}[${index}]`;
    if (typeof item.$rewindTo === 'string') conversation.rewind(item.$rewindTo);
    else if (isRecord(item)) conversation.write({ record: item, path: at, from: index, to: index });
    else {
      const turns = checkpointOf(item).map((record, turn): Entry => ({
        ...{ record, from: index, to: index },
        path: `${at}.$set.messages[${turn}]`,
      }));
      if (turns.length > 0) conversation.become(restored(conversation.entries, turns));
    }
  });
  return conversation.entries;
}

class Conversation {
  entries: Entry[] = [];
  private places = new Map<Json, number>();

  write(entry: Entry): void {
    const at = this.places.get(entry.record.id!);
    if (at !== undefined) this.entries[at] = { ...entry, from: this.entries[at]!.from };
    else {
      this.places.set(entry.record.id!, this.entries.length);
      this.entries.push(entry);
    }
  }

  /** As the CLI has it: an id that it does not know takes back everything. */
  rewind(id: string): void {
    this.become(this.entries.slice(0, this.places.get(id) ?? 0));
  }

  become(entries: Entry[]): void {
    this.entries = entries;
    this.places = new Map(entries.map(({ record }, index) => [record.id!, index]));
  }
}

function checkpointOf(item: Json): Fields[] {
  const set = isFields(item) ? item.$set : undefined;
  return isFields(set) && Array.isArray(set.messages) ? set.messages.filter(isRecord) : [];
}

/**
 * The conversation after a checkpoint. What the CLI summarized away to make room stands in the file itself and stays; its
 * summary does not count beside it. Otherwise (a conversation that was loaded, or shortened) the checkpoint is all there
 * is. Records keep the content that they were written with: checkpoints hold it with long results masked.
 */
function restored(entries: readonly Entry[], turns: readonly Entry[]): Entry[] {
  const known = new Map(entries.map((entry) => [entry.record.id, entry]));
  const answered = new Set([...entries, ...turns].flatMap(({ record }) => answeredIds(record)));
  const said = turns.filter(({ record }) => known.has(record.id) || !onlyAnswers(record, answered));
  const isNew = ({ record }: Entry): boolean => !known.has(record.id);
  const [first] = said;
  const summarized =
    first && isNew(first) && (!said.every(isNew) || /<state_snapshot>/.test(JSON.stringify(first.record)));
  const updated = (entry: Entry): Entry => {
    const before = known.get(entry.record.id);
    if (!before) return entry;
    const completes = answeredIds(entry.record).length > answeredIds(before.record).length;
    return completes ? { ...entry, from: before.from } : before;
  };
  if (!summarized) return said.map(updated);
  const present = new Map(said.map((entry) => [entry.record.id, entry]));
  return entries.map((entry) => updated(present.get(entry.record.id) ?? entry));
}

/** Ids of the calls whose results a record holds. */
export function answeredIds({ toolCalls }: Fields): string[] {
  if (!Array.isArray(toolCalls)) return [];
  return toolCalls.flatMap((call) => (isFields(call) && call.result ? [textOr(call.id)] : []));
}

/** Whether it holds nothing but responses that the records of their calls have: checkpoints have them as turns, too. */
function onlyAnswers({ content }: Fields, answered: ReadonlySet<string>): boolean {
  const parts = Array.isArray(content) ? content : [];
  return parts.length > 0 && parts.every((part) => isAnswer(part, answered));
}

export function isAnswer(part: Json, answered: ReadonlySet<string>): boolean {
  const response = isFields(part) ? readObject(part, 'functionResponse') : undefined;
  return response !== undefined && answered.has(textOr(response.id));
}
