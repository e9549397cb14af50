import { setTimeout as sleep } from 'node:timers/promises';
import type { DigestRef } from '../src/compaction/summarize.js';
import type { Asking, Question } from '../src/compaction/questions.js';
import { isFailure } from '../src/errors.js';
import { isAbort, type SummaryAnswer } from '../src/llm/client.js';
import type { Metrics } from '../src/metrics.js';
import { findDigest, storeDigest, type DigestRow } from '../src/store/digests.js';
import type { SessionIds } from '../src/temporal/names.js';
import type { Dependencies } from './dependencies.js';
import type { Attempt } from './run.js';
import { spentBy, withinTokens } from './tokens.js';

/**
 * Invariant 6: the stored answer where there is one; otherwise one model call whose accepted answer is stored under
 * its content key before anything else happens, so that a later attempt finds it.
 */
export async function answerOnce(
  dependencies: Dependencies,
  { summarizer, prompt, counter, incarnation }: Asking & { incarnation: string },
  { key, kind, prepare }: Question,
  payer: SessionIds & { baseGeneration: number },
  attempt: Attempt,
): Promise<DigestRef> {
  const { pool, model, metrics } = dependencies;
  const stored = await findDigest(pool, payer.tenant, key);
  metrics?.digest(stored !== null);
  if (stored) {
    const at = Date.now();
    return { key, tokens: stored.tokens, cached: true, startedAt: at, endedAt: at };
  }
  const { request, tokens, accept } = await prepare();
  const startedAt = Date.now();
  const answer = await withinTokens(
    dependencies,
    attempt,
    { caller: `${payer.tenant}/${key}`, expected: () => tokens() + request.maxTokens },
    () =>
      counted(metrics, summarizer.model, () =>
        model.summarize(request, {
          model: summarizer.model,
          expectedInputTokens: tokens,
          window: summarizer.window,
          signal: attempt.signal,
        }),
      ),
  );
  const endedAt = Date.now();
  const text = accept(answer.text);
  const paid: Parameters<typeof storeDigest>[1] = {
    tenant: payer.tenant,
    key,
    kind,
    text,
    tokens: counter.count(text),
    model: answer.model,
    promptVersion: prompt.version,
    calls: answer.calls,
    inputTokens: answer.inputTokens,
    outputTokens: answer.outputTokens,
    ms: answer.ms,
    payerSession: payer.session,
    payerGeneration: payer.baseGeneration + 1,
  };
  const digest = await storePaid(attempt.signal, () => storeDigest(pool, paid, incarnation));
  return { key, tokens: digest.tokens, cached: false, startedAt, endedAt };
}

async function counted(
  metrics: Metrics | undefined,
  model: string,
  call: () => Promise<SummaryAnswer>,
): Promise<SummaryAnswer> {
  const startedAt = performance.now();
  const seconds = () => (performance.now() - startedAt) / 1000;
  try {
    const answer = await call();
    metrics?.modelAnswered({ ...answer, model, result: 'ok', seconds: seconds() });
    return answer;
  } catch (error) {
    const result = isFailure(error) ? error.type : isAbort(error) ? 'aborted' : 'error';
    metrics?.modelAnswered({ ...spentBy(error), model, result, seconds: seconds() });
    throw error;
  }
}

/** A database that is away for a moment must not cost the answer once more. */
const storingMs = 30_000;

async function storePaid(signal: AbortSignal, store: () => Promise<DigestRow>): Promise<DigestRow> {
  const until = Date.now() + storingMs;
  for (;;) {
    try {
      return await store();
    } catch (error) {
      if (!isFailure(error, 'Store.Unavailable') || Date.now() > until) throw error;
      await sleep(500, undefined, { signal });
    }
  }
}
