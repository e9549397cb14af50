import type { Config } from '../../config/config.js';
import { isFailure } from '../../errors.js';
import { createModelClient } from '../../llm/client.js';
import { adviceFor } from '../terminal/failures.js';
import { seconds } from '../terminal/numbers.js';
import { fail, failed, ok, warn, type Finding } from './doctor-finding.js';

/** One request of a few tokens, as the workers would send it. */
export async function checkModel({ llm, summary }: Config, signal: AbortSignal): Promise<Finding> {
  const check = 'model';
  if (llm.apiKey === undefined)
    return warn(
      check,
      'no key: the deterministic extractive summarizer serves',
      'Set OPENAI_API_KEY (any word for endpoints that need none), OPENAI_BASE_URL and PALIMPSEST_SUMMARY_MODEL; nothing, if that is wanted.',
    );
  const where = llm.baseUrl ?? 'https://api.openai.com/v1';
  const { model } = summary;
  if (model === undefined)
    return warn(
      check,
      `${where} was not asked: without PALIMPSEST_SUMMARY_MODEL each session's own model is used`,
      'Set PALIMPSEST_SUMMARY_MODEL to have it checked here.',
    );
  try {
    const client = createModelClient({ ...llm, timeoutMs: Math.min(30_000, llm.timeoutMs) });
    const request = {
      messages: [{ role: 'user' as const, content: 'Answer with the word ok.' }],
      maxTokens: 64,
    };
    const options = { model, expectedInputTokens: 12, signal };
    const answer = await client.summarize(request, options);
    return ok(
      check,
      `${model} at ${where} answered in ${seconds(answer.ms)} (${answer.inputTokens} tokens in, ${answer.outputTokens} out)`,
    );
  } catch (error) {
    if (!isFailure(error)) return failed(check, error);
    const detail = `${model} at ${where}: ${error.type}: ${error.message}`;
    // It answers; what it says to such a question is not a summary's quality.
    if (error.type === 'Llm.BadOutput' || error.type === 'Llm.RateLimited')
      return warn(check, detail, adviceFor(error.type) ?? '');
    return fail(check, detail, error.hint ?? adviceFor(error.type));
  }
}
