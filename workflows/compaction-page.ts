import { setCurrentDetails, upsertSearchAttributes } from '@temporalio/workflow';
import type { Plan } from '../src/compaction/plan/plan-types.js';
import type { CompactionOutcome } from '../src/contract/compactions.js';
import { count } from '../src/numbers.js';
import { searchAttributes } from '../src/temporal/names.js';

type Phase = 'planning' | 'summarizing' | 'repairing' | 'committing' | 'done' | 'failed';

/** The operator's view of a compaction: search attributes for finding it, and a page with its events. */
export class CompactionPage {
  private lines: string[] = [];
  private chunks: string[] = [];
  private state: Phase = 'planning';

  /** `writes`: in runs that began under an earlier version, search attributes also show the phase and the size. */
  constructor(private readonly writes: boolean) {
    this.show();
  }

  phase(phase: Phase): void {
    if (phase === this.state) return;
    this.state = phase;
    // A commit is too short to justify the write that an attribute costs the server.
    if (this.writes && phase !== 'committing')
      upsertSearchAttributes([{ key: searchAttributes.phase, value: phase }]);
    this.show();
  }

  plan(plan: Plan): void {
    this.state = plan.method === 'model' ? 'summarizing' : 'committing';
    if (this.writes)
      upsertSearchAttributes([
        { key: searchAttributes.phase, value: this.state },
        { key: searchAttributes.generation, value: plan.baseGeneration + 1 },
        { key: searchAttributes.tokensBefore, value: plan.tokensBefore },
      ]);
    this.lines.push(
      `Context of ${count(plan.tokensBefore)} tokens. Evicting messages ${plan.fromSeq}–${plan.throughSeq} ` +
        `(${count(plan.evictedMessages)} messages, ${count(plan.evictedTokens)} tokens) in ${plan.chunks.length} chunks, method ${plan.method}.`,
    );
    this.show();
  }

  chunk(index: number, of: number, tokensIn: number, tokensOut: number): void {
    this.chunks.push(`| ${index}/${of} | ${count(tokensIn)} | ${count(tokensOut)} |`);
    this.show();
  }

  consolidating(digests: number, depth: number): void {
    this.note(`Consolidating ${digests} digests, level ${depth}.`);
  }

  note(text: string, errorType?: string): void {
    this.lines.push(text);
    if (errorType) upsertSearchAttributes([{ key: searchAttributes.lastErrorType, value: errorType }]);
    this.show();
  }

  committed(outcome: CompactionOutcome): void {
    const { generation, tokensBefore, tokensAfter, evicted, archivePart, method, modelCalls } = outcome;
    const byRule = outcome.chunksByRule > 0 ? `, ${outcome.chunksByRule} chunks by rule` : '';
    this.finish(
      `**Generation ${generation} committed**: ${count(tokensBefore)} → ${count(tokensAfter)} tokens, ${count(evicted)} messages evicted` +
        `${archivePart === null ? '' : ` into archive part ${archivePart}`}, ${method}${byRule}, ${modelCalls} model calls.`,
    );
  }

  finish(text: string, errorType?: string): void {
    this.phase(errorType ? 'failed' : 'done');
    this.note(text, errorType);
  }

  private show(): void {
    const table =
      this.chunks.length === 0 ? [] : ['', '| chunk | tokens in | digest |', '|---|---|---|', ...this.chunks];
    setCurrentDetails(
      [`Phase: **${this.state}**`, '', ...this.lines.flatMap((line) => [line, '']), ...table].join('\n'),
    );
  }
}
