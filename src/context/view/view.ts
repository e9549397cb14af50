/**
 * The context of a session: what the model is sent. A projection of what is stored that is valid for an OpenAI-compatible
 * endpoint at any moment, whatever the log holds: unanswered calls, orphan results, reused ids, empty turns.
 */
import { atOnce, type Steps } from '../../steps.js';
import type { TokenCounter } from '../../tokens/counter.js';
import type { LoggedMessage } from '../../conversation/message.js';
import { showPlain } from './projection.js';
import { TailView } from './tail-view.js';
import { metaOf } from '../../conversation/validate.js';
import type { ContextSource, Head, ViewItem } from './view-types.js';

/**
 * The view in request order: leading system messages, head, tail. In the tail every assistant message with calls is followed directly by one
 * result per call, in call order; results recorded later move up to their call, missing ones are synthetic. Appending messages only adds
 * items at the end, except that a late result replaces its synthetic one.
 */
export function buildView(source: ContextSource, counter: TokenCounter): ViewItem[] {
  return atOnce(viewing(source, counter));
}

/** The same in steps. */
export function* viewing(source: ContextSource, counter: TokenCounter): Steps<ViewItem[]> {
  return [
    ...source.system.filter(({ message }) => !metaOf(message).empty).map(systemItem),
    ...(source.head ? headItems(source.head) : []),
    ...(yield* TailView.items(source, counter)),
  ];
}

function systemItem({ seq, message, tokens }: LoggedMessage): ViewItem {
  const shown = showPlain(message);
  return {
    fromSeq: seq,
    throughSeq: seq,
    message: shown,
    tokens,
    source: 'system',
    group: seq,
    role: message.role,
    tool: null,
  };
}

function headItems({ messages, tokens, carriedSeq }: Head): ViewItem[] {
  return messages.map((message, index) => ({
    fromSeq: 0,
    throughSeq: 0,
    message,
    tokens: tokens[index] ?? 0,
    source:
      carriedSeq !== null && index === messages.length - 1
        ? 'carried'
        : index === 0
          ? 'summarization'
          : 'acknowledgment',
    group: -1 - index,
    role: message.role,
    tool: null,
  }));
}

/** Tokens of a view. */
export function sizeOf(view: readonly ViewItem[]): number {
  return view.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** Tokens of what a view shows of the messages after `seq`. */
export function sizeBeyond(seq: number, view: readonly ViewItem[]): number {
  return sizeOf(view.filter(({ fromSeq }) => fromSeq > seq));
}
