import type { Pool } from 'pg';
import type { CompactionReason, NothingToDo, Plan } from '../src/compaction/plan/plan-types.js';
import { makePlan } from '../src/compaction/plan/plan.js';
import type { PlanRequest } from '../src/compaction/plan/planning.js';
import { settingsOf as summarizerSettings } from '../src/compaction/plan/summarizer-settings.js';
import type { PalimpsestError } from '../src/errors.js';
import { priceOf, refusalOfModel } from '../src/policy/tenant-limits.js';
import { limitsSpend, refusalOfSpend, spentBy } from '../src/store/tenants/spend.js';
import { isTriggered, limitsOf } from '../src/limits/limits.js';
import { effectivePolicy, policyOf, withSummarizer, type PolicyLayers } from '../src/policy/layers.js';
import type { Policy } from '../src/policy/defaults.js';
import { readChain, readMetas, spentOn } from '../src/store/compactions/chain.js';
import { readContextSource, readTailMetas } from '../src/store/reading/context.js';
import { releaseEarlierHolds } from '../src/store/compactions/digest-holds.js';
import { readMessages } from '../src/store/log/messages.js';
import { factsOf, type SessionRow } from '../src/store/sessions/session-row.js';
import { passReduceMark, setExhausted } from '../src/store/sessions/sessions.js';
import type { SessionIds } from '../src/contract/ids.js';
import { counterFor } from '../src/tokens/counter.js';
import { redactorOf } from './asking.js';
import { type Dependencies, runStep } from './run.js';

export interface PlanInput extends SessionIds {
  reason: CompactionReason;
  /**
   * Requested by an operator, or by a backfill of all sessions: ignores trigger, minimum gain, exhausted mark and back-off.
   */
  force: boolean;
  /**
   * Plans the model calls of the next compaction before its trigger is met, and stores nothing in the session. @default false
   */
  eager?: boolean;
  /** Seq of the last message whose notes were written ahead; null or absent if there are none. */
  writtenThroughSeq?: number | null;
}

/** Plans a compaction of the session in its current state; records the reason if nothing can be done. */
export function plan(dependencies: Dependencies) {
  return (input: PlanInput): Promise<Plan | NothingToDo> =>
    runStep('plan', async ({ runId, signal }) => {
      if (input.eager !== true) await releaseEarlierHolds(dependencies.pool, input, runId);
      return planSession(dependencies, input, signal);
    });
}

export async function planSession(
  { pool, model: client, summarizer, now }: Dependencies,
  input: PlanInput,
  signal: AbortSignal,
): Promise<Plan | NothingToDo> {
  const { eager = false, writtenThroughSeq = null } = input;
  const { session: row, head, system, tail } = await readTailMetas(pool, input);
  if (row.pausedAt !== null) return { nothing: 'the session is paused', exhausted: false };
  const policy = policyOf(withSummarizer(row.policy, summarizer));
  const limits = limitsOf(policy, factsOf(row));
  // A backfill calls the model now, like a compaction on request.
  const asked = input.force || input.reason === 'backfill';
  const backingOff = row.retryAt !== null && row.retryAt.getTime() > now() && !asked;
  const limited = policy.spend.perSession !== null;
  const model = summarizerSettings(policy, limits).model;
  const [chain, spent, refusal] = await Promise.all([
    readChain(pool, input, row.generation),
    limited ? spentOn(pool, input) : 0,
    limitsOn(pool, row, model, writtenThroughSeq !== null),
  ]);
  let beyond: string | null = null;
  const made = await makePlan(
    {
      generation: row.generation,
      policyVersion: row.policyVersion,
      throughSeq: row.throughSeq,
      liveTokens: row.liveTokens,
      liveMessages: row.liveMessages,
      closed: row.closedAt !== null,
      system,
      tail,
      head,
      chain,
      spent,
    },
    policy,
    limits,
    {
      reason: input.reason,
      ...{ force: input.force, eager, writtenThroughSeq },
      withoutModel: !client.available
        ? 'no model endpoint is configured'
        : backingOff
          ? 'the model failed recently'
          : null,
      ...(refusal === null
        ? {}
        : { beyondLimits: (estimate) => (beyond = refusal(estimate)?.message ?? null) }),
      now: now(),
      counter: counterFor(limits.tokenizer),
      redact: redactorOf(policy, input.tenant, signal),
    },
    {
      metas: (from, through) => readMetas(pool, input, Math.max(from, row.systemThroughSeq + 1), through),
      messages: (from, through) => readMessages(pool, input, from, through),
      source: async () => (await readContextSource(pool, input, 0)).source,
    },
  );
  if (backingOff && policy.summary.fallback === 'none' && asksModel(policy) && evictsByRule(made))
    return { nothing: 'the model failed recently, and the policy allows no fallback', exhausted: false };
  if ('nothing' in made && !input.force && !eager) {
    const size = { contextTokens: row.liveTokens, messages: row.liveMessages };
    if (made.exhausted) {
      const mark = { atSeq: row.nextSeq - 1, tokens: row.liveTokens, reason: made.nothing };
      await setExhausted(pool, row, mark, row);
    } else if (!isTriggered(limits, size)) await passReduceMark(pool, row, row);
  }
  if ('nothing' in made) return made;
  const { incarnation } = row;
  if (beyond !== null && made.withoutModel === beyond) return { ...made, incarnation, beyondLimits: true };
  if (input.reason !== 'backfill') return { ...made, incarnation };
  return {
    ...made,
    incarnation,
    summarizer: { ...made.summarizer, deadlineMs: backfillDeadline(row.policy, policy) },
  };
}

/**
 * Says why the operator's limits forbid to ask the model, given what that would cost; null without limits. Answers that were
 * written ahead are paid already, so that their compaction is not refused for its cost.
 */
async function limitsOn(
  pool: Pool,
  { tenant, policy: { limits } }: Pick<SessionRow, 'tenant' | 'policy'>,
  model: string,
  written: boolean,
): Promise<((estimate: EstimateAt) => PalimpsestError | null) | null> {
  if (limits === undefined) return null;
  const refused = refusalOfModel(limits, model);
  if (refused) return () => refused;
  if (written || !limitsSpend(limits)) return null;
  const spent = await spentBy(pool, tenant);
  const price = priceOf(limits.prices, model) ?? { input: 0, output: 0 };
  const perToken = { input: 1_000_000, output: 1_000_000 };
  return (estimate) => refusalOfSpend(limits, spent, { cost: estimate(price), tokens: estimate(perToken) });
}

type EstimateAt = Parameters<NonNullable<PlanRequest['beyondLimits']>>[0];

/** No agent waits for a backfill: unless a policy says otherwise, the fallback is used only after a day without the model. */
const backfillDeadlineMs = 24 * 60 * 60 * 1000;

function backfillDeadline(layers: PolicyLayers, { summary }: Policy): number {
  return 'summary.deadline' in effectivePolicy(layers).sources ? summary.deadline : backfillDeadlineMs;
}

const asksModel = ({ summary }: Policy) => summary.method === 'model';
const evictsByRule = (made: Plan | NothingToDo) => 'method' in made && made.method === 'extractive';
