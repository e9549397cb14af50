import OpenAI, { APIConnectionTimeoutError } from 'openai';
import { invalid, PalimpsestError } from '../errors.js';
import type { SummaryRequest } from '../summary/ask/prompts.js';
import { readAnswer } from './answer.js';
import { CallAborted } from './classify.js';
import { Endpoint } from './endpoint.js';
import { Exchange, type Send, type SummarizeOptions, type SummaryAnswer } from './exchange.js';
import { EndpointRefusal, errorBodyOf } from './refusal.js';

export interface ModelClient {
  /** False without a key: no requests are possible, and the extractive summarizer is used. */
  readonly available: boolean;
  /**
   * Requests one summary. Throws `Llm.*` failures (with `details.retryAfterMs` if the endpoint requests a delay), or the abort.
   */
  summarize(request: SummaryRequest, options: SummarizeOptions): Promise<SummaryAnswer>;
}

export interface EndpointOptions {
  apiKey?: string;
  /** @default https://api.openai.com/v1 */
  baseUrl?: string;
  /** Maximum time of one call, including bodies and repeated requests. */
  timeoutMs: number;
}

/** `openai` reads only `{error: …}` bodies, but other endpoints put their message elsewhere. */
class CompatibleEndpoint extends OpenAI {
  protected override makeStatusError(
    status: number,
    body: unknown,
    text: string | undefined,
    headers: Headers,
  ): EndpointRefusal {
    return new EndpointRefusal(status, errorBodyOf(body ?? text), headers);
  }
}

/** The longest delay of a timer. */
const longestTimeoutMs = 2 ** 31 - 1;

/** Returns null without a key. Throws `Input.Invalid` for an unusable key or URL. */
export function openEndpoint({ apiKey: key, baseUrl: baseURL, timeoutMs }: EndpointOptions): OpenAI | null {
  const apiKey = checkedKey(key);
  if (baseURL !== undefined) checkUrl(baseURL);
  if (apiKey === '') return null;
  // The log level is set here because `OPENAI_LOG=debug` would print prompts.
  return new CompatibleEndpoint({
    apiKey,
    adminAPIKey: null,
    baseURL,
    maxRetries: 0,
    // The deadline of `startDeadline` comes first; the header is the one that `openai` sends.
    timeout: longestTimeoutMs,
    defaultHeaders: { 'X-Stainless-Timeout': String(Math.trunc(timeoutMs / 1_000)) },
    logLevel: 'off',
  });
}

/**
 * Creates a client of any OpenAI-compatible endpoint. It repeats a request only after changing it: after a refusal,
 * or with a higher output limit. Temporal handles all other retries.
 */
export function createModelClient({
  apiKey: key,
  baseUrl = 'https://api.openai.com/v1',
  timeoutMs,
}: EndpointOptions): ModelClient {
  const apiKey = checkedKey(key);
  const api = openEndpoint({ apiKey, baseUrl, timeoutMs });
  if (api === null) return { available: false, summarize: () => Promise.reject(noKey()) };
  const endpoint = new Endpoint();
  return {
    available: true,
    async summarize(request, options) {
      const prompts = request.messages.map(({ content }) => content);
      const context = { model: options.model, baseUrl: shownUrl(baseUrl), timeoutMs, apiKey, prompts };
      const deadline = startDeadline(options.signal, timeoutMs);
      const send: Send = async (body) => {
        try {
          return await readAnswer(
            await api.chat.completions.create(body, { signal: deadline.signal }).asResponse(),
          );
        } catch (error) {
          throw deadline.ending() ?? error;
        }
      };
      try {
        return await new Exchange(request, options, endpoint, send, context).run();
      } finally {
        deadline.stop();
      }
    },
  };
}

interface Deadline {
  signal: AbortSignal;
  /** The reason for ending the call on our side, the caller's abort or the time limit; null if it was not ended. */
  ending(): Error | null;
  stop(): void;
}

/** After a stall, a timer runs before sockets are read. In this time an answer is read that came during the stall. */
const readingMs = 100;

/** Applies one limit to headers, bodies and repeated requests; the timeout of `openai` ends with the headers. */
export function startDeadline(caller: AbortSignal, timeoutMs: number): Deadline {
  const controller = new AbortController();
  const abort = (): void => controller.abort();
  let timer = setTimeout(() => {
    timer = setTimeout(abort, readingMs);
  }, timeoutMs);
  caller.addEventListener('abort', abort, { once: true });
  if (caller.aborted) abort();
  return {
    signal: controller.signal,
    ending() {
      if (caller.aborted) return new CallAborted(caller.reason);
      return controller.signal.aborted ? new APIConnectionTimeoutError() : null;
    },
    stop() {
      clearTimeout(timer);
      caller.removeEventListener('abort', abort);
    },
  };
}

/** Refuses, without quoting it, a key with characters that no header can carry; the error text of `fetch` would reveal it. */
function checkedKey(key = ''): string {
  const trimmed = key.trim();
  if (/^[\x21-\x7e]*$/.test(trimmed)) return trimmed;
  throw invalid(
    'The key has characters that an HTTP header cannot carry.',
    'OPENAI_API_KEY',
    'Copy it again, without quotes or spaces.',
  );
}

function checkUrl(baseUrl: string): void {
  const url = URL.canParse(baseUrl) ? new URL(baseUrl) : null;
  if (url !== null && /^https?:$/.test(url.protocol) && url.username === '' && url.password === '') return;
  throw invalid(
    'The URL must be an http or https URL without credentials.',
    'OPENAI_BASE_URL',
    'Example: http://127.0.0.1:11434/v1.',
  );
}

/** Omits the query, because some gateways take keys there. */
export function shownUrl(baseUrl: string): string {
  const { origin, pathname } = new URL(baseUrl);
  return `${origin}${pathname}`;
}

function noKey(): PalimpsestError {
  const hint =
    'Set OPENAI_API_KEY (any value for endpoints that need no key), or policy.summary.method: extractive.';
  return new PalimpsestError('Llm.Rejected', 'No key for a model endpoint is set.', { hint });
}
