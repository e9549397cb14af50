import { defineSearchAttributeKey, SearchAttributeType } from '@temporalio/common';
import { encodeIdPart, type SessionIds } from '../contract/ids.js';

/** The task queues for the steps of one workflow: short database steps and model calls. */
export interface StepQueues {
  db: string;
  llm: string;
}

/**
 * The task queues: orchestration, short database steps, model calls. A backfill has separate queues for the first two, so that
 * it never takes a slot from live sessions. The third is shared, because the provider has one limit. Each deployment has its
 * own prefix.
 */
export interface TaskQueues extends StepQueues {
  workflow: string;
  backfill: { workflow: string; db: string };
}

export const defaultQueuePrefix = 'compaction';

export function taskQueues(prefix: string = defaultQueuePrefix): TaskQueues {
  return {
    ...{ workflow: `${prefix}-wf`, db: `${prefix}-db`, llm: `${prefix}-llm` },
    backfill: { workflow: `${prefix}-wf-backfill`, db: `${prefix}-db-backfill` },
  };
}

/** Inside a workflow: the queues of its steps, derived from its own queue. */
export function stepQueues(workflowQueue: string): StepQueues {
  const { db, llm, backfill } = taskQueues(workflowQueue.replace(/-wf(-backfill)?$/, ''));
  return { db: isOfBackfill(workflowQueue) ? backfill.db : db, llm };
}

/** True if this workflow queue serves a backfill or a compaction started by one. */
export function isOfBackfill(workflowQueue: string): boolean {
  return workflowQueue.endsWith('-wf-backfill');
}

export function sessionWorkflowId({ tenant, session }: SessionIds): string {
  return `session/${encodeIdPart(tenant, 'tenant')}/${encodeIdPart(session, 'session')}`;
}

export function compactionWorkflowId({ tenant, session }: SessionIds, generation: number): string {
  return `compaction/${encodeIdPart(tenant, 'tenant')}/${encodeIdPart(session, 'session')}/${generation}`;
}

/** Id of the workflow that writes ahead during this generation; it is found and erased with the session's compactions. */
export function aheadWorkflowId(ids: SessionIds, generation: number): string {
  return `${compactionWorkflowId(ids, generation)}/ahead`;
}

export function backfillWorkflowId({ tenant, job }: { tenant: string; job: string }): string {
  return `backfill/${encodeIdPart(tenant, 'tenant')}/${encodeIdPart(job, 'job')}`;
}

/** Id of the schedule and, followed by the time, of each run that it starts. A deployment has one sweep. */
export function sweepId(prefix: string): string {
  return `sweep/${prefix}`;
}

/** Values that an operator filters by. They are stored in plaintext and never hold message text. */
export const searchAttributes = {
  tenantId: defineSearchAttributeKey('TenantId', SearchAttributeType.KEYWORD),
  sessionId: defineSearchAttributeKey('SessionId', SearchAttributeType.KEYWORD),
  phase: defineSearchAttributeKey('CompactionPhase', SearchAttributeType.KEYWORD),
  generation: defineSearchAttributeKey('Generation', SearchAttributeType.INT),
  tokensBefore: defineSearchAttributeKey('TokensBefore', SearchAttributeType.INT),
  lastErrorType: defineSearchAttributeKey('LastErrorType', SearchAttributeType.KEYWORD),
  backfillJob: defineSearchAttributeKey('BackfillJob', SearchAttributeType.KEYWORD),
};

/** Maps each name to the type for the server's registration. */
export const searchAttributeTypes: Record<string, 'Keyword' | 'Int'> = {
  TenantId: 'Keyword',
  SessionId: 'Keyword',
  CompactionPhase: 'Keyword',
  Generation: 'Int',
  TokensBefore: 'Int',
  LastErrorType: 'Keyword',
  BackfillJob: 'Keyword',
};

/**
 * `priorityKey` of live work (1 operator, 2 live, 3 written ahead, 5 backfill). The fairness key is the tenant, at most 64
 * bytes.
 */
export function livePriority(tenant: string): { priorityKey: number; fairnessKey: string } {
  return { priorityKey: 2, fairnessKey: encodeURIComponent(tenant).slice(0, 64) };
}

export const aheadPriorityKey = 3;

export const backfillPriorityKey = 5;

/** The same for a backfill and all its activities: live work is served first. */
export function backfillPriority(tenant: string): { priorityKey: number; fairnessKey: string } {
  return { ...livePriority(tenant), priorityKey: backfillPriorityKey };
}

/**
 * Milliseconds by which a model step outlives the deadline of its compaction, so that the workflow's timer ends it and never
 * its own timeout.
 */
export const beyondDeadlineMs = 60_000;
