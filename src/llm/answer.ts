import { APIConnectionError } from 'openai';
import { PalimpsestError } from '../errors.js';
import { EndpointRefusal, errorBodyOf } from './refusal.js';

/** The parts of a chat completion that are used. */
export interface Answer {
  /** The visible text without reasoning; may be empty. */
  text: string;
  finish: string;
  /** The refusal field of the model or gateway is set. */
  refused: boolean;
  /** The model reasoned before it answered; such models also spend the output limit on reasoning. */
  reasoned: boolean;
  /** Tokens as reported; null if the endpoint reports none. */
  promptTokens: number | null;
  outputTokens: number | null;
  /** The largest plausible number of processed prompt tokens: some gateways report cached tokens separately. */
  processedTokens: number | null;
}

/** A completion is a few kilobytes; a larger body is something else (a download, an endless page). */
const largestBody = 16 * 1024 * 1024;

/** Reads a response with a success status. Throws `APIConnectionError` if the body ends early. */
export async function readAnswer(response: Response): Promise<Answer> {
  const text = await readBody(response);
  const body = parseBody(text);
  const error = field(body, 'error');
  const choice: unknown = listOf(field(body, 'choices'))[0];
  const choiceError = field(choice, 'error');
  // Gateways answer 200 before they know whether their provider fails (OpenRouter: error with a numeric code).
  if (error || choiceError) {
    const read = errorBodyOf(error ? { error } : { error: choiceError });
    const status = /^[45]\d\d$/.test(read.code) ? Number(read.code) : 502;
    throw new EndpointRefusal(status, read, response.headers);
  }
  if (choice === undefined) {
    throw badBody('The model endpoint answered with JSON that is not a chat completion (no choices).');
  }
  return answerOf(choice, field(body, 'usage'));
}

async function readBody(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  let bytes = 0;
  try {
    for await (const piece of (response.body ?? []) as AsyncIterable<Uint8Array>) {
      bytes += piece.byteLength;
      if (bytes > largestBody)
        throw badBody(`The model endpoint's answer is larger than ${largestBody} bytes.`);
      text += decoder.decode(piece, { stream: true });
    }
  } catch (error) {
    if (error instanceof PalimpsestError) throw error;
    throw new APIConnectionError({ cause: error instanceof Error ? error : undefined });
  }
  return text + decoder.decode();
}

function parseBody(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    // JSON that starts well but does not end means that a proxy closed the connection midway.
    const trimmed = text.trim();
    if (trimmed.startsWith('{') && !trimmed.endsWith('}'))
      throw new APIConnectionError({ cause: Error('unfinished body') });
    const kind =
      trimmed === '' ? 'an empty body' : trimmed.startsWith('<') ? 'a web page' : 'content that is not JSON';
    throw badBody(`The model endpoint answered with ${kind} where a chat completion was expected.`, error);
  }
}

function badBody(message: string, cause?: unknown): PalimpsestError {
  const hint =
    'Check that OPENAI_BASE_URL is the URL of the API (usually ending in /v1) and that no proxy or login page answers instead.';
  return new PalimpsestError('Llm.BadOutput', message, {
    hint,
    cause: cause instanceof SyntaxError ? undefined : cause,
  });
}

function answerOf(choice: unknown, usage: unknown): Answer {
  const message = field(choice, 'message');
  const { visible, thought } = withoutThoughts(textOf(field(message, 'content')));
  const promptTokens = countOf(field(usage, 'prompt_tokens'));
  const cachedBeside = ['cache_read_input_tokens', 'cache_creation_input_tokens'].map(
    (name) => countOf(field(usage, name)) ?? 0,
  );
  const thoughtTokens = countOf(field(field(usage, 'completion_tokens_details'), 'reasoning_tokens'));
  const thoughts = [
    field(message, 'reasoning_content'),
    field(message, 'reasoning'),
    field(message, 'thinking'),
  ];
  return {
    text: visible.trim(),
    finish: textOf(field(choice, 'finish_reason')),
    refused: textOf(field(message, 'refusal')).trim() !== '',
    reasoned: thought || thoughtTokens !== null || thoughts.some((value) => textOf(value).trim() !== ''),
    promptTokens,
    outputTokens: countOf(field(usage, 'completion_tokens')),
    processedTokens:
      promptTokens === null ? null : promptTokens + cachedBeside.reduce((sum, count) => sum + count, 0),
  };
}

/** Open models put their reasoning before the answer as `<think>…</think>`; a cut-off one never closes the tag. */
function withoutThoughts(text: string): { visible: string; thought: boolean } {
  const opening = /^\s*<(think|thinking)>/.exec(text);
  if (opening === null) return { visible: text, thought: false };
  const closing = `</${opening[1]}>`;
  const end = text.indexOf(closing);
  return { visible: end < 0 ? '' : text.slice(end + closing.length), thought: true };
}

/** Content is a string or a list of parts, of which only text parts are the answer (Mistral also lists reasoning). */
function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return listOf(content)
    .map((part) => (typeof part === 'string' ? part : isTextPart(part) ? textOf(field(part, 'text')) : ''))
    .join('');
}

function isTextPart(part: unknown): boolean {
  const type = field(part, 'type');
  return type === 'text' || type === 'output_text' || type === undefined;
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

/** A count of zero carries no information: Ollama reports it for a cached prompt. */
function countOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) && value > 0 ? value : null;
}
