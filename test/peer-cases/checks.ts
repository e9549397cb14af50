/** One check for each key of a case's `expect`. A check returns the deviation, or null. */
import { isFailure } from '../../src/errors.js';
import { checks as aboutContent } from './checks-content.js';
import { checks as aboutSummary } from './checks-summary.js';
import type { PeerCase } from './case.js';
import { holds, same } from './judge.js';
import { cutOf, evictedOf, groupsOf, keptOf, textOfItem, type Outcome } from './outcome.js';
import { LEADING } from './policy.js';

/** `expected` is the value of the key. */
export type Check = (outcome: Outcome, expected: unknown) => string | null;

/** Assumptions and remarks of a case; its other keys are assertions. */
const preconditions = new Set(['ifTokensAfter', 'ifSummarizable', 'notes']);

const numbers = (value: unknown): number[] => (Array.isArray(value) ? value.map(Number) : []);

/** Something was evicted or became shorter. */
function changed({ generation, reduced = 0 }: Outcome): boolean {
  return generation !== null || reduced > 0;
}

const about: Record<string, Check> = {
  triggered: ({ triggered }, expected) => same(triggered, expected),
  mustReduce: ({ triggered }, expected) => same(triggered, expected),
  compacted: (outcome, expected) => same(changed(outcome), expected),
  cutIndex: (outcome, expected) => same(cutOf(outcome), expected),
  absoluteCutIndex: (outcome, expected) => same(cutOf(outcome), expected),
  keptIndices: (outcome, expected) => same(keptOf(outcome), expected),
  summarizedIndices: (outcome, expected) => same(evictedOf(outcome), expected),
  hiddenCount: (outcome, expected) => same(evictedOf(outcome).length, expected),
  markerInserted: ({ generation }, expected) => same(Boolean(generation?.head), expected),
  keptContents: ({ peer, ...outcome }, expected) =>
    same(
      keptOf({ peer, ...outcome }).map((index) => peer.messages[index]?.content),
      expected,
    ),
  archivedContents: ({ peer, ...outcome }, expected) =>
    same(
      evictedOf({ peer, ...outcome }).map((index) => peer.messages[index]?.content),
      expected,
    ),
  maxKept: (outcome, expected) =>
    holds(keptOf(outcome).length <= Number(expected), `${keptOf(outcome).length} are kept`),
  keptCountLessThan: (outcome, expected) =>
    holds(keptOf(outcome).length < Number(expected), `${keptOf(outcome).length} are kept`),
  /** As a share of the case's own scale: what is kept weighs no more than the case's tail may. */
  maxKeptTokens: (outcome, expected) => {
    const { peer } = outcome;
    const characters = keptOf(outcome).reduce(
      (sum, index) => sum + String(peer.messages[index]?.content).length,
      0,
    );
    return holds(characters / 4 <= Number(expected), `${characters} characters are kept`);
  },
  keptMessageCount: ({ after }, expected) => same(after.length - LEADING, expected),
  keptFirstRole: ({ after, offset }, expected) =>
    same(after.find(({ fromSeq }) => fromSeq > offset)?.message.role, expected),
  firstKeptRole: (outcome, expected) => same(outcome.peer.messages[keptOf(outcome)[0] ?? -1]?.role, expected),
  firstKeptRoleNot: (outcome) => {
    const first = outcome.peer.messages[keptOf(outcome)[0] ?? -1];
    return holds(first?.role !== 'assistant' || !first.tool_calls, 'the tail begins with calls');
  },
  systemPreserved: ({ after, offset }) =>
    holds(
      after.some(({ fromSeq, source }) => source === 'system' && fromSeq === offset + 1),
      'the system prompt went',
    ),
  mustKeepIds: ({ peer, after }, expected) => {
    const shown = after.map(textOfItem).join('\n');
    const missing = peer.messages.filter(
      ({ id, content }) =>
        Array.isArray(expected) && expected.includes(id) && !shown.includes(String(content)),
    );
    return same(
      missing.map(({ id }) => id),
      [],
    );
  },
  mustSummarizeIds: (outcome, expected) => {
    const evicted = evictedOf(outcome).map((index) => outcome.peer.messages[index]?.id);
    return holds(
      Array.isArray(expected) && expected.every((id) => evicted.includes(id)),
      `${evicted.join()} are evicted`,
    );
  },
  unchangedIndices: (outcome, expected) =>
    same(
      keptOf(outcome).filter((index) => numbers(expected).includes(index)),
      expected,
    ),
  cutSafe: ({ safe }, expected) => same(safe, expected),
  safeCutIndices: ({ safeCuts }, expected) => same(safeCuts, expected),
  atomicGroups: ({ peer }, expected) => {
    const groups = groupsOf(peer);
    const torn = Array.isArray(expected)
      ? expected.filter(
          (wanted) => !groups.some((group) => numbers(wanted).every((index) => group.includes(index))),
        )
      : [expected];
    return same(torn, []);
  },
  notGrouped: ({ peer }, expected) => {
    const groups = groupsOf(peer);
    const together = Array.isArray(expected)
      ? expected.filter((pair) =>
          groups.some((group) => numbers(pair).every((index) => group.includes(index))),
        )
      : [expected];
    return same(together, []);
  },
  error: ({ failure }) =>
    holds(isFailure(failure, 'Input.Invalid') && failure.path !== undefined, 'is accepted'),
  status: ({ failure, generation, asked }, expected) => {
    if (expected === 'budget_unreachable')
      return holds(isFailure(failure, 'Budget.Unreachable'), `fails with ${String(failure)}`);
    const type = expected === 'inflated' ? 'Summary.NotSmaller' : 'Llm.BadOutput';
    // On request, a result that is not smaller is not a failure: nothing is done.
    const quiet = expected === 'inflated' && failure === null && generation === null && asked.length > 0;
    return holds(isFailure(failure, type) || quiet, `fails with ${String(failure)}`);
  },
  noCrash: ({ failure }) => same(failure, null),
  compactionAttemptsMax: ({ asked }, expected) =>
    holds(asked.length <= Number(expected), `${asked.length} attempts`),
  turnContinues: ({ after }) => holds(after.length > 0, 'there is no context'),
  /** The sizes of the case ask for an urgency of their own; ours is a context that no longer fits, or a person who asks. */
  urgency: ({ conversation, before, peer }, expected) => {
    const tokens = before.reduce((sum, item) => sum + item.tokens, 0);
    const hard = Boolean(peer.config.manualRequest) || tokens > (conversation?.limits.budget ?? Infinity);
    return same(hard ? 'hard' : 'soft', expected);
  },
};

const checks: Record<string, Check> = { ...about, ...aboutContent, ...aboutSummary };

/** The keys of the case with their values; what the summarizer must see is one key each. */
function expectationsOf({ expect }: PeerCase): [string, unknown][] {
  return Object.entries(expect).flatMap(([key, value]) =>
    key === 'summarizerInput' && typeof value === 'object' && value !== null
      ? Object.entries(value).map(([inner, wanted]): [string, unknown] => [`${key}.${inner}`, wanted])
      : [[key, value] as [string, unknown]],
  );
}

/** The failed assertions, by key. */
export function contradictions(outcome: Outcome): { key: string; answer: string }[] {
  const wrong = expectationsOf(outcome.peer).flatMap(([key, expected]) => {
    if (preconditions.has(key)) return [];
    const answer = checks[key] ? checks[key](outcome, expected) : 'no check knows this key';
    return answer === null ? [] : [{ key, answer }];
  });
  return outcome.refused ? [...wrong, { key: 'policy', answer: outcome.refused.message }] : wrong;
}
