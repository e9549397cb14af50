import type { CompactionOutcome } from '../src/contract/compactions.js';
import type { SessionStatus } from '../src/contract/workflows.js';
import { count } from '../src/numbers.js';

const columns =
  'generation | reason | method | tokens | evicted | chunks | model calls | tokens in / out | cost | pays back | archive part';

/** The operator's page of a session: Markdown with the newest compaction first, because the page shows only a few lines. */
export function sessionPage({
  running,
  generation,
  tokens,
  lastError,
  recent,
  paused,
}: {
  running: SessionStatus['compaction'];
  generation: number | null;
  tokens: number | null;
  lastError: SessionStatus['lastError'];
  recent: readonly CompactionOutcome[];
  paused: boolean;
}): string {
  const measured = tokens === null ? 'no measurement yet' : `${count(tokens)} tokens at the last measurement`;
  const now = running
    ? `Compacting: generation ${running.generation}, run \`${running.workflowId}\`.`
    : `Generation ${generation ?? 'not measured yet'}, ${measured}.`;
  const held = paused ? ['**Paused**: no compaction begins until the signal `resume`.', ''] : [];
  const error = lastError ? [`Last failure: **${lastError.type}** ${lastError.message}`, ''] : [];
  const table = [
    `| ${columns} |`,
    '|---|---|---|---|---|---|---|---|---|---|---|',
    ...recent.toReversed().map(row),
  ];
  return [
    now,
    '',
    ...held,
    ...error,
    ...(recent.length > 0 ? table : ['No compaction since this workflow started.']),
  ].join('\n');
}

function row(outcome: CompactionOutcome): string {
  const { generation, reason, method, tokensBefore, tokensAfter, evicted, chunks } = outcome;
  const tokens = `${count(tokensBefore)} → ${count(tokensAfter)}`;
  const { modelCalls, modelInputTokens, modelOutputTokens, archivePart } = outcome;
  const summarizer = `${count(modelInputTokens)} / ${count(modelOutputTokens)}`;
  return (
    `| ${generation} | ${reason} | ${method} | ${tokens} | ${count(evicted)} | ${chunks} | ${modelCalls} | ${summarizer} ` +
    `| ${costOf(outcome)} | ${paysBack(outcome)} | ${archivePart ?? '–'} |`
  );
}

/** Outcomes handed over by an earlier version have neither cost nor pay-back. */
function costOf({ cost = null, currency = null }: Partial<CompactionOutcome>): string {
  return cost === null || currency === null ? '–' : `${cost.toFixed(4)} ${currency}`;
}

function paysBack({ paysBackAfter = null }: Partial<CompactionOutcome>): string {
  return paysBackAfter === null ? '–' : `after ${count(paysBackAfter)} reads`;
}
