import { executeChild, ParentClosePolicy } from '@temporalio/workflow';
import type { CompactionReason } from '../src/compaction/plan/plan-types.js';
import { count } from '../src/numbers.js';
import { compactionWorkflowId, type livePriority, searchAttributes } from '../src/temporal/names.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { CompactAnswer } from '../src/contract/workflows.js';
import type { compaction } from './compaction.js';

/** Runs one compaction of a session as a workflow of its own, which outlives the one that asked for it. */
export function executeCompaction(
  ids: SessionIds,
  generation: number,
  reason: CompactionReason,
  { tokens, priority }: { tokens: number | null; priority: ReturnType<typeof livePriority> },
): Promise<CompactAnswer> {
  const size = tokens === null ? '' : ` · ${count(tokens)} tokens`;
  return executeChild<typeof compaction>('compaction', {
    workflowId: compactionWorkflowId(ids, generation),
    args: [{ v: 1, ...ids, reason, force: reason === 'manual' || reason === 'resummarize' }],
    parentClosePolicy: ParentClosePolicy.ABANDON,
    staticSummary: `generation ${generation} · ${reason}${size}`,
    staticDetails: `Compaction of session \`${ids.session}\` of tenant \`${ids.tenant}\`. Its originals stay in the log; the context changes only at the commit.`,
    typedSearchAttributes: [
      { key: searchAttributes.tenantId, value: ids.tenant },
      { key: searchAttributes.sessionId, value: ids.session },
      { key: searchAttributes.phase, value: 'planning' },
    ],
    priority,
  });
}
