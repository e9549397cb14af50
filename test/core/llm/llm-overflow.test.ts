/**
 * An overflow that is not recognised ends a compaction; another failure taken for one halves chunks in vain. The cases are one
 * real message of each endpoint, and endpoints that truncate silently.
 */
import { describe, expect, test } from 'vitest';
import type { SummaryRequest } from '../../../src/summary/ask/prompts.js';
import { failureOf, never, useModelClient } from '../../support/model-client.js';
import * as model from '../../support/model-replies.js';

const llm = useModelClient();
const error = (message: string, code: string | null = null) => model.failure(message, code);

describe('context overflow is recognised for all providers', () => {
  const wordings: [string, number, string | object][] = [
    ['OpenAI', 400, error('Your messages resulted in 9000 tokens.', 'context_length_exceeded')],
    [
      'OpenAI, in words',
      400,
      error(
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
      ),
    ],
    [
      'OpenAI, newer',
      400,
      error('Your input exceeds the context window of this model. Please adjust your input and try again.'),
    ],
    [
      'OpenAI, one string',
      400,
      error(
        'Invalid message: string too long. Expected a string with maximum length 10485760',
        'string_above_max_length',
      ),
    ],
    [
      'Azure',
      400,
      error("This model's maximum context length is 16385 tokens, however you requested 17000 tokens"),
    ],
    [
      'vLLM',
      400,
      {
        object: 'error',
        message: "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
        code: 400,
      },
    ],
    [
      'vLLM, limit beside prompt',
      400,
      error(
        "'max_tokens' or 'max_completion_tokens' is too large: 500. This model's maximum context length is 4096 tokens and your request has 3900 input tokens",
      ),
    ],
    ['vLLM, offline limits', 400, error('The prompt has 5000 tokens, which exceeds max_model_len 4096.')],
    [
      'vLLM, prompt alone',
      400,
      error('The decoder prompt (length 5000) is longer than the maximum model length of 4096.'),
    ],
    [
      'SGLang',
      400,
      error("The input (5000 tokens) is longer than the model's context length (4096 tokens)."),
    ],
    [
      'TGI',
      422,
      {
        error: 'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000',
        error_type: 'validation',
      },
    ],
    [
      'llama.cpp',
      400,
      {
        error: {
          code: 400,
          message: 'the request exceeds the available context size, try increasing it',
          type: 'exceed_context_size_error',
        },
      },
    ],
    ['llama.cpp, older', 500, error('context size has been exceeded')],
    [
      'LM Studio',
      400,
      {
        error:
          'Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens',
      },
    ],
    ['Ollama', 400, { error: 'prompt too long; exceeded max context length by 904 tokens' }],
    [
      'Anthropic',
      400,
      {
        type: 'error',
        error: {
          type: 'invalid_request_error',
          message: 'prompt is too long: 215000 tokens > 200000 maximum',
        },
      },
    ],
    [
      'Anthropic, limit beside prompt',
      400,
      error('input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000'),
    ],
    [
      'Anthropic, bytes',
      413,
      { type: 'error', error: { type: 'request_too_large', message: 'Request exceeds the maximum size' } },
    ],
    ['Bedrock', 400, { message: 'Input is too long for requested model.' }],
    ['LiteLLM', 400, error('litellm.ContextWindowExceededError: litellm.BadRequestError: too long')],
    [
      'Mistral',
      400,
      {
        object: 'error',
        message:
          'Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length',
        code: 3051,
      },
    ],
    ['Groq', 400, error('Please reduce the length of the messages or completion.')],
    [
      'Groq, minute',
      413,
      error(
        'Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000',
        'rate_limit_exceeded',
      ),
    ],
    [
      'DeepSeek',
      400,
      error("This model's maximum context length is 65536 tokens. However, you requested 70000 tokens"),
    ],
    [
      'OpenRouter',
      400,
      {
        error: {
          message: 'Provider returned error',
          code: 400,
          metadata: { raw: "This endpoint's maximum context length is 131072 tokens." },
        },
      },
    ],
    [
      'Gemini',
      400,
      [
        {
          error: {
            code: 400,
            message:
              'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).',
          },
        },
      ],
    ],
    [
      'xAI',
      400,
      {
        code: 'Client specified an invalid argument',
        error: "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
      },
    ],
    ['Moonshot', 400, error('Invalid request: Your request exceeded model token limit: 131072')],
    [
      'DashScope',
      400,
      error('<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]'),
    ],
    ['Z.ai', 400, error('Prompt exceeds max length', '1261')],
    ['MiniMax', 400, error('invalid params, context window exceeds limit (2013)')],
    ['Cohere', 400, { message: 'too many tokens: total number of tokens in the prompt exceeds the limit' }],
    ['Fireworks', 400, error('The prompt is too long: 9000, model maximum context length: 8191')],
    [
      'GitHub Models',
      400,
      error('Request body too large for m model. Max size: 8000 tokens.', 'tokens_limit_reached'),
    ],
    [
      'GitHub Copilot',
      400,
      error('prompt token count of 70000 exceeds the limit of 64000', 'model_max_prompt_tokens_exceeded'),
    ],
    [
      'watsonx',
      400,
      error('the number of input tokens 5000 cannot exceed the total tokens limit 4096 for this model'),
    ],
    [
      'a gateway, as a bad gateway',
      502,
      error("upstream: This model's maximum context length is 4096 tokens"),
    ],
    [
      'a gateway, inside a 200',
      200,
      { error: { code: 400, message: "This endpoint's maximum context length is 4096 tokens" } },
    ],
  ];
  test.each(wordings)('%s', async (_name, code, body) => {
    llm.server.reply(model.status(code, body));
    expect((await failureOf(llm.summarize())).type).toBe('Llm.ContextOverflow');
    expect(llm.server.requests).toHaveLength(1);
  });

  const others: [string, number, string][] = [
    ['a bad key', 401, 'No key; the maximum context length of this plan is 0'],
    ['a rate', 429, 'Rate limit reached: your context window of requests exceeds the limit of 5 a minute'],
    ['another field too long', 400, "Invalid 'user': expected at most 64 characters"],
    ['a model', 400, 'The model `m` does not support a context this policy asks for'],
  ];
  test.each(others)('%s is not an overflow', async (_name, code, message) => {
    llm.server.reply(model.status(code, error(message)));
    expect((await failureOf(llm.summarize())).type).not.toBe('Llm.ContextOverflow');
  });
});

