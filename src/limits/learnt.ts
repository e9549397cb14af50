/** Sizes learnt from reported usage: the request of a report, and the rule by which learnt sizes replace those in use. */
import { type Calibration, knownOf, noLine, type ReportedRequest } from '../tokens/calibration.js';
import { counterFor } from '../tokens/counter.js';
import { countOverhead } from '../tokens/message.js';
import type { ReportedUsage } from '../tokens/reported-usage.js';
import { resolveWindow } from '../tokens/windows.js';
import { limitsOf, type SessionFacts } from './limits.js';
import type { Policy } from '../policy/defaults.js';

/** Learnt values in the provider's tokens. */
export interface Learnt {
  /** Tokens per token counted here. */
  factor: number;
  /** Tokens of a request outside its context. */
  overhead: number;
}

/** Learnt sizes within this share of the sizes in use do not replace them: a change causes new emergency reductions. */
const TOLERANCE = 0.05;

/** The learnt values of the policy's model; a factor of 1 and no overhead if calibration is off. */
export function learntOf(
  policy: Pick<Policy, 'calibration' | 'model' | 'tokenizer'>,
  calibration: Calibration,
): Learnt {
  const { factor, overhead } = policy.calibration
    ? knownOf(calibration, policy.model, policy.tokenizer)
    : noLine;
  return { factor, overhead };
}

/** A counted turn: tokens and role of each message. */
export interface ReportedTurn {
  tokens: readonly number[];
  roles: readonly string[];
  usage?: ReportedUsage;
}

/**
 * The request that produced the first assistant message of a turn: the context and the turn's messages before that one.
 * Null if there was no such request, or if the context was cut to the budget for that request. `before`: the session without this
 * turn. With `countedTokens`, what the request had beside its context may differ from the policy's overhead: the difference counts
 * as context, so that all reports are alike.
 */
export function requestOf(
  { tokens, roles, usage }: ReportedTurn,
  policy: Policy,
  before: { liveTokens: number; budget: number },
): ReportedRequest | null {
  const answer = roles.indexOf('assistant');
  if (!usage || !policy.calibration || answer === -1) return null;
  const declared = countOverhead(policy.overhead, counterFor(policy.tokenizer));
  const stored = tokens.slice(0, answer).reduce((sum, size) => sum + size, before.liveTokens);
  const { countedTokens } = usage;
  if (countedTokens === undefined && policy.enabled && stored > before.budget) return null;
  return {
    counted: countedTokens === undefined ? stored : countedTokens - declared,
    reported: usage.inputTokens,
    declared,
    window: resolveWindow(policy).tokens,
  };
}

/**
 * The learnt values that must replace the values in use. Null if the values in use may stay: their budget is close to the
 * learnt budget, and a context that fills their budget fits the window.
 */
export function overdue(policy: Policy, inUse: Learnt, learnt: Learnt, facts: SessionFacts): Learnt | null {
  if (learnt.factor === inUse.factor && learnt.overhead === inUse.overhead) return null;
  const { budget } = limitsOf(policy, { ...facts, ...inUse });
  const { budget: next } = limitsOf(policy, { ...facts, ...learnt });
  const declared = countOverhead(policy.overhead, counterFor(policy.tokenizer));
  const share = typeof policy.overhead === 'number' ? 1 : learnt.factor;
  const largest = learnt.factor * budget + Math.max(learnt.overhead, share * declared);
  const exceeds = largest > resolveWindow(policy).tokens;
  return exceeds || Math.abs(next / budget - 1) > TOLERANCE ? learnt : null;
}

/** Weight of a new turn in the running mean. */
const TURN_WEIGHT = 0.1;

/** The running mean of the tokens of a turn after one more turn of `size` tokens; the first turn is the mean itself. */
export function meanTurn({ turns, mean }: { turns: number; mean: number }, size: number): number {
  return turns === 0 ? size : mean + TURN_WEIGHT * (size - mean);
}
