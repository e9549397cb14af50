import { validateView } from '../../src/context/view/validity.js';
import type { ViewItem } from '../../src/context/view/view.js';
import type { Check } from './checks.js';
import { holds, same } from './judge.js';
import { callIdsOf, keptOf, resultIdsOf, textOfItem, type Outcome } from './outcome.js';
import { LEADING } from './policy.js';

const list = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);

/** The result of a call as the case has it. */
const original = ({ peer }: Outcome, id: string) =>
  peer.messages.find(({ tool_call_id: answers }) => answers === id);

const isWhole = (outcome: Outcome, id: string) =>
  outcome.after.some(
    ({ message }) => message.tool_call_id === id && message.content === original(outcome, id)?.content,
  );

const inserted = ({ after, offset }: Outcome) =>
  after.filter(({ source, fromSeq }) => (source === 'reduced' || source === 'omitted') && fromSeq > offset);

const pointer = /get_tool_response/;

/** Checks of the content of the resulting context. */
export function violations(items: readonly ViewItem[]): string[] {
  return validateView(items.map(({ message }) => message));
}

export const checks: Record<string, Check> = {
  pairsIntact: ({ after }) => same(violations(after), []),
  summarizerInputPairsIntact: ({ after }) => same(violations(after), []),
  syntheticResultFor: ({ after }, expected) =>
    same(
      after.flatMap(({ source, message }) => (source === 'synthetic' ? [message.tool_call_id] : [])),
      expected,
    ),
  mustContainVerbatim: ({ after }, expected) => {
    const shown = after.map(textOfItem);
    return same(
      list(expected).filter((text) => !shown.some((one) => one.includes(text))),
      [],
    );
  },
  order: ({ after, peer }) => same(textOfItem(after.at(-1)!), peer.config.duringSummarize?.at(-1)?.content),
  mustContainToolCall: ({ after }, expected) =>
    same(
      list(expected).filter((id) => !callIdsOf(after).includes(id)),
      [],
    ),
  mustNotContainToolCall: ({ after }, expected) =>
    same(
      list(expected).filter((id) => callIdsOf(after).includes(id)),
      [],
    ),
  mustContainToolResult: ({ after }, expected) =>
    same(
      list(expected).filter((id) => !resultIdsOf(after).includes(id)),
      [],
    ),
  mustNotContainToolResult: ({ after }, expected) =>
    same(
      list(expected).filter((id) => resultIdsOf(after).includes(id)),
      [],
    ),
  noRole: ({ after }, expected) =>
    holds(
      after.every(({ message }) => message.role !== expected),
      'the role is there',
    ),
  noToolCalls: ({ after }) => same(callIdsOf(after), []),
  wholeCallIds: (outcome, expected) =>
    same(
      list(expected).filter((id) => !isWhole(outcome, id)),
      [],
    ),
  offloadedCallIds: (outcome, expected) =>
    same(
      list(expected).filter((id) => isWhole(outcome, id)),
      [],
    ),
  offloadHasPointer: ({ after }) =>
    holds(
      after.some((item) => pointer.test(textOfItem(item))),
      'nothing points to it',
    ),
  insertedNotes: (outcome, expected) => same(inserted(outcome).length, expected),
  insertedNotesMin: (outcome, expected) =>
    holds(inserted(outcome).length >= Number(expected), `${inserted(outcome).length} are reduced`),
  noteContains: (outcome, expected) => {
    const notes = inserted(outcome).map(textOfItem).join('\n');
    return same(
      list(expected).filter((text) => !notes.includes(text)),
      [],
    );
  },
  idempotent: ({ reducedAgain }) => same(reducedAgain, 0),
  noTruncation: ({ generation }) =>
    holds(generation === null || generation.throughSeq < generation.fromSeq, 'messages were evicted'),
  everyToolResultShorterThan: ({ after }, expected) =>
    holds(
      after.every((item) => item.message.role !== 'tool' || textOfItem(item).length < Number(expected)),
      'a result is as long as before',
    ),
  lastUserMessageKept: ({ after, peer }) => {
    const newest = peer.messages.findLast(({ role }) => role === 'user')?.content;
    return holds(
      after.some(({ message }) => message.content === newest),
      'the newest user message went',
    );
  },
  argument: ({ after }, expected) => {
    const wanted = expected as { callId: string; field: string; equals: string };
    const call = after
      .flatMap(({ message }) => message.tool_calls ?? [])
      .find(({ id }) => id === wanted.callId);
    const given = JSON.parse(call?.function?.arguments ?? '{}') as Record<string, unknown>;
    return same(given[wanted.field], wanted.equals);
  },
  argumentsStayValidJson: ({ after }) => {
    for (const { message } of after)
      for (const call of message.tool_calls ?? []) JSON.parse(call.function?.arguments ?? '{}');
    return null;
  },
  reasoningKeptAt: (outcome, expected) =>
    same(
      keptOf(outcome).filter((index) => outcome.peer.messages[index]?.reasoning !== undefined),
      expected,
    ),
  /** `<summary>` stands for the head; leading messages are ours, and so is what we had to say to go on. */
  effectiveContents: ({ after, peer }, expected) => {
    const own = new Set(peer.messages.map(({ content }) => content));
    const shown = after
      .slice(LEADING)
      .filter(
        ({ source, message }) =>
          source !== 'acknowledgment' && (source !== 'log' || own.has(message.content)),
      )
      .map((item) => (item.source === 'summarization' ? '<summary>' : textOfItem(item)));
    return same(shown, expected);
  },
};
