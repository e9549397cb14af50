import {
  ApplicationFailure,
  CancellationScope,
  isCancellation,
  patched,
  setCurrentDetails,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { CommitRequest } from '../activities/commit.js';
import type { CompactionOutcome } from '../src/contract/outcome.js';
import type { WrittenRefs } from '../activities/replacement.js';
import type { CompactionReason, Plan } from '../src/compaction/plan/plan-types.js';
import {
  spansOf,
  summarize,
  type DigestRef,
  type ModelSteps,
  type Summarized,
} from '../src/compaction/summarize/summarize.js';
import { count } from '../src/numbers.js';
import { isModelFailureType } from '../src/errors.js';
import { failureOf, hasOnlyWaited } from '../src/temporal/failures.js';
import { searchAttributes } from '../src/temporal/names.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { ChunkRef } from '../src/summary/ask/chunk.js';
import type { RepairProblem } from '../src/summary/ask/repair.js';
import { databaseActivities, modelActivities } from './options.js';
import { startTimer } from './timer.js';

export interface CompactionInput extends SessionIds {
  v: 1;
  reason: CompactionReason;
  /** Asked for by hand: regardless of size, gain, exhausted mark and back-off. */
  force: boolean;
}

/**
 * One compaction: plan, summarize in chunks, consolidate, commit. The context stays as it is until the commit's single
 * transaction. Answers null where there is nothing to do or (by hand) the result would not be smaller; fails with the
 * typed reason where the context had to be left unchanged.
 */
export async function compaction(input: CompactionInput): Promise<CompactionOutcome | null> {
  const { reason, force } = input;
  let ids: SessionIds = { tenant: input.tenant, session: input.session, incarnation: input.incarnation };
  const { startTime, workflowId, runId } = workflowInfo();
  const { plan: makePlan, commit, giveUp } = databaseActivities();
  const page = new Page();
  /** Every answer of the model, whether or not its part comes to an end. */
  const answers: DigestRef[] = [];

  try {
    const plan = await makePlan.executeWithOptions({ summary: `plan · ${reason}` }, [
      { ...ids, reason, force },
    ]);
    if ('nothing' in plan) {
      page.finish(`Nothing to do: ${plan.nothing}.`);
      return null;
    }
    page.plan(plan);
    ids = { ...ids, incarnation: plan.incarnation ?? ids.incarnation };
    return await replaceHistory(plan);
  } catch (error) {
    if (isCancellation(error)) throw error;
    const failure = failureOf(error) ?? { type: 'Unknown', message: String(error), details: [] };
    const refused = failure.type === 'Summary.NotSmaller' || failure.type === 'Summary.PinsLost';
    page.finish(`Context unchanged: **${failure.type}** ${failure.message}`, failure.type);
    if (refused && force) return null;
    if (failure.type !== 'Store.StaleGeneration') {
      const { type, message } = failure;
      const model = isModelFailureType(type) && !refused;
      await giveUp.executeWithOptions({ summary: type }, [
        { ...ids, type, message, exhausted: refused, model, onlyWaited: hasOnlyWaited(failure) },
      ]);
    }
    throw error;
  }

  async function replaceHistory(planned: Plan): Promise<CompactionOutcome> {
    if (planned.method !== 'model') return commitWith(planned, planned.method, null, null);
    const evicts = planned.throughSeq >= planned.fromSeq;
    try {
      return await commitOfModel(planned);
    } catch (error) {
      // Cancelled by an operator, or the model's part failed for good: is there a deterministic way on?
      if (isCancellation(error)) throw error;
      const failure = failureOf(error);
      if (!failure || !fallsBack(failure.type) || planned.fallback === 'none' || !evicts) throw error;
      page.note(
        `Model out of reach (**${failure.type}** ${failure.message}); the extractive fallback serves.`,
        failure.type,
      );
      const { type, message } = failure;
      const onlyWaited = hasOnlyWaited(failure);
      return await commitWith(planned, 'extractive', null, { type, message, onlyWaited });
    }
  }

  /** Answers of the model that are gone before the commit are asked for again: found where they are, paid where not. */
  async function commitOfModel(planned: Plan): Promise<CompactionOutcome> {
    for (let asked = 1; ; asked++) {
      try {
        return await commitWith(planned, 'model', await summarizeInTime(planned), null);
      } catch (error) {
        const failure = failureOf(error);
        if (failure?.type !== 'Store.DigestGone' || asked === mostAsked) throw error;
        page.note(`Asking again (**${failure.type}** ${failure.message}).`, failure.type);
      }
    }
  }

  async function summarizeInTime(planned: Plan): Promise<Summarized> {
    page.phase('summarizing');
    const deadlineMs = Math.max(1, startTime.getTime() + planned.summarizer.deadlineMs - Date.now());
    const scope = new CancellationScope();
    return scope.run(async () => {
      const deadline = startTimer(deadlineMs, 'deadline of the summary', () => scope.cancel());
      try {
        return await summarize(planned, modelSteps(planned, deadlineMs), page);
      } catch (error) {
        if (!isCancellation(error) || !deadline.fired) throw error;
        const message = `no summary within ${count(planned.summarizer.deadlineMs)} ms`;
        throw ApplicationFailure.nonRetryable(message, 'Llm.Unavailable');
      } finally {
        // Ends the timer, and after a failure what else is in flight.
        scope.cancel();
      }
    });
  }

  async function commitWith(
    planned: Plan,
    method: Plan['method'],
    summarized: Summarized | null,
    failure: CommitRequest['failure'],
  ): Promise<CompactionOutcome> {
    page.phase('committing');
    const { chunks: _chunks, messages: _messages, method: _method, ...references } = planned;
    const request: CommitRequest = {
      ...ids,
      plan: references,
      method,
      written: summarized && writtenBy(summarized),
      failed: failure !== null,
      chunksByRule: summarized?.chunksByRule ?? (failure === null ? 0 : planned.chunks.length),
      chunkFailure: summarized?.failure ?? null,
      digests: summarized?.digests ?? [],
      force,
      repaired: summarized === null,
      startedAt: startTime.getTime(),
      paid: [...new Set(answers.map(({ key }) => key))],
      modelSpans: spansOf(answers),
      workflowId,
      runId,
      failure,
    };
    const summary = `commit generation ${references.baseGeneration + 1} · ${method}${failure ? `, as ${failure.type}` : ''}`;
    let answer = await commit.executeWithOptions({ summary }, [request]);
    if ('repair' in answer) {
      const repaired = await repairedOnce(planned, request, answer.repair);
      answer = await commit.executeWithOptions({ summary: `${summary}, after a repair` }, [repaired]);
    }
    if ('repair' in answer) throw ApplicationFailure.nonRetryable('repaired in vain', 'Summary.NotSmaller');
    page.committed(answer);
    return answer;
  }

  /** The request with the repaired snapshot; with the first one where the repair came to nothing. */
  async function repairedOnce(
    planned: Plan,
    request: CommitRequest,
    problem: RepairProblem,
  ): Promise<CommitRequest> {
    page.phase('repairing');
    const once = { ...request, repaired: true };
    const leftMs = startTime.getTime() + planned.summarizer.deadlineMs - Date.now();
    if (request.written === null || leftMs <= 0) return once;
    const { repair } = modelActivities(leftMs);
    try {
      const label = `repair of the snapshot: ${problem}`;
      const { key, startedAt, endedAt } = await repair.executeWithOptions({ summary: label }, [
        { ...request, problem },
      ]);
      return {
        ...once,
        written: { ...request.written, snapshot: key },
        digests: [...request.digests, key],
        paid: [...request.paid, key],
        modelSpans: endedAt > startedAt ? [...request.modelSpans, [startedAt, endedAt]] : request.modelSpans,
      };
    } catch (error) {
      const failure = failureOf(error);
      if (isCancellation(error) || failure === null || !fallsBack(failure.type)) throw error;
      page.note(`The repair failed (**${failure.type}**); the first snapshot is judged as it is.`);
      return once;
    } finally {
      page.phase('committing');
    }
  }

  function noted(answer: DigestRef): DigestRef {
    answers.push(answer);
    return answer;
  }

  /** Activities as the steps of `summarize`. */
  function modelSteps({ baseGeneration, summarizer }: Plan, deadlineMs: number): ModelSteps {
    const { summarizeChunk, consolidate } = modelActivities(deadlineMs);
    return {
      readChunk: async (step, label) =>
        noted(
          await summarizeChunk.executeWithOptions({ summary: label }, [
            { ...ids, baseGeneration, step, summarizer },
          ]),
        ),
      merge: async (step, label) =>
        noted(
          await consolidate.executeWithOptions({ summary: label }, [
            { ...ids, baseGeneration, step, summarizer },
          ]),
        ),
      overflow: (error) => {
        const failure = failureOf(error);
        if (failure?.type !== 'Llm.ContextOverflow') return null;
        const [detail] = failure.details as [{ halves?: [ChunkRef, ChunkRef] | null }?];
        return { halves: detail?.halves ?? null };
      },
      failed: (type, message) => ApplicationFailure.nonRetryable(message, type),
    };
  }
}

/** How often the model's part is done over because answers vanished; the deadline counts from the beginning. */
const mostAsked = 3;

function writtenBy({ chunks, snapshot, layers, messages }: Summarized): WrittenRefs {
  return { chunks, snapshot, layers, messages };
}

/** What only a model has failed at, the rules may do in its place; a defect, or a database that fails, is for its owner to see. */
function fallsBack(type: string): boolean {
  const others = ['Store.Corrupt', 'Store.DigestGone', 'Worker.Failed'];
  return isModelFailureType(type) || (others.includes(type) && !patched('only model failures fall back'));
}

/** `planning` is what whoever starts a compaction says of it. */
type Phase = 'planning' | 'summarizing' | 'repairing' | 'committing' | 'done' | 'failed';

/** What an operator sees of a compaction: search attributes to find it by, and a page that tells what happened. */
class Page {
  private lines: string[] = [];
  private chunks: string[] = [];
  private state: Phase = 'planning';

  constructor() {
    this.show();
  }

  phase(phase: Phase): void {
    if (phase === this.state) return;
    this.state = phase;
    // A commit takes a moment: not worth the write that an attribute costs the server.
    if (phase !== 'committing') upsertSearchAttributes([{ key: searchAttributes.phase, value: phase }]);
    this.show();
  }

  plan(plan: Plan): void {
    this.state = plan.method === 'model' ? 'summarizing' : 'committing';
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
