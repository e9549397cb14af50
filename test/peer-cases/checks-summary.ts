/** Checks of the summarizer's requests, answers and failures. */
import type { Check } from './checks.js';
import { holds, same } from './judge.js';
import { evictedOf, textOfItem, type Asked } from './outcome.js';

const textOf = (asked: readonly Asked[]) => asked.map(({ text }) => text).join('\n');

/** Openings and endings of the transcript's own delimiter in one request. */
const delimiters = (text: string) =>
  [/<transcript\b/g, /<\/transcript\b/g].map((tag) => [...text.matchAll(tag)].length);

export const checks: Record<string, Check> = {
  summarizerCalls: ({ asked }, expected) => same(asked.length, expected),
  summarizerCallsMin: ({ asked }, expected) =>
    holds(asked.length >= Number(expected), `${asked.length} calls`),
  'summarizerInput.contains': ({ asked }, expected) => {
    const all = textOf(asked);
    return same(
      (expected as string[]).filter((text) => !all.includes(text)),
      [],
    );
  },
  'summarizerInput.excludes': ({ asked }, expected) => {
    const all = textOf(asked);
    return same(
      (expected as string[]).filter((text) => all.includes(text)),
      [],
    );
  },
  /** In each request. */
  'summarizerInput.delimiterOccursOnce': ({ asked }) =>
    same(
      asked.map(({ text }) => delimiters(text)),
      asked.map(() => [1, 1]),
    ),
  summarizerPromptMentionsPreviousSummary: ({ asked }) =>
    holds(
      asked.some(({ text }) => /previous_snapshot|older material/.test(text)),
      'it is not spoken of',
    ),
  // Behind it stand words of the record; see pass.ts.
  summaryEquals: ({ conversation }, expected) =>
    same(conversation?.generations.at(-1)?.snapshot?.split('\n- ')[0], expected),
  summaryFirst: ({ after }) =>
    holds(
      after.find(({ source }) => source !== 'system')?.source === 'summarization',
      'something else comes first',
    ),
  summaryOffset: ({ after, offset }, expected) =>
    same(after.findIndex(({ source }) => source === 'summarization') - offset, expected),
  headKept: ({ after, peer }, expected) => {
    const head = after.flatMap((item) =>
      item.source === 'summarization' ? textOfItem(item).split(/[\n<>]/) : [],
    );
    const missing = (expected as number[]).filter(
      (index) => !head.some((line) => line.includes(String(peer.messages[index]?.content))),
    );
    return same(missing, []);
  },
  summaryCount: ({ after }, expected) =>
    same(after.filter(({ source }) => source === 'summarization').length, expected),
  historyUnchanged: ({ before, after, conversation, offset, peer }) => {
    const replayed = conversation
      ?.replay()
      .slice(offset, offset + peer.messages.length)
      .map(({ content }) => content);
    return same([after, replayed], [before, peer.messages.map(({ content }) => content)]);
  },
  noErrorTextInHistory: ({ after }) =>
    holds(!after.some((item) => /error/i.test(textOfItem(item))), 'an error stands in the context'),
  noPlaceholderSummary: ({ generation }) =>
    holds(generation?.snapshot?.startsWith('- So far.\n') === true, `the summary is ${generation?.snapshot}`),
  summaryHasNoArchivePointer: ({ after }) =>
    holds(
      !after.some(
        (item) => item.source === 'summarization' && /in the archive, word for word/.test(textOfItem(item)),
      ),
      'it points to the archive',
    ),
  summaryMustCarryFacts: ({ after }, expected) => {
    const head = after
      .filter(({ source }) => source === 'summarization')
      .map(textOfItem)
      .join('\n');
    return same(
      (expected as string[]).filter((fact) => !new RegExp(`\\b${fact}\\b`).test(head)),
      [],
    );
  },
  /** From the generation to its messages, and from each message to the one generation that evicted it. */
  bidirectionalLinks: (outcome) => {
    const { generation, conversation } = outcome;
    const covered = (generation?.coverage ?? []).flatMap(({ fromSeq, throughSeq }) =>
      Array.from({ length: throughSeq - fromSeq + 1 }, (_, number) => fromSeq + number - outcome.offset - 1),
    );
    const back = evictedOf(outcome).map(
      (index) =>
        conversation?.generations.filter(
          ({ fromSeq, throughSeq }) =>
            fromSeq <= index + outcome.offset + 1 && index + outcome.offset + 1 <= throughSeq,
        ).length,
    );
    return same([covered.filter((index) => index >= 0), back], [evictedOf(outcome), back.map(() => 1)]);
  },
  recordedUsage: ({ generation }, expected) => {
    const { input, output } = expected as { input: number; output: number };
    const calls = generation?.calls ?? [];
    const total = (field: 'inputTokens' | 'outputTokens') =>
      calls.reduce((sum, call) => sum + call[field], 0);
    return same([total('inputTokens'), total('outputTokens')], [input, output]);
  },
};
