import type { Conversation } from '../../src/compaction/in-memory/conversation.js';
import type { Generation } from '../../src/compaction/in-memory/generation.js';
import type { ViewItem } from '../../src/context/view/view.js';
import { groupMessages } from '../../src/conversation/groups.js';
import type { MessageMeta } from '../../src/conversation/message.js';
import { metaOf } from '../../src/conversation/validate.js';
import type { PalimpsestError } from '../../src/errors.js';
import type { PeerCase } from './case.js';

/** What one replay showed, in the terms of the cases: indexes into the case's own messages. */
export interface Asked {
  kind: string;
  text: string;
}

export interface Outcome {
  peer: PeerCase;
  /** Messages of the log before the case's first one. */
  offset: number;
  /** The reason why the configuration was refused. */
  refused: PalimpsestError | null;
  /** A trigger is met; null where the case asks none. */
  triggered: boolean | null;
  conversation: Conversation | null;
  before: ViewItem[];
  after: ViewItem[];
  /** Committed for the case itself; null: nothing was. */
  generation: Generation | null;
  failure: unknown;
  /** The requests to the summarizer for the case. */
  asked: Asked[];
  /** The cut that was asked for directly. */
  cut?: number;
  safe?: boolean;
  /** The conversation says that a compaction is due. */
  due?: boolean;
  /** Messages that became shorter without a compaction; those that a second try would shorten still. */
  reduced?: number;
  reducedAgain?: number;
  safeCuts?: number[];
}

export function blank(peer: PeerCase): Outcome {
  const nothing = { conversation: null, before: [], after: [], generation: null, failure: null, asked: [] };
  return { peer, offset: 0, refused: null, triggered: null, ...nothing };
}

/** Sizes and links of the case's messages, each of one token unless told otherwise. */
export function metasOf(peer: PeerCase, tokens: (index: number) => number = () => 1): MessageMeta[] {
  return peer.messages.map((message, index) => ({
    ...metaOf(message),
    seq: index + 1,
    tokens: tokens(index),
    at: 0,
  }));
}

/** Groups of the case's messages, as indexes. */
export function groupsOf(peer: PeerCase): number[][] {
  return groupMessages(metasOf(peer)).groups.map(({ from, to }) =>
    Array.from({ length: to - from }, (_, number) => from + number),
  );
}

/** Index of the first message that was not evicted; 0 if none was. */
export function cutOf({ cut, generation, offset }: Outcome): number {
  return cut ?? (generation ? Math.max(0, generation.throughSeq - offset) : 0);
}

/** Messages of the case that stand in the context themselves, whole: system messages and tail. */
export function keptOf(outcome: Outcome): number[] {
  if (outcome.cut !== undefined)
    return outcome.peer.messages.map((_, index) => index).filter((index) => index >= (outcome.cut ?? 0));
  return outcome.after
    .filter(({ source }) => source === 'log' || source === 'system' || source === 'orphan')
    .map(({ fromSeq }) => fromSeq - outcome.offset - 1)
    .filter((index) => index >= 0)
    .toSorted((a, b) => a - b);
}

export function evictedOf({ generation, offset }: Outcome): number[] {
  if (!generation) return [];
  const indexes: number[] = [];
  for (let seq = generation.fromSeq; seq <= generation.throughSeq; seq++)
    if (seq > offset) indexes.push(seq - offset - 1);
  return indexes;
}

export function textOfItem({ message }: ViewItem): string {
  const { content } = message;
  return typeof content === 'string' ? content : (content ?? []).map(({ text }) => text ?? '').join('\n');
}

export const callIdsOf = (items: readonly ViewItem[]): string[] =>
  items.flatMap(({ message }) => (message.tool_calls ?? []).map(({ id }) => id));

export const resultIdsOf = (items: readonly ViewItem[]): string[] =>
  items.flatMap(({ message }) => (message.role === 'tool' ? [message.tool_call_id ?? ''] : []));
