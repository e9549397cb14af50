import {
  CancellationScope,
  executeChild,
  isCancellation,
  log,
  ParentClosePolicy,
  sleep,
  startChild,
  upsertSearchAttributes,
} from '@temporalio/workflow';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import type { Committed } from '../activities/commit.js';
import type { Planned } from '../activities/measure.js';
import type { CompactionReason, NothingToDo, Plan } from '../src/compaction/plan/plan-types.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { CompactionOutcome } from '../src/contract/compactions.js';
import { count } from '../src/numbers.js';
import { failureOf } from '../src/temporal/failures.js';
import {
  aheadPriorityKey,
  aheadWorkflowId,
  compactionWorkflowId,
  livePriority,
  searchAttributes,
} from '../src/temporal/names.js';
import type { ahead } from './ahead.js';
import type { compaction } from './compaction.js';
import { databaseActivities, modelActivities } from './options.js';
import type { Caller } from './session-callers.js';
import type { SessionRun } from './session-run.js';
import { lookAgainMs } from './session-waits.js';

const shownCompactions = 20;
const longestLookMs = 60_000;

/** Runs the compactions of a session one at a time and stores arriving turns meanwhile. */
export class SessionCompactions {
  /** The wait for a compaction of another parent, doubled each time. */
  private nextLookMs = lookAgainMs;

  constructor(private readonly run: SessionRun) {}

  /** `asked`: the callers that the compaction answers, in addition to callers that join later; empty if a trigger started it. */
  async compact(reason: CompactionReason, asked: readonly Caller[], planned?: Planned): Promise<void> {
    const { run } = this;
    const plan = planned?.as === reason ? planned.plan : undefined;
    if (plan && 'nothing' in plan) {
      for (const { settle } of asked) settle(null);
      return;
    }
    const { ids, state, inbox, callers } = run;
    const generation = (state.generation ?? 0) + 1;
    const workflowId = compactionWorkflowId(ids, generation);
    run.phase = 'compacting';
    run.running = { generation, workflowId, startedAt: Date.now() };
    callers.begin(asked, { resummarizes: reason === 'resummarize', generation });
    run.showPage();
    try {
      const live = livePriority(ids.tenant);
      const child = executeCompaction(run.metIds, generation, reason, {
        tokens: state.tokens,
        plan,
        fewerSteps: run.fewerSteps,
        writtenThroughSeq:
          state.ahead?.generation === (state.generation ?? 0) ? state.ahead?.throughSeq : null,
        priority: asked.length > 0 ? { ...live, priorityKey: 1 } : live,
      });
      const committed = await inbox.appendingMeanwhile(child);
      this.nextLookMs = lookAgainMs;
      const outcome = committed && this.note(committed);
      // If the trigger finds nothing to do, a compaction on request may still find something.
      if (outcome === null && asked.length === 0) callers.postpone();
      else callers.answer(outcome);
    } catch (error) {
      if (error instanceof WorkflowExecutionAlreadyStartedError) await this.waitForOther(workflowId);
      else if (CancellationScope.current().consideredCancelled) throw error;
      else this.noteFailed(error, asked);
    } finally {
      run.running = null;
      callers.end();
      run.showPage();
    }
  }

  /** Runs once per generation. No caller waits for it; requests that fail are repeated when the compaction is due. */
  async writeAhead(generation: number, planned?: Planned): Promise<void> {
    const { metIds: ids, state } = this.run;
    if (state.ahead?.generation === generation) return;
    state.ahead = { generation, throughSeq: null };
    try {
      const plan = planned?.as === 'ahead' ? planned.plan : await planAhead(ids);
      if ('nothing' in plan) return;
      state.ahead.throughSeq = plan.throughSeq;
      await startWritingAhead(ids, plan);
    } catch (error) {
      if (CancellationScope.current().consideredCancelled) throw error;
      log.warn('nothing is written ahead', { type: failureOf(error)?.type ?? 'Unknown' });
    }
  }

  private note({ next, ...outcome }: Committed): CompactionOutcome {
    const { state, metIds, waits, fewerSteps } = this.run;
    state.generation = outcome.generation;
    state.tokens = outcome.tokensAfter;
    state.compactions++;
    if (state.lastError) upsertSearchAttributes([{ key: searchAttributes.lastErrorType, value: null }]);
    state.lastError = null;
    state.recent.push(outcome);
    if (state.recent.length > shownCompactions) state.recent.shift();
    if (!fewerSteps)
      upsertSearchAttributes([{ key: searchAttributes.generation, value: outcome.generation }]);
    // Not awaited: if this run ends first, a search indexes the rest.
    if (next === undefined) void makeFindable(metIds);
    else if (next.embeds) void embed(metIds);
    // Turns that arrived in the meantime may have met the trigger again. Compactions do not follow each other for ever: one that
    // cannot help marks the session as exhausted.
    if (next === undefined || next.due) state.mustMeasure = true;
    else {
      waits.endRetry();
      waits.coldAfter(null);
    }
    return outcome;
  }

