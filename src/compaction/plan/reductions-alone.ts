import { commitReductions, leastAfterPolicy } from '../../context/reductions/retention.js';
import { buildView } from '../../context/view/view.js';
import type { Planning } from './planning.js';

/**
 * Whether the reductions of the policy (shorter arguments and tool results) save at least `minGain` and, where a
 * trigger fires, reach the target: then nothing is evicted and no model is asked.
 */
export async function policyReductionsSuffice(planning: Planning): Promise<boolean> {
  const { state, policy, limits, triggered } = planning;
  const argumentsDue = limits.reduceAt !== null && state.liveTokens >= limits.reduceAt;
  if (!triggered && !argumentsDue) return false;
  const { before, after } = await tokensReducedBy('policy', planning);
  const worthwhile = before - after >= policy.summary.minGain * before;
  return worthwhile && (!triggered || after <= limits.contextTarget);
}

/** Whether all reductions together save at least `minGain`. */
export async function allReductionsHelp(planning: Planning): Promise<boolean> {
  const { before, after } = await tokensReducedBy('all', planning);
  return before - after >= planning.policy.summary.minGain * before;
}

async function tokensReducedBy(
  what: 'policy' | 'all',
  { policy, limits, counter, reads, triggered }: Planning,
): Promise<{ before: number; after: number }> {
  const source = await reads.source();
  const standing = buildView(source, counter);
  const before = standing.reduce((sum, item) => sum + item.tokens, 0);
  const view = what === 'all' ? buildView({ ...source, reductions: [] }, counter) : standing;
  const options = { policy, limits, tokensBefore: before };
  const hopeless = what === 'policy' && triggered && leastAfterPolicy(view, options) > limits.contextTarget;
  if (hopeless) return { before, after: before };
  const { tokens } = commitReductions(view, { ...options, what }, counter);
  return { before, after: tokens };
}
