/**
 * Writes the record of a request in `journal` mode: the messages unchanged, each after a mark that their authors cannot
 * predict.
 */
import { type ChatMessage, isMedia, type LoggedMessage } from '../../conversation/message.js';
import { argumentsOf, nameOf } from '../../conversation/render.js';
import { transcriptOf, type ChunkRef } from './chunk.js';

/**
 * Returns the messages of a chunk. A message of which the chunk contains only a part is shown inside its label, as in other
 * modes.
 */
export function recordOf(chunk: ChunkRef, messages: readonly LoggedMessage[], mark: string): string {
  const toolNames = new Map<string, string>();
  const hours = hoursIn(chunk, messages);
  const shown: string[] = [];
  for (const logged of messages) {
    const { message, seq } = logged;
    if (seq >= chunk.fromSeq && seq <= chunk.throughSeq) {
      const isWhole =
        (seq !== chunk.fromSeq || chunk.fromChar === 0) &&
        (seq !== chunk.throughSeq || chunk.throughChar === null);
      const text = isWhole
        ? textOf(message, seq)
        : transcriptOf({ ...chunk, ...partIn(chunk, seq) }, [logged]);
      const speaker = speakerOf(message, toolNames.get(message.tool_call_id ?? ''));
      const hour = hours.get(seq);
      shown.push(`${mark}${seq} ${speaker}${hour === undefined ? '' : ` ${hour}`}\n${text}`);
    }
    for (const call of message.tool_calls ?? []) if (call.id) toolNames.set(call.id, nameOf(call));
  }
  return shown.join('\n');
}

/**
 * Returns the times in the marks, by seq: for the first message of the chunk that has a time, and for each message whose hour
 * differs from the hour before. A time is written `2023-05-07 13h`, in UTC.
 */
export function hoursIn(
  { fromSeq, throughSeq }: Pick<ChunkRef, 'fromSeq' | 'throughSeq'>,
  messages: readonly { seq: number; at?: string }[],
): Map<number, string> {
  const shown = new Map<number, string>();
  let last = '';
  for (const { seq, at } of messages) {
    if (at === undefined || seq < fromSeq || seq > throughSeq) continue;
    const hour = `${at.slice(0, 10)} ${at.slice(11, 13)}h`;
    if (hour !== last) shown.set(seq, hour);
    last = hour;
  }
  return shown;
}

/** Maximum number of following messages shown, and of characters of each. */
export const MOST_FOLLOWING = 3;
const FOLLOWING_CHARACTERS = 200;

/** Beginnings of the messages that stay in the context. */
export function followingOf(messages: readonly LoggedMessage[], mark: string): string {
  return messages
    .slice(0, MOST_FOLLOWING)
    .map(({ seq, message }) => {
      const text = textOf(message, seq).replace(/\s+/g, ' ');
      return `${mark}${seq} ${speakerOf(message, undefined)}: ${[...text].slice(0, FOLLOWING_CHARACTERS).join('')}`;
    })
    .join('\n');
}

function speakerOf({ role, name }: ChatMessage, toolName: string | undefined): string {
  const called = name ?? toolName;
  return called === undefined ? role : `${role} ${called.replace(/[\s<>]+/g, '_').slice(0, 80)}`;
}

function partIn(
  chunk: ChunkRef,
  seq: number,
): Pick<ChunkRef, 'fromSeq' | 'fromChar' | 'throughSeq' | 'throughChar'> {
  return {
    fromSeq: seq,
    fromChar: seq === chunk.fromSeq ? chunk.fromChar : 0,
    throughSeq: seq,
    throughChar: seq === chunk.throughSeq ? chunk.throughChar : null,
  };
}

function textOf(message: ChatMessage, seq: number): string {
  const { content, tool_calls: calls = [], function_call: call } = message;
  const parts =
    typeof content === 'string'
      ? [content]
      : (content ?? []).map((part, index) => partText(part, seq, index));
  return [
    ...parts,
    ...(typeof message['refusal'] === 'string' ? [`[refusal] ${message['refusal']}`] : []),
    ...(calls ?? []).map((one) => `[call ${nameOf(one)} ${argumentsOf(one)}]`),
    ...(call ? [`[call ${call.name} ${call.arguments}]`] : []),
  ]
    .filter((text) => text !== '')
    .join('\n');
}

function partText(
  part: Exclude<ChatMessage['content'], string | null | undefined>[number],
  seq: number,
  index: number,
): string {
  if (typeof part.text === 'string') return part.text;
  if (isMedia(part)) return `[${part.type}, part ${index + 1} of message ${seq}]`;
  return JSON.stringify(part).slice(0, 2_000);
}
