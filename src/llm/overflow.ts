/**
 * How endpoints say "this request is larger than what the model can read". There is no standard: OpenAI has a code,
 * others only a sentence, and gateways wrap the sentence of whatever is behind them, sometimes under another status.
 * One row a wording, with who says it; the tests hold one full message for each.
 */
const wordings: readonly { says: string; pattern: RegExp }[] = [
  { says: 'OpenAI, Azure, Groq, Cerebras (code)', pattern: /context[_ ]length[_ ]exceeded/i },
  { says: 'OpenAI, Azure, vLLM, DeepSeek, OpenRouter, Mistral, SGLang', pattern: /maximum context length/i },
  { says: 'OpenAI, newer models', pattern: /exceeds? the (?:model'?s )?context (?:window|length)/i },
  { says: 'OpenAI, one message too long', pattern: /string_above_max_length|string too long\. expected/i },
  {
    says: 'OpenAI, tokens a minute smaller than the request',
    pattern: /request too large for .{0,200}(?:limit|tokens)/is,
  },
  { says: 'Groq', pattern: /reduce the length of (?:the|your) (?:messages|prompt|input)/i },
  { says: 'vLLM, the prompt alone', pattern: /longer than the maximum model length/i },
  {
    says: 'vLLM, SGLang',
    pattern: /exceeds? (?:the )?(?:model'?s )?max(?:imum)?[ _](?:model|context|input)[ _]len/i,
  },
  { says: 'SGLang, Together', pattern: /longer than the model'?s context length/i },
  { says: 'Hugging Face TGI', pattern: /`inputs`.{0,60}must (?:be <=|have less than)/is },
  { says: 'llama.cpp', pattern: /exceed_context_size_error|exceeds? the available context size/i },
  { says: 'llama.cpp, older', pattern: /context size has been exceeded|n_ctx too small/i },
  { says: 'LM Studio', pattern: /greater than the context length|context length of only \d+/i },
  {
    says: 'LM Studio, Ollama',
    pattern: /(?:reached|exceed(?:s|ed)?) (?:the )?(?:max(?:imum)? )?context length/i,
  },
  {
    says: 'Anthropic and gateways to it, Fireworks',
    pattern: /prompt is too long|exceed context limit|request_too_large/i,
  },
  { says: 'Bedrock', pattern: /input is too long for requested model|too many input tokens/i },
  { says: 'LiteLLM', pattern: /ContextWindowExceededError/i },
  { says: 'Gemini', pattern: /input token count.{0,60}exceeds the maximum/is },
  { says: 'xAI', pattern: /maximum prompt length is [\d,]+/i },
  { says: 'Moonshot', pattern: /exceeded model token limit/i },
  { says: 'DashScope', pattern: /range of input length should be/i },
  { says: 'Z.ai', pattern: /prompt exceeds max length|model_context_window_exceeded/i },
  { says: 'MiniMax', pattern: /context window exceeds limit/i },
  { says: 'Cohere', pattern: /too many tokens: /i },
  { says: 'GitHub Models', pattern: /request body too large for .{0,80}tokens|tokens_limit_reached/is },
  { says: 'GitHub Copilot', pattern: /prompt token count of \d+ exceeds|model_max_prompt_tokens_exceeded/i },
  { says: 'watsonx', pattern: /number of input tokens .{0,40}cannot exceed/is },
];

/**
 * Sentences of rate limits that no waiting cures: the single request is above the allowance of a whole minute.
 * Only these make an overflow of a 429.
 */
const aboveTheWholeAllowance =
  /request too large|tokens must be reduced|reduce (?:the length|your message size)/i;

/** Credentials, money and addresses are never about size, whatever the text says. */
const neverAboutSize: ReadonlySet<number> = new Set([401, 402, 403, 404]);

/** True where a smaller request would have been answered. `text` is the provider's message with its code and type. */
export function saysContextOverflow(status: number, text: string): boolean {
  if (neverAboutSize.has(status)) return false;
  if (status === 413) return true;
  if (status === 429) return aboveTheWholeAllowance.test(text);
  return wordings.some(({ pattern }) => pattern.test(text));
}
