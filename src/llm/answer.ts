import { APIConnectionError } from 'openai';
import { PalimpsestError } from '../errors.js';
import { EndpointRefusal, errorBodyOf } from './refusal.js';

/** What is used of a chat completion. */
export interface Answer {
  /** The visible text, without reasoning; may be empty. */
  text: string;
  finish: string;
  /** The model's or the gateway's refusal field is filled. */
  refused: boolean;
  /** The model thought before it answered: such models spend the output limit on thoughts too. */
  reasoned: boolean;
  /** Tokens as reported; null where the endpoint does not say. */
  promptTokens: number | null;
  outputTokens: number | null;
  /** The largest reading of how many prompt tokens were processed: some gateways report cached ones beside, not within. */
  processedTokens: number | null;
}

/** A completion is a few kilobytes; a body beyond this is something else (a download, an endless page). */
const largestBody = 16 * 1024 * 1024;

/** Reads a response with a success status. Bodies that end too early throw `APIConnectionError`. */
export async function readAnswer(response: Response): Promise<Answer> {
  const text = await readBody(response);
  const body = parseBody(text);
  const error = field(body, 'error');
  const choice: unknown = listOf(field(body, 'choices'))[0];
  const choiceError = field(choice, 'error');
  // Gateways answer 200 before they know that the provider behind them fails (OpenRouter: error with a numeric code).
  if (error || choiceError) {
    const read = errorBodyOf(error ? { error } : { error: choiceError });
    const status = /^[45]\d\d$/.test(read.code) ? Number(read.code) : 502;
    throw new EndpointRefusal(status, read, response.headers);
  }
  if (choice === undefined) {
    throw badBody('The model endpoint answered with JSON that is no chat completion (no choices).');
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
    // JSON that begins well and does not end is a connection closed by a proxy in the middle, not an answer.
    const trimmed = text.trim();
    if (trimmed.startsWith('{') && !trimmed.endsWith('}'))
      throw new APIConnectionError({ cause: Error('unfinished body') });
    const kind =
      trimmed === ''
        ? 'an empty body'
        : trimmed.startsWith('<')
          ? 'a web page'
          : 'something that is not JSON';
    throw badBody(`The model endpoint answered with ${kind} where a chat completion was expected.`, error);
  }
}

function badBody(message: string, cause?: unknown): PalimpsestError {
  const hint =
    'Check that OPENAI_BASE_URL is the API (mostly ending in /v1) and that no proxy or login page answers for it.';
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

/** Open models put their thoughts in front of the answer as `<think>…</think>`; a cut-off one never closes it. */
function withoutThoughts(text: string): { visible: string; thought: boolean } {
  const opening = /^\s*<(think|thinking)>/.exec(text);
  if (opening === null) return { visible: text, thought: false };
  const closing = `</${opening[1]}>`;
  const end = text.indexOf(closing);
  return { visible: end < 0 ? '' : text.slice(end + closing.length), thought: true };
}

/** Content is a string, or a list of parts of which only the text ones are the answer (Mistral lists thoughts too). */
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

/** A count of zero says nothing: Ollama reports it for a prompt it had cached. */
function countOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isFinite(value) && value > 0 ? value : null;
}
