import { isFailure } from '../errors.js';
import { policyOf, type PolicyLayers } from '../policy/layers.js';
import { limitsOf, type Limits, type SessionFacts } from '../policy/limits.js';
import { marksFor } from '../policy/marks.js';
import type { Policy } from '../policy/schema.js';
import { isOff, knownOf } from '../tokens/calibration.js';
import type { TokenizerName } from '../tokens/counter.js';
import { factsOf, type SessionRow } from './session-row.js';

/** What a policy, and what the session has shown of itself, fix on the session row. */
export interface SessionSettings {
  policy: PolicyLayers;
  tokenizer: TokenizerName;
  /** Context tokens. */
  budget: number;
  measureAtTokens: number | null;
  measureAtMessages: number | null;
  /** Provider's tokens for one of ours, as the sizes above take it. */
  appliedFactor: number;
}

/** A session's effective policy in sizes, as its row has them. */
export function limitsOfSession(row: SessionRow): { policy: Policy; limits: Limits } {
  const policy = policyOf(row.policy);
  return { policy, limits: limitsOf(policy, factsOf(row)) };
}

/**
 * The settings of a session whose context has `liveTokens`. Throws `Input.Invalid` for parts of the policy that
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
  };
}

/** The factor learnt for the policy's model; 1 where calibration is off or nothing was reported. */
export function learntFactor(
  policy: Pick<Policy, 'calibration' | 'model' | 'tokenizer'>,
  calibration: SessionRow['calibration'],
): number {
  return policy.calibration ? knownOf(calibration, policy.model, policy.tokenizer).factor : 1;
}

/**
 * The settings of another policy for this session, with what was learnt of its model. Where the window is too small
 * for the learnt factor, the counts stand as they are: a report must not make a valid policy invalid.
 */
export function settle(
  layers: PolicyLayers,
  row: Pick<SessionRow, 'calibration' | 'meanTurnTokens' | 'liveTokens'>,
): SessionSettings {
  const { calibration, meanTurnTokens, liveTokens } = row;
  const factor = learntFactor(policyOf(layers), calibration);
  return (
    settingsIfValid(layers, { factor, meanTurnTokens }, liveTokens) ??
    settingsOf(layers, { meanTurnTokens }, liveTokens)
  );
}

/**
 * The settings of a session after more was learnt: those it has, or where the factor in use is off by more than
 * calibration tolerates and the window allows it, those of the new factor.
 */
export function recalibrated(
  policy: Policy,
  row: Pick<SessionRow, 'policy' | 'calibration' | 'meanTurnTokens' | 'appliedFactor' | 'liveTokens'>,
): SessionSettings | null {
  const factor = learntFactor(policy, row.calibration);
  if (!isOff(row.appliedFactor, factor)) return null;
  return settingsIfValid(row.policy, { factor, meanTurnTokens: row.meanTurnTokens }, row.liveTokens);
}

/** Null where the policy does not hold with these facts. */
export function settingsIfValid(
  layers: PolicyLayers,
  facts: SessionFacts,
  liveTokens: number,
): SessionSettings | null {
  try {
    return settingsOf(layers, facts, liveTokens);
  } catch (error) {
    if (isFailure(error, 'Input.Invalid')) return null;
    throw error;
  }
}
