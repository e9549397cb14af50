import type { SummaryRequest } from '../../summary/ask/prompts.js';

/**
 * Answers one request of the summarizer with its text. For a failure that the fallback of the policy shall serve, it
 * throws a `PalimpsestError` of type `Llm.*`; any other error is thrown to the caller of `compact`, and nothing changes.
 */
export type Summarizer = (
  request: SummaryRequest,
  about: { kind: 'chunk' | 'fold' | 'merge' | 'repair'; maxTokens: number },
) => string | Promise<string>;
