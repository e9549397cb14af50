/**
 * Divides messages into groups. An assistant message with calls and all messages up to the last result of these calls are one
 * group; every other message is a group by itself. Results are paired with calls by occurrence, never by id alone: transcripts
 * reuse ids, within a turn and across turns.
 */
import { atOnce, type Steps } from '../steps.js';
import type { ChatMessage, MessageMeta } from './message.js';

/** Consecutive messages that may never be separated. Indexes into the given metas; `to` is exclusive. */
interface Group {
  from: number;
  to: number;
}

export interface Grouping {
  /** A partition of all indexes, in order. */
  groups: Group[];
  /** Index of the message that answers a call, or null; by message index, then by call number. */
  answeredBy: (number | null)[][];
  /**
   * Indexes of `tool` and `function` messages that answer no call: repeated, before their call, with an unknown id, or without
   * one.
   */
  orphans: Set<number>;
}

/** Calls of one assistant message that share a key, in call order. The first `answered` of them have a result. */
interface OpenCalls {
  message: number;
  calls: number[];
  answered: number;
}

/**
 * Pairs every result with an unanswered call that has its id (for role `function`: its name). If several assistant messages
 * have such a call, the latest one is answered; within that message, calls are answered in order. Then divides the list into
 * groups. Later messages never change earlier pairs.
 */
export function groupMessages(metas: readonly MessageMeta[]): Grouping {
  return atOnce(grouping(metas));
}

/** {@link groupMessages} in steps. */
export function* grouping(metas: readonly MessageMeta[]): Steps<Grouping> {
  const open = new Map<string, OpenCalls[]>();
  const answeredBy: (number | null)[][] = [];
  const orphans = new Set<number>();
  const reach: number[] = [];

  for (const [index, meta] of metas.entries()) {
    yield;
    reach.push(index);
    answeredBy.push(meta.calls.map(() => null));
    if (meta.role === 'tool' || meta.role === 'function') {
      const call = takeOpenCall(open, meta);
      if (call === null) {
        orphans.add(index);
      } else {
        answeredBy[call.message]![call.call] = index;
        reach[call.message] = index;
      }
    }
    meta.calls.forEach((link, call) => {
      const key = link.id === null ? `name:${link.name}` : `id:${link.id}`;
      const stack = open.get(key) ?? [];
      open.set(key, stack);
      const latest = stack.at(-1);
      if (latest?.message === index) latest.calls.push(call);
      else stack.push({ message: index, calls: [call], answered: 0 });
    });
  }
  return { groups: partition(reach), answeredBy, orphans };
}

function takeOpenCall(
  open: Map<string, OpenCalls[]>,
  meta: MessageMeta,
): { message: number; call: number } | null {
  if (meta.answers === null) return null;
  const stack = open.get(meta.role === 'function' ? `name:${meta.answers}` : `id:${meta.answers}`);
  const latest = stack?.at(-1);
  const call = latest?.calls[latest.answered];
  if (stack === undefined || latest === undefined || call === undefined) return null;
  latest.answered += 1;
  if (latest.answered === latest.calls.length) stack.pop();
  return { message: latest.message, call };
}

/** `reach[i]` is the last index that must stay with `i`; overlapping spans become one group. */
function partition(reach: readonly number[]): Group[] {
  const groups: Group[] = [];
  let from = 0;
  let last = 0;
  reach.forEach((end, index) => {
    last = Math.max(last, end);
    if (index !== last) return;
    groups.push({ from, to: index + 1 });
    from = index + 1;
    last = index + 1;
  });
  return groups;
}

/** Messages that an agent platform appends together. Indexes count from 0, `to` is exclusive. */
export interface TranscriptTurn {
  from: number;
  to: number;
}

/**
 * Divides a transcript into turns as its platform would append them: a turn begins at each user message that does not follow
 * another one, and at each assistant message. Tool results belong to the turn of their calls, leading system messages to the
 * first turn.
 */
export function cutTurns(messages: readonly ChatMessage[]): TranscriptTurn[] {
  const first = messages.findIndex(({ role }) => role !== 'system' && role !== 'developer');
  const starts = [0];
  for (let index = first + 1; first >= 0 && index < messages.length; index++) {
    const role = messages[index]?.role;
    if (role === 'assistant' || (role === 'user' && messages[index - 1]?.role !== 'user')) starts.push(index);
  }
  return starts.map((from, turn) => ({ from, to: starts[turn + 1] ?? messages.length }));
}