  /** Another parent started the compaction, for instance a terminated run of this session: waits, then measures again. */
  private async waitForOther(workflowId: string): Promise<void> {
    const { inbox, callers, state } = this.run;
    await inbox.appendingMeanwhile(sleep(this.nextLookMs, { summary: `${workflowId} is running already` }));
    this.nextLookMs = Math.min(2 * this.nextLookMs, longestLookMs);
    callers.postpone();
    state.mustMeasure = true;
  }

  /** A failed compaction counts as handled: the next turn that is due starts a new one. */
  private noteFailed(error: unknown, asked: readonly Caller[]): void {
    const { run } = this;
    run.noteFailure(error);
    if (isCancellation(error)) run.inbox.forgetReferences();
    const type = failureOf(error)?.type;
    // The compaction saved too little for its trigger. A compaction on request accepts less and does not fail when there is
    // nothing to gain.
    if (type === 'Summary.NotSmaller' && asked.length === 0) run.callers.postpone();
    else run.callers.answer(null, error);
    // Another commit came first: plan again.
    if (type === 'Store.StaleGeneration') run.state.mustMeasure = true;
  }
}

/** Time limit for the vectors of one stretch of a session; later calls index the rest. */
const embeddingMs = 600_000;

/** After commits of earlier versions, which do not index. */
async function makeFindable(ids: SessionIds): Promise<void> {
  try {
    // Workers of versions without vectors return nothing.
    if (await databaseActivities().indexTexts(ids)) await embed(ids);
  } catch (error) {
    log.warn('indexing failed', { error: String(error) });
  }
}

async function embed(ids: SessionIds): Promise<void> {
  try {
    await modelActivities(embeddingMs).embedTexts(ids);
  } catch (error) {
    log.warn('indexing failed', { error: String(error) });
  }
}

/** If the measurement planned nothing: it is of an earlier version, or its planning failed. */
function planAhead(ids: SessionIds): Promise<Plan | NothingToDo> {
  const request = { ...ids, reason: 'trigger', force: false, eager: true } as const;
  return databaseActivities().plan.executeWithOptions({ summary: 'plan · ahead' }, [request]);
}

/** Runs one compaction of a session as a separate workflow, which outlives its requester. */
function executeCompaction(
  ids: SessionIds,
  generation: number,
  reason: CompactionReason,
  {
    tokens,
    plan,
    fewerSteps,
    priority,
    writtenThroughSeq,
  }: {
    tokens: number | null;
    plan: Plan | undefined;
    fewerSteps: boolean;
    priority: ReturnType<typeof livePriority>;
    writtenThroughSeq: number | null | undefined;
  },
): Promise<Committed | null> {
  const size = tokens === null ? '' : ` · ${count(tokens)} tokens`;
  return executeChild<typeof compaction>('compaction', {
    workflowId: compactionWorkflowId(ids, generation),
    args: [
      {
        ...{
          v: 1,
          ...ids,
          reason,
          force: reason === 'manual' || reason === 'resummarize',
          writtenThroughSeq,
        },
        ...(fewerSteps ? { plan, settles: true } : {}),
      },
    ],
    parentClosePolicy: ParentClosePolicy.ABANDON,
    staticSummary: `generation ${generation} · ${reason}${size}`,
    staticDetails: `Compaction of session \`${ids.session}\` of tenant \`${ids.tenant}\`. Its originals stay in the log; the context changes only at the commit.`,
    typedSearchAttributes: [
      { key: searchAttributes.tenantId, value: ids.tenant },
      { key: searchAttributes.sessionId, value: ids.session },
      { key: searchAttributes.generation, value: generation },
      ...(tokens === null ? [] : [{ key: searchAttributes.tokensBefore, value: tokens }]),
    ],
    priority,
  });
}

/** Starts the workflow without waiting for it; like a compaction, it outlives its requester. */
async function startWritingAhead(ids: SessionIds, plan: Plan): Promise<void> {
  await startChild<typeof ahead>('ahead', {
    workflowId: aheadWorkflowId(ids, plan.baseGeneration),
    args: [{ v: 1, ...ids, plan }],
    parentClosePolicy: ParentClosePolicy.ABANDON,
    staticSummary: `ahead of generation ${plan.baseGeneration + 1} · ${count(plan.evictedTokens)} tokens`,
    staticDetails:
      `Makes, ahead of time, the model calls that the next compaction of session \`${ids.session}\` of tenant ` +
      `\`${ids.tenant}\` will need. Nothing is committed.`,
    typedSearchAttributes: [
      { key: searchAttributes.tenantId, value: ids.tenant },
      { key: searchAttributes.sessionId, value: ids.session },
    ],
    priority: { ...livePriority(ids.tenant), priorityKey: aheadPriorityKey },
  });
}