describe('a prompt that the endpoint truncates in silence', () => {
  const long: SummaryRequest = {
    messages: [{ role: 'user', content: 'All work and no play. '.repeat(1_000) }],
    maxTokens: 500,
  };
  const ask = (expectedInputTokens: number, request = long) =>
    llm.client.summarize(request, { model: 'local', expectedInputTokens, signal: never });

  test('is an overflow, not a digest', async () => {
    llm.server.reply(model.truncating(4_096));
    const failure = await failureOf(ask(6_000));
    expect(failure.type).toBe('Llm.ContextOverflow');
    expect(failure.details).toMatchObject({ promptTokens: 4_096, expectedInputTokens: 6_000, calls: 1 });
    expect((await failureOf(ask(6_000))).type).toBe('Llm.ContextOverflow');
  });

  test.each([
    ['a fifth less is how tokenizers differ', { promptTokens: 4_800 }, 6_000],
    ['short prompts say nothing', { promptTokens: 300 }, 1_000],
    ['an endpoint without usage says nothing', { withoutUsage: true }, 6_000],
    ['a count of zero says nothing (cached prompt)', { promptTokens: 0 }, 6_000],
  ])('%s', async (_name, extra, expected) => {
    llm.server.reply(model.ok('Fine.', extra));
    expect((await ask(expected)).text).toBe('Fine.');
  });

  test('a coarser tokenizer is distinguished by the first smaller prompt', async () => {
    const counted = (promptTokens: number) => model.ok('Fine.', { promptTokens });
    llm.server.reply([counted(4_200), counted(2_100), counted(4_200)]);
    expect((await failureOf(ask(6_000))).type).toBe('Llm.ContextOverflow');
    expect((await ask(3_000)).text).toBe('Fine.');
    expect((await ask(6_000)).text).toBe('Fine.');
    llm.server.reply(counted(3_000));
    expect((await failureOf(ask(6_000))).type).toBe('Llm.ContextOverflow');
  });
});
