import { setTimeout as sleep } from 'node:timers/promises';
import type { DigestRef } from '../src/compaction/summarize/model-steps.js';
import { isOfChunk } from '../src/compaction/replace/by-rule.js';
import type { Prepared, Question } from '../src/compaction/summarize/questions.js';
import { isFailure, isPassingFailureOfStore, type FailureType, type PalimpsestError } from '../src/errors.js';
import { isAbort } from '../src/llm/classify.js';
import type { SummaryAnswer } from '../src/llm/exchange.js';
import type { Metrics } from '../src/process/metrics.js';
import { aheadRun, type Holder } from '../src/store/compactions/digest-holds.js';
import { storeDigest } from '../src/store/compactions/digests.js';
import type { SessionIds } from '../src/contract/ids.js';
import { inSlices } from '../src/steps.js';
import { isDrawnAgain } from '../src/temporal/failures.js';
import type { AskingOfSession } from './asking.js';
import type { Attempt, Dependencies } from './run.js';
import { findOrLease, whileLeased } from './lease.js';
import { sharedCall } from './shared-call.js';
import { spentBy, withinTokens } from './tokens.js';

/** A stored answer: its reference, and its text, which stays in this process. */
export interface Stored {
  digest: DigestRef;
  text: string;
}

/**
 * Invariant 6 (docs/guarantees.md). Returns the stored answer; if another step is requesting the answer, waits for it first.
 * Otherwise makes one model call and stores the accepted answer under its content key before anything else happens, so that a
 * later attempt finds it. In both cases the answer is held for the compaction. The request is prepared while the lease is
 * claimed. `meanwhile` runs during the call and never rejects.
 */
export function answerOnce(
  dependencies: Dependencies,
  asking: AskingOfSession,
  question: Question,
  payer: Payer,
  attempt: Attempt,
  meanwhile: () => Promise<void> = () => Promise.resolve(),
): Promise<Stored> {
  return sharedCall(attempt, question.key, (signal) =>
    findOrAsk(dependencies, asking, question, payer, { ...attempt, signal }, meanwhile),
  );
}

async function findOrAsk(
  dependencies: Dependencies,
  asking: AskingOfSession,
  question: Question,
  payer: Payer,
  attempt: Attempt,
  meanwhile: () => Promise<void>,
): Promise<Stored> {
  const { pool, metrics } = dependencies;
  const { key } = question;
  const holder = holderOf(payer, attempt);
  const { concurrency } = asking.limits ?? {};
  const leased = { tenant: payer.tenant, key, most: concurrency, holder };
  const startedAt = Date.now();
  let preparing: Promise<Prepared> | undefined;
  const prepare = () => (preparing ??= question.prepare());
  // A failure of the preparation does not matter if another step stores the answer.
  const stored = await findOrLease(pool, leased, attempt, () => void prepare().catch(() => undefined));
  metrics?.digest(stored !== null);
  if (stored) {
    const { text, tokens } = stored;
    // Waiting for another step's call counts as waiting for the model.
    return { digest: { key, tokens, cached: true, startedAt, endedAt: Date.now() }, text };
  }
  try {
    return await whileLeased(pool, leased, attempt, async (call) => {
      const prepared = await prepare();
      return ask(dependencies, asking, { key, ...prepared }, { ...payer, holder }, attempt, {
        asked() {
          call.asked = true;
          return meanwhile();
        },
        stored() {
          call.ended = true;
        },
      });
    });
  } catch (error) {
    if (payer.ahead === true && isFailure(error)) metrics?.aheadFailed(error.type);
    throw error;
  }
}

/** True if every allowed draw of this request failed (see `Attempt`), but the model may still answer other requests. */
export function failsForGood(error: unknown, { draw }: Attempt): error is PalimpsestError {
  return isFailure(error) && !isDrawnAgain(error, draw) && isOfChunk(error);
}

export type Payer = SessionIds & {
  baseGeneration: number;
  /** Requested ahead of a future compaction. Absent: requested for a running compaction. */
  ahead?: boolean;
};

