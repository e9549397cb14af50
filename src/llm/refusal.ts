import { APIError } from 'openai';
import { redactorFor } from '../summary/redaction/redact.js';

/** What an endpoint says when it refuses, whatever shape its body has. Empty strings where it says nothing. */
export interface ErrorBody {
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

  /** Everything that can be matched against wordings. */
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

/** Proxies answer with HTML pages; what they say is in the text between the tags. */
function plainText(text: string): string {
  const bounded = text.slice(0, 20_000);
  if (!/^\s*</.test(bounded)) return bounded.trim();
  return bounded
    .replace(/<(style|script)\b[\s\S]*?<\/\1>/gi, ' ')
    .replace(/<[^<>]*>/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
}

/** Longest part of a provider's message that is repeated in a failure; failures are kept in workflow histories. */
const quotedChars = 300;
/** The shortest run of characters that counts as an echo of the prompt. */
const echoChars = 20;

/** The shortest piece of our own key that is taken for an echo of it: providers show its ends. */
const keyEchoChars = 6;
const withoutSecrets = redactorFor({ secrets: true, patterns: [] }, 'model endpoint')!;
/** What a message says a key is, and words as long and mixed as keys are. */
const saidToBeKey =
  /\b((?:api[ _-]?)?(?:key|token|secret)\b[^\w\n]{1,3}(?:provided\W{1,3})?)([\w*.+/=-]{6,500})/gi;
const mixedWord = /[\w*+/=-]{20,500}/g;
/** Ids of requests, which support asks for, and names with a date, such as those of models. */
const noKey =
  /^(?:req|chatcmpl|msg|resp|cmpl|trace|gen)[_-]|^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^[a-z]+(?:[-.][a-z0-9]{1,8})*$/;

/**
 * A provider's message, fit to be shown: bounded, without credentials, and without anything it repeats of the prompt
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

/** Without our own key and every longer piece of it. */
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
