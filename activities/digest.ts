import { setTimeout as sleep } from 'node:timers/promises';
import type { Pool } from 'pg';
import type { ModelClient } from '../src/llm/client.js';
import { isFailure } from '../src/errors.js';
import { findDigest, storeDigest, type DigestRow } from '../src/store/digests.js';
import { PROMPT_VERSION, type SummaryRequest } from '../src/summary/prompts.js';
import type { SessionIds } from '../src/temporal/names.js';
import { counterFor, type TokenCounter } from '../src/tokens/counter.js';
import type { SummarizerSettings } from './plan.js';
import type { Attempt } from './run.js';

/** A stored model result, by reference. */
export interface DigestRef {
  /** Content key of the stored text (hex sha256). */
  key: string;
  /** Tokens of the stored text. */
  tokens: number;
  /** True when it was there already and nothing was paid. */
  cached: boolean;
  /** Unix milliseconds of the model call; equal where none was made. */
  startedAt: number;
  endedAt: number;
}

interface Question {
  request: SummaryRequest;
  /** Tokens of the request. Asked for while the model is at work, because counting a long one takes as long as sending it. */
  tokens: () => number;
  /** Returns the text to store or throws a typed failure. */
  accept: (text: string) => string;
}

interface Asking {
  pool: Pool;
  model: ModelClient;
  ids: SessionIds;
  baseGeneration: number;
  key: string;
  kind: 'chunk' | 'fold' | 'merge';
  summarizer: SummarizerSettings;
  attempt: Attempt;
}

/**
 * Invariant 6: the stored answer where there is one; otherwise one model call whose accepted answer is stored under
 * its content key before anything else happens, so that a later attempt finds it.
 */
export async function answerOnce(
  { pool, model, ids, baseGeneration, key, kind, summarizer, attempt }: Asking,
  question: () => Promise<Question>,
): Promise<DigestRef> {
  const stored = await findDigest(pool, ids.tenant, key);
  if (stored) {
    const at = Date.now();
    return { key, tokens: stored.tokens, cached: true, startedAt: at, endedAt: at };
  }
  const { request, tokens, accept } = await question();
  const counter = counterFor(summarizer.tokenizer);
  const startedAt = Date.now();
  const answer = await model.summarize(request, {
    model: summarizer.model,
    expectedInputTokens: tokens,
    window: summarizer.window,
    signal: attempt.signal,
  });
  const endedAt = Date.now();
  const text = accept(answer.text);
  const digest = await storePaid(pool, attempt.signal, {
    tenant: ids.tenant,
    key,
    kind,
    text,
    tokens: counter.count(text),
    model: answer.model,
    promptVersion: PROMPT_VERSION,
    calls: answer.calls,
    inputTokens: answer.inputTokens,
    outputTokens: answer.outputTokens,
    ms: answer.ms,
    payerSession: ids.session,
    payerGeneration: baseGeneration + 1,
  });
  return { key, tokens: digest.tokens, cached: false, startedAt, endedAt };
}

/** A database that is away for a moment must not cost the answer once more. */
const storingMs = 30_000;

async function storePaid(
  pool: Pool,
  signal: AbortSignal,
  digest: Parameters<typeof storeDigest>[1],
): Promise<DigestRow> {
  const until = Date.now() + storingMs;
  for (;;) {
    try {
      return await storeDigest(pool, digest);
    } catch (error) {
      if (!isFailure(error, 'Store.Unavailable') || Date.now() > until) throw error;
      await sleep(500, undefined, { signal });
    }
  }
}

/** Tokens of a request, each message with its framing. */
export function countRequest({ messages }: SummaryRequest, counter: TokenCounter): number {
  return messages.reduce((sum, { content }) => sum + counter.count(content) + 4, 0);
}

/** The same number at every call, counted at the first. */
export function counted(count: () => number): () => number {
  let tokens: number | undefined;
  return () => (tokens ??= count());
}
