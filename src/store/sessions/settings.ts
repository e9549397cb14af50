import { isFailure } from '../../errors.js';
import { policyOf, type PolicyLayers } from '../../policy/layers.js';
import { type Limits, limitsOf, marksFor, type SessionFacts } from '../../limits/limits.js';
import type { Policy } from '../../policy/defaults.js';
import { learntOf, overdue } from '../../limits/learnt.js';
import type { TokenizerName } from '../../tokens/counter.js';
import { factsOf, type SessionRow } from './session-row.js';

/** The columns of the session row that follow from its policy and its calibration. */
export interface SessionSettings {
  policy: PolicyLayers;
  tokenizer: TokenizerName;
  /** Context tokens. */
  budget: number;
  measureAtTokens: number | null;
  measureAtMessages: number | null;
  /** The calibration that the sizes above use: the provider's tokens for one counted token, and the overhead. */
  appliedFactor: number;
  appliedOverhead: number;
}

/** A session's effective policy, with its sizes from the stored facts. */
export function limitsOfSession(row: SessionRow): { policy: Policy; limits: Limits } {
  const policy = policyOf(row.policy);
  return { policy, limits: limitsOf(policy, factsOf(row)) };
}

/**
 * The settings of a session whose context has `liveTokens`. Throws `Input.Invalid` if parts of the policy
 * contradict each other.
 */
export function settingsOf(layers: PolicyLayers, facts: SessionFacts = {}, liveTokens = 0): SessionSettings {
  const policy = policyOf(layers);
  const limits = limitsOf(policy, facts);
  const mark = policy.enabled ? marksFor(limits, liveTokens) : { tokens: null, messages: null };
  return {
    policy: layers,
    tokenizer: limits.tokenizer,
    budget: limits.budget,
    measureAtTokens: mark.tokens,
    measureAtMessages: mark.messages,
    appliedFactor: facts.factor ?? 1,
    appliedOverhead: facts.overhead ?? 0,
  };
}

/** The settings of another policy for this session, with the calibration of its model. */
export function settle(
  layers: PolicyLayers,
  row: Pick<SessionRow, 'calibration' | 'meanTurnTokens' | 'liveTokens'>,
): SessionSettings {
  const { calibration, meanTurnTokens, liveTokens } = row;
  return settingsOf(layers, { ...learntOf(policyOf(layers), calibration), meanTurnTokens }, liveTokens);
}

/** The settings of a session after new calibration; null if its present settings may stay. */
export function recalibrated(
  policy: Policy,
  row: Pick<
    SessionRow,
    'policy' | 'calibration' | 'meanTurnTokens' | 'appliedFactor' | 'appliedOverhead' | 'liveTokens'
  >,
): SessionSettings | null {
  const { meanTurnTokens } = row;
  const inUse = { factor: row.appliedFactor, overhead: row.appliedOverhead };
  return ifValid(() => {
    const learnt = overdue(policy, inUse, learntOf(policy, row.calibration), { meanTurnTokens });
    return learnt && settingsOf(row.policy, { ...learnt, meanTurnTokens }, row.liveTokens);
  });
}

/** Null if the policy is invalid with these facts. */
export function settingsIfValid(
  layers: PolicyLayers,
  facts: SessionFacts,
  liveTokens: number,
): SessionSettings | null {
  return ifValid(() => settingsOf(layers, facts, liveTokens));
}

function ifValid(settings: () => SessionSettings | null): SessionSettings | null {
  try {
    return settings();
  } catch (error) {
    if (isFailure(error, 'Input.Invalid')) return null;
    throw error;
  }
}
