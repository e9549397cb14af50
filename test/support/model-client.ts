import { afterEach, beforeEach } from 'vitest';
import { PalimpsestError } from '../../src/errors.js';
import { createModelClient, type ModelClient } from '../../src/llm/client.js';
import type { SummarizeOptions, SummaryAnswer } from '../../src/llm/exchange.js';
import type { SummaryRequest } from '../../src/summary/ask/prompts.js';
import { startModelServer, type ModelServer } from './model-server.js';

export const apiKey = 'sk-test-0123456789abcdef';
export const secret = 'The launch code of the northern silo is 4711-ALPHA';
export const never: AbortSignal = new AbortController().signal;

export const asked: SummaryRequest = {
  messages: [
    { role: 'system', content: 'Summarize.' },
    { role: 'user', content: secret },
  ],
  maxTokens: 500,
};

/** A model client and its own scripted endpoint, both new for every test of a file. */
export interface ModelFixture {
  server: ModelServer;
  client: ModelClient;
  /** Requests a summary of `secret` in at most 500 tokens, by default from `test-model`. */
  summarize(options?: Partial<SummarizeOptions>, by?: ModelClient): Promise<SummaryAnswer>;
  /** Another client of the same endpoint. */
  clientWith(timeoutMs: number): ModelClient;
  /** Output limits of the requests so far, in either field. */
  limits(): (number | undefined)[];
}

export function useModelClient(): ModelFixture {
  const clientWith = (timeoutMs: number) =>
    createModelClient({ apiKey, baseUrl: fixture.server.url, timeoutMs });
  const fixture = {
    clientWith,
    summarize: (options = {}, by = fixture.client) =>
      by.summarize(asked, { model: 'test-model', expectedInputTokens: 40, signal: never, ...options }),
    limits: () => fixture.server.requests.map(({ body }) => body.max_completion_tokens ?? body.max_tokens),
  } as ModelFixture;
  beforeEach(async () => {
    fixture.server = await startModelServer();
    fixture.client = clientWith(20_000);
  });
  afterEach(() => fixture.server.close());
  return fixture;
}

/** Resolves to the typed failure of a call; fails the test if the call succeeds or throws another error. */
export async function failureOf(call: Promise<unknown>): Promise<PalimpsestError> {
  const thrown: unknown = await call.then(
    () => new Error('It answered.'),
    (reason: unknown) => reason,
  );
  if (thrown instanceof PalimpsestError) return thrown;
  throw thrown;
}
