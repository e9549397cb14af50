import { log } from '@temporalio/activity';
import type { Plan, SummarizerSettings } from '../src/compaction/plan/plan-types.js';
import { type Answered, resultsOf, summarizedBy } from '../src/compaction/summarize/last-answer.js';
import type { DigestRef } from '../src/compaction/summarize/model-steps.js';
import type { SessionIds } from '../src/contract/ids.js';
import { isFailure } from '../src/errors.js';
import { policyOf } from '../src/policy/layers.js';
import { readContextSource } from '../src/store/reading/context.js';
import { indexTexts } from '../src/store/search/index-texts.js';
import { inSlices } from '../src/steps.js';
import { withoutSecrets } from '../src/summary/redaction/withheld.js';
import { redactorOf } from './asking.js';
import { commitNow, type Committed, type CommitRequest } from './commit.js';
import type { Payer, Stored } from './digest.js';
import { type Attempt, type Dependencies, runModelStep } from './run.js';

/** What a model step needs to commit the compaction if its answer is the last one. */
export interface Completion extends Pick<
  CommitRequest,
  'force' | 'startedAt' | 'workflowId' | 'runId' | 'settles'
> {
  plan: Plan;
  /** The earlier answers. */
  answered: Answered[];
}

/** An answer, and the commit that followed it in the same step. */
export type LastAnswer = DigestRef & { committed?: Committed };

/** The input of a step that asks a model. */
export interface ModelStepInput<Step extends Answered['step']> extends Payer {
  step: Step;
  summarizer: SummarizerSettings;
  completes?: Completion;
}

/**
 * Runs a step that asks a model. If its answer is the last one of a compaction, commits at once; `meanwhile` prepares the commit
 * during the call. A step without an answer (null) commits nothing.
 */
export function runCompleting<Step extends Answered['step'], Answer extends Stored | null>(
  name: string,
  dependencies: Dependencies,
  { completes, ...input }: ModelStepInput<Step>,
  ask: (
    input: Omit<ModelStepInput<Step>, 'completes'>,
    attempt: Attempt,
    meanwhile: (() => Promise<void>) | undefined,
  ) => Promise<Answer>,
): Promise<LastAnswer | Extract<Answer, null>> {
  return runModelStep(name, async (attempt) => {
    const answer = await ask(input, attempt, beforeCommit(dependencies, input, completes, attempt));
    if (answer === null) return answer as Extract<Answer, null>;
    return withCommit(dependencies, input, completes, { step: input.step, ...answer }, attempt);
  });
}

/**
 * Does during the last call what would otherwise follow its answer: searches the messages of the context for secrets, whose
 * places are remembered, and makes the log searchable.
 */
function beforeCommit(
  { pool }: Pick<Dependencies, 'pool'>,
  ids: SessionIds,
  completion: Completion | undefined,
  { backfill, signal }: Attempt,
): (() => Promise<void>) | undefined {
  if (completion === undefined || backfill) return undefined;
  return async () => {
    try {
      const { session, source } = await readContextSource(pool, ids, 0);
      const redact = redactorOf(policyOf(session.policy), ids.tenant, signal);
      await inSlices(withoutSecrets(source.tail, redact), signal);
      // The answer does not wait for this.
      if (completion.settles === true) void indexTexts(pool, ids).catch(() => undefined);
    } catch {
      // The commit meets the same failure, and reports it.
    }
  };
}

/**
 * Commits if no other call must follow. The answer is stored already, so that a repeated step finds it and commits without a
 * call. A commit that fails is left to the step `commit`, which is repeated and whose failures the compaction handles; so is one of
 * a backfill while live sessions are active.
 */
async function withCommit(
  dependencies: Dependencies,
  { tenant, session, incarnation }: SessionIds,
  completion: Completion | undefined,
  { step, digest: answer, text }: Stored & Pick<Answered, 'step'>,
  { backfill, signal }: Attempt,
): Promise<LastAnswer> {
  if (completion === undefined) return answer;
  const { plan, answered, ...about } = completion;
  const all = [...answered, { step, answer }];
  try {
    const summarized = await summarizedBy(plan, all);
    if (summarized === null) return answer;
    const { chunks: _chunks, messages: _messages, method, ...references } = plan;
    const answers = all.map((one) => one.answer);
    const request = {
      ...{ tenant, session, incarnation, ...about, plan: references, method },
      ...{ failed: false, repaired: false, failure: null },
      ...resultsOf(summarized, answers),
    };
    const known = new Map([[answer.key, text]]);
    const commit = () => commitNow(dependencies, request, signal, known);
    const committed = backfill ? ((await dependencies.throttle?.whileQuiet(commit)) ?? null) : await commit();
    return committed === null || 'repair' in committed ? answer : { ...answer, committed };
  } catch (error) {
    if (signal.aborted) throw error;
    log.info('the commit is left to its own step', { failure: isFailure(error) ? error.type : 'unknown' });
    return answer;
  }
}
