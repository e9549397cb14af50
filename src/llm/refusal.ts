import { APIError } from 'openai';
import { redactorFor } from '../summary/redaction/redact.js';

/** The message of a refusal in any body format. Fields are empty strings if the endpoint says nothing. */
interface ErrorBody {
  message: string;
  code: string;
  type: string;
  param: string;
}

/** An answer with an error status, or an error reported inside an answer with status 200. */
export class EndpointRefusal extends APIError<number, Headers, ErrorBody> {
  constructor(status: number, body: ErrorBody, headers: Headers) {
    super(status, body, undefined, headers);
  }

  /** All text that can be matched against wordings. */
  get text(): string {
    return [this.error.code, this.error.type, this.error.message].filter(Boolean).join(' ');
  }
}

type Fields = Record<string, unknown>;

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function wordOf(value: unknown): string {
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';
}

/**
 * Reads an error body: `{error: {message, code, …}}` (OpenAI), `{error: "…"}` (Ollama, TGI), `{message, …}` (Mistral, older
 * vLLM), `{detail: "…" | [{msg, loc}]}` (FastAPI), `{errors: […]}`, `{error: {metadata: {raw}}}` (OpenRouter), or plain text.
 */
export function errorBodyOf(body: unknown): ErrorBody {
  if (typeof body === 'string') return { message: plainText(body), code: '', type: '', param: '' };
  if (Array.isArray(body)) return errorBodyOf(body[0]);
  if (!isFields(body)) return { message: '', code: '', type: '', param: '' };
  const nested = isFields(body['message']) ? body['message'] : undefined;
  const inner = body['error'] ?? body['detail'] ?? body['errors'] ?? nested;
  if (inner !== undefined && inner !== null && typeof inner !== 'boolean') {
    const read = errorBodyOf(inner);
    return {
      ...read,
      type: read.type || wordOf(body['error_type']),
      message: read.message || wordOf(body['message']),
    };
  }
  const raw = isFields(body['metadata']) ? wordOf(body['metadata']['raw']) : '';
  const message = wordOf(body['message']) || wordOf(body['msg']) || wordOf(body['error_description']);
  return {
    message: plainText([message, raw].filter(Boolean).join(': ')),
    code: wordOf(body['code']),
    type: wordOf(body['type']),
    param: wordOf(body['param']) || wordOf(Array.isArray(body['loc']) ? body['loc'].at(-1) : undefined),
  };
}

/** Proxies answer with HTML pages; the message is the text between the tags. */
function plainText(text: string): string {
  const bounded = text.slice(0, 20_000);
  if (!/^\s*</.test(bounded)) return bounded.trim();
  return bounded
    .replace(/<(style|script)\b[\s\S]*?<\/\1>/gi, ' ')
    .replace(/<[^<>]*>/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
}

/** Maximum length of a provider's message that a failure quotes; workflow histories keep failures. */
const quotedChars = 300;
/** The shortest run of characters that counts as an echo of the prompt. */
const echoChars = 20;

/** Minimum length of a piece of our own key that is removed from a message: providers quote the ends of a key. */
const keyEchoChars = 6;
const withoutSecrets = redactorFor({ secrets: true, patterns: [] }, 'model endpoint')!;
/** Matches text that a message calls a key, and words as long and mixed as keys are. */
const saidToBeKey =
  /\b((?:api[ _-]?)?(?:key|token|secret)\b[^\w\n]{1,3}(?:provided\W{1,3})?)([\w*.+/=-]{6,500})/gi;
const mixedWord = /[\w*+/=-]{20,500}/g;
/** Matches request ids, which support teams ask for, and names with a date, such as model names. */
const noKey =
  /^(?:req|chatcmpl|msg|resp|cmpl|trace|gen)[_-]|^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^[a-z]+(?:[-.][a-z0-9]{1,8})*$/;

/**
 * Returns a provider's message in a form that may be shown: shortened, without credentials, and without any echo of the prompt
 * (validation errors often quote the offending input).
 */
export function quote(
  message: string,
  { apiKey, prompts }: { apiKey: string; prompts: readonly string[] },
): string {
  const masked = withoutEchoesOf(message.slice(0, 8 * quotedChars), apiKey)
    .replace(/\b(?:sk|gsk|xai|key)-[\w*.-]{6,}/g, '[key]')
    .replace(/\bBearer\s+\S+/gi, 'Bearer [key]')
    .replace(saidToBeKey, (said: string, before: string, word: string) =>
      /[\d*]|[a-z]{16}/i.test(word) ? `${before}[key]` : said,
    )
    .replace(mixedWord, (word) =>
      /\d/.test(word) && /[a-z]/i.test(word) && !noKey.test(word) ? '[key]' : word,
    );
  const shown = withoutEchoes(withoutSecrets(masked).slice(0, 2 * quotedChars), prompts)
    .replace(/\s+/g, ' ')
    .trim();
  return shown.length <= quotedChars ? shown : `${shown.slice(0, quotedChars - 1)}…`;
}

/** Replaces our own key, and every piece of it with at least `keyEchoChars` characters, by `[key]`. */
function withoutEchoesOf(message: string, apiKey: string): string {
  if (apiKey.length < keyEchoChars) return message;
  let left = message;
  for (let at = 0; at < left.length; at++) {
    let length = 0;
    while (at + length < left.length && apiKey.includes(left.slice(at, at + length + 1))) length++;
    if (length >= keyEchoChars) left = `${left.slice(0, at)}[key]${left.slice(at + length)}`;
  }
  return left;
}

function withoutEchoes(message: string, prompts: readonly string[]): string {
  const sources = prompts.flatMap((prompt) => [prompt, JSON.stringify(prompt)]);
  const echoed = new Set<number>();
  for (let at = 0; at + echoChars <= message.length; at += 1) {
    const piece = message.slice(at, at + echoChars);
    if (!sources.some((source) => source.includes(piece))) continue;
    for (let i = at; i < at + echoChars; i += 1) echoed.add(i);
  }
  let kept = '';
  for (let i = 0; i < message.length; i += 1) {
    if (!echoed.has(i)) kept += message[i] ?? '';
    else if (!echoed.has(i - 1)) kept += '[…]';
  }
  return kept;
}

/**
 * Wordings by which endpoints say that a request is larger than the model's window. There is no standard: OpenAI has a
 * code, others have only a sentence, and gateways wrap the sentence of their provider, sometimes under another status. Each row
 * holds one wording and its sources; the tests have one full message for each.
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
 * Sentences of rate limits that waiting cannot solve, because the single request exceeds the allowance of a whole minute. Only
 * these sentences turn a 429 into an overflow.
 */
const aboveTheWholeAllowance =
  /request too large|tokens must be reduced|reduce (?:the length|your message size)/i;

/** Failures of credentials, payment and addresses never concern the size, whatever the text says. */
const neverAboutSize: ReadonlySet<number> = new Set([401, 402, 403, 404]);

/** Returns true if a smaller request would have been answered. `text` is the provider's message with its code and type. */
export function saysContextOverflow(status: number, text: string): boolean {
  if (neverAboutSize.has(status)) return false;
  if (status === 413) return true;
  if (status === 429) return aboveTheWholeAllowance.test(text);
  return wordings.some(({ pattern }) => pattern.test(text));
}
