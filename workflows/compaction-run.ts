import { patched, workflowInfo } from '@temporalio/workflow';
import type { Committed } from '../activities/commit.js';
import type { CompactionReason, Plan } from '../src/compaction/plan/plan-types.js';
import type { DigestRef } from '../src/compaction/summarize/model-steps.js';
import type { SessionIds } from '../src/contract/ids.js';
import { isModelFailureType } from '../src/errors.js';
import type { CompactionPage } from './compaction-page.js';

/** The state that the steps of one compaction share. */
export interface CompactionRun {
  /** Includes the incarnation of the planned session, once it is known. */
  ids: SessionIds;
  reason: CompactionReason;
  /** Requested by an operator: ignores size, gain, exhausted mark and back-off. */
  force: boolean;
  /** Written ahead of a future compaction: makes its model calls and commits nothing. */
  ahead?: boolean;
  /** The commit also does what follows it. */
  settles?: boolean;
  /** The last model call also commits, unless its result needs a repair. */
  lastAnswerCommits?: boolean;
  /** The commit that followed the last answer. */
  committed?: Committed;
  page: CompactionPage;
  /** Every answer of the model, including the answers of failed attempts at the model's part. */
  answers: DigestRef[];
}

/**
 * False in runs that began under an earlier version. They write search attributes at every phase, and measure, plan, index the
 * texts and measure again in separate steps.
 */
export function hasFewerSteps(): boolean {
  return patched('a measurement plans and a commit settles');
}

/** Milliseconds until the deadline of the summary, which counts from the start of the workflow. */
export function msToDeadline({ summarizer }: Plan): number {
  return workflowInfo().startTime.getTime() + summarizer.deadlineMs - Date.now();
}

/** True for failures of the model, which the rules can replace. A defect or a database failure must be reported. */
export function fallsBack(type: string): boolean {
  const others = ['Store.Corrupt', 'Store.DigestGone', 'Worker.Failed'];
  return isModelFailureType(type) || (others.includes(type) && !patched('only model failures fall back'));
}
