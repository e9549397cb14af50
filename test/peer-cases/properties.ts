/** Properties after every replay, whatever indexes the other system expects. */
import type { Conversation } from '../../src/compaction/in-memory/conversation.js';
import type { Generation } from '../../src/compaction/in-memory/generation.js';
import { metaOf } from '../../src/conversation/validate.js';
import { isFailure } from '../../src/errors.js';
import { violations } from './checks-content.js';
import { textOfItem, type Outcome } from './outcome.js';

/** Every violation as a sentence; the list must be empty. */
export function violatedProperties({ peer, conversation, ...outcome }: Outcome): string[] {
  const { before, after, failure, generation } = outcome;
  const faults = [...violations(before), ...violations(after)];
  if (conversation === null) return faults;
  const scripted = /^(throws|returns:\s*$)/.test(peer.config.summarizer ?? '');
  if (!scripted && failure !== null && !isFailure(failure, 'Budget.Unreachable'))
    faults.push(`fails with ${String(failure)}`);
  if (scripted && outcome.asked.length === 0) faults.push('the failure of the case was never met');
  if (peer.config.duringSummarize && generation === null)
    faults.push('nothing was committed beside the append');
  if (outcome.due !== undefined && outcome.triggered !== null && outcome.due !== outcome.triggered)
    faults.push(`due is ${outcome.due}, a trigger is met ${outcome.triggered}`);
  if (failure !== null && generation !== null) faults.push('a failed pass has committed something');
  return [
    ...faults,
    ...replayedOtherwise(conversation),
    ...conversation.generations.flatMap(unread),
    ...withoutNewestUserMessage(conversation),
    ...overBudget(conversation),
  ];
}

/** Archive parts in order, then the tail: every original in exactly one place. */
function replayedOtherwise(conversation: Conversation): string[] {
  const replayed = conversation.replay();
  const { log } = conversation;
  if (replayed.length !== log.length) return [`${replayed.length} of ${log.length} messages are replayed`];
  return log.flatMap(({ seq, message }, index) =>
    JSON.stringify(replayed[index]) === JSON.stringify(message)
      ? []
      : [`message ${seq} is not replayed as it was`],
  );
}

/** Each evicted message was read once, whole or in pieces, or is named with the reason. */
function unread({ generation, fromSeq, throughSeq, coverage, reason }: Generation): string[] {
  if (reason === 'restore') return [];
  const faults: string[] = [];
  for (let seq = fromSeq; seq <= throughSeq; seq++) {
    const ranges = coverage.filter((range) => range.fromSeq <= seq && seq <= range.throughSeq);
    const told = ranges.length === 1 && (ranges[0]?.how !== 'withheld' || Boolean(ranges[0].reason));
    if (!told)
      faults.push(`generation ${generation} evicts message ${seq} with ${ranges.length} entries of coverage`);
  }
  return faults;
}

function withoutNewestUserMessage(conversation: Conversation): string[] {
  const newest = conversation.log.findLast(
    ({ message }) => message.role === 'user' && !metaOf(message).empty,
  );
  if (newest === undefined) return [];
  const { items } = conversation.context(Infinity);
  const shown = items.some(
    ({ fromSeq, source, message }) =>
      (fromSeq === newest.seq || source === 'carried') &&
      JSON.stringify(message.content) === JSON.stringify(newest.message.content),
  );
  return shown || items.some((item) => textOfItem(item) === newest.message.content)
    ? []
    : [`the newest user message ${newest.seq} is not shown`];
}

function overBudget(conversation: Conversation): string[] {
  try {
    const { tokens } = conversation.context();
    return tokens <= conversation.limits.budget ? [] : [`${tokens} tokens of ${conversation.limits.budget}`];
  } catch (error) {
    return isFailure(error, 'Budget.Unreachable') ? [] : [String(error)];
  }
}