async function ask(
  dependencies: Dependencies,
  { summarizer, counter, incarnation, limits }: AskingOfSession,
  { key, request, tokens, ahead, accept }: Prepared & { key: string },
  { holder, ...payer }: Payer & { holder: Holder },
  attempt: Attempt,
  call: { asked: () => Promise<void>; stored: () => void },
): Promise<Stored> {
  const { pool, model, metrics } = dependencies;
  const startedAt = Date.now();
  let meanwhile: Promise<void> | undefined;
  return withinTokens(
    dependencies,
    attempt,
    {
      ...{ tenant: payer.tenant, model: summarizer.model, limits, caller: `${payer.tenant}/${key}` },
      expected: () => ({ inputTokens: tokens(), outputTokens: request.maxTokens }),
    },
    () => {
      meanwhile = call.asked();
      return counted(metrics, summarizer.model, () =>
        model.summarize(request, {
          model: summarizer.model,
          expectedInputTokens: async () => {
            await inSlices(ahead(), attempt.signal);
            return tokens();
          },
          window: summarizer.window,
          signal: attempt.signal,
        }),
      );
    },
    async (answer) => {
      const endedAt = Date.now();
      await meanwhile;
      const accepted = accept(answer.text);
      const paid: Parameters<typeof storeDigest>[1] = {
        tenant: payer.tenant,
        key,
        text: accepted,
        tokens: counter.count(accepted),
        calls: answer.calls,
        inputTokens: answer.inputTokens,
        outputTokens: answer.outputTokens,
        payerSession: payer.session,
        payerGeneration: payer.baseGeneration + 1,
      };
      const store = () => storeDigest(pool, paid, { holder, incarnation, asker: attempt.asker });
      const { text, tokens } = await storePaid(attempt.signal, store);
      call.stored();
      return { digest: { key, tokens, cached: false, startedAt, endedAt }, text };
    },
  );
}

/** Long enough for the steps between the last answer and the commit, which renews the holds it needs. */
const heldBeyondMs = 60 * 60_000;

/** Holds for work written ahead last until the trigger is met, however long that takes; the commit ends them. */
const heldAheadMs = 10 * 365 * 24 * 60 * 60_000;

/** Returns a holder that holds answers until an hour after the model's deadline, or for work written ahead until the commit. */
function holderOf({ tenant, session, ahead }: Payer, { runId, deadline }: Attempt): Holder {
  if (ahead === true) return { tenant, session, runId: aheadRun, forMs: heldAheadMs };
  return { tenant, session, runId, forMs: Math.max(0, deadline - Date.now()) + heldBeyondMs };
}

/** Stores a digest written by rule, which cost nothing. */
export async function storeByRule(
  { pool, metrics }: Dependencies,
  { counter, incarnation }: AskingOfSession,
  { key, text }: { key: string; text: string },
  payer: Payer,
  failure: FailureType,
  attempt: Attempt,
): Promise<Stored> {
  const at = Date.now();
  const free: Parameters<typeof storeDigest>[1] = {
    ...{ tenant: payer.tenant, key, text, tokens: counter.count(text) },
    ...{ calls: 0, inputTokens: 0, outputTokens: 0 },
    ...{ payerSession: payer.session, payerGeneration: payer.baseGeneration + 1 },
  };
  const stored = await storeDigest(pool, free, { holder: holderOf(payer, attempt), incarnation });
  metrics?.chunkByRule(failure);
  const times = { cached: false, startedAt: at, endedAt: at };
  return { digest: { key, tokens: stored.tokens, ...times, byRule: failure }, text: stored.text };
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

/** A brief outage of the database must not make the same answer cost twice. */
const storingMs = 30_000;

async function storePaid<Stored>(signal: AbortSignal, store: () => Promise<Stored>): Promise<Stored> {
  const until = Date.now() + storingMs;
  for (;;) {
    try {
      return await store();
    } catch (error) {
      if (!isPassingFailureOfStore(error) || Date.now() > until) throw error;
      await sleep(500, undefined, { signal });
    }
  }
}
