/** Whether a plan that a caller hands back was made of the messages and the options that it is handed back with. */
import { invalid } from '../../errors.js';
import type { Policy } from '../../policy/resolve.js';
import type { Plan } from './plan-types.js';
import type { PlanState } from './plan.js';
import { redactionOf } from './summarizer-settings.js';

/** Throws `Input.Invalid` for a plan of other messages, by their sizes, or of a policy that withholds something else. */
export function assertPlanOf(plan: Plan, { throughSeq, tail }: PlanState, policy: Policy): void {
  const evicted = tail.filter(({ seq }) => seq <= plan.throughSeq);
  const tokens = evicted.reduce((sum, meta) => sum + (meta.empty ? 0 : meta.tokens), 0);
  const known = new Set(tail.map(({ seq }) => seq));
  const isOfThese =
    plan.fromSeq === throughSeq + 1 &&
    plan.throughSeq <= Math.max(throughSeq, tail.at(-1)?.seq ?? 0) &&
    evicted.length === plan.evictedMessages &&
    tokens === plan.evictedTokens &&
    plan.messages.every(({ seq }) => known.has(seq));
  if (!isOfThese) throw invalid('The plan was made of other messages.', 'plan', 'Plan again.');
  if (plan.summarizer.redaction !== redactionOf(policy))
    throw invalid('The plan was made with another policy.', 'plan', 'Plan again with this one.');
}
