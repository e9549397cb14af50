import type { CompactionOutcome } from '../../contract/outcome.js';
import type { CompactionFacts } from './generations.js';

export function outcomeOf(row: CompactionFacts): CompactionOutcome {
  const { generation, reason, method, tokensBefore, tokensAfter, evicted, chunks, chunksByRule } = row;
  const { modelCalls, modelInputTokens, modelOutputTokens, modelMs, overheadMs, archivePart } = row;
  const { cost, currency, paysBackAfter } = row;
  return {
    ...{ generation, reason, method, tokensBefore, tokensAfter, evicted, chunks, chunksByRule, modelCalls },
    ...{ modelInputTokens, modelOutputTokens, modelMs, overheadMs, archivePart },
    ...{ savedPerTurn: Math.max(0, tokensBefore - tokensAfter), cost, currency, paysBackAfter },
    ...{ workflowId: row.workflowId ?? '', runId: row.runId ?? '' },
  };
}
