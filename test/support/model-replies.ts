/** The answers of the scripted model endpoint: good summaries, bad summaries, and every kind of fault. */
import { counterFor } from '../../src/tokens/counter.js';
import { materialIn, saidOf, withoutLabels, wordsFrom } from './material.js';
import type { RecordedRequest } from './model-server.js';

/**
 * `silent`: the answer never begins. `stall-mid-body`: the answer never ends. `drop-*`: the connection is destroyed at that
 * point.
 */
type Fault = 'silent' | 'stall-mid-body' | 'drop-before-headers' | 'drop-mid-body';

export interface Reply {
  status: number;
  body: string | object;
  headers?: Record<string, string>;
  fault?: Fault;
  /** Waits this long before it answers; ends early if the client disconnects. */
  delayMs?: number;
}

/** Decides the answer to one request. */
export type Script = (request: RecordedRequest) => Reply | Promise<Reply>;

export interface Completion {
  message: object;
  finish: string;
  /** Text whose tokens are reported as output. */
  output: string;
  /** Reported in place of the tokens of the request. */
  promptTokens?: number;
  /** Tokens spent on thoughts, counted into the output. */
  reasoningTokens?: number;
  /** Omits the usage. */
  withoutUsage?: boolean;
}

const counter = counterFor('o200k_base');

export function countPrompt({ body }: RecordedRequest): number {
  return body.messages.reduce((sum, { content }) => sum + 4 + counter.count(content), 0);
}

/** A chat completion with status 200. */
export function completion(request: RecordedRequest, answer: Completion): Reply {
  const {
    message,
    finish,
    output,
    promptTokens = countPrompt(request),
    reasoningTokens = 0,
    withoutUsage,
  } = answer;
  const completionTokens = counter.count(output) + reasoningTokens;
  const usage = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    ...(reasoningTokens > 0 ? { completion_tokens_details: { reasoning_tokens: reasoningTokens } } : {}),
  };
  return {
    status: 200,
    body: {
      id: `chatcmpl-${request.number}`,
      object: 'chat.completion',
      created: Math.floor(request.at / 1000),
      model: request.body.model,
      choices: [
        { index: 0, message: { role: 'assistant', ...message }, logprobs: null, finish_reason: finish },
      ],
      ...(withoutUsage ? {} : { usage }),
    },
  };
}

function textReply(
  textOf: (request: RecordedRequest) => string,
  finish = 'stop',
  extra: Partial<Completion> = {},
): Script {
  return (request) => {
    const text = textOf(request);
    return completion(request, { message: { content: text }, finish, output: text, ...extra });
  };
}

/** Answers with a text, by default with the deterministic summary of `summaryOf`. */
export const ok = (text?: string, extra: Partial<Completion> = {}): Script =>
  textReply((request) => text ?? summaryOf(request), 'stop', extra);
/**
 * Answers with this text and words of the record; without such words, the text would not be accepted as a summary of the
 * record.
 */
export const about = (text: string, extra: Partial<Completion> = {}): Script =>
  textReply(({ body }) => saidOf(text, body), 'stop', extra);
export const empty = (): Script => textReply(() => '');
export const blank = (): Script => textReply(() => ' \n\n ');
export const cutOff = (text?: string): Script =>
  textReply((request) => text ?? summaryOf(request).slice(0, 60), 'length');
export const refusalText = (): Script => textReply(() => "I'm sorry, but I can't help with that request.");
export const longerThanInput = (): Script =>
  textReply(
    (request) => `## Current state\n- ${materialOf(request).repeat(2)} and much more than was there before`,
  );
export const contentFilter = (): Script => textReply(() => '', 'content_filter');

/** Refuses in the field that OpenAI has for refusals. */
export const refusalField = (): Script => (request) =>
  completion(request, {
    message: { content: null, refusal: "I can't help with that." },
    finish: 'stop',
    output: 'refused',
  });

/**
 * Answers like a reasoning model whose thoughts take `tokens` of the output limit. If the limit leaves no tokens for a text,
 * the answer is empty.
 */
export const thinking =
  (tokens: number, text?: string): Script =>
  (request) => {
    const enough = limitOf(request) > tokens;
    const output = enough ? (text ?? summaryOf(request)) : '';
    const message = { content: output, reasoning_content: 'Let me think about this session.' };
    return completion(request, {
      message,
      finish: enough ? 'stop' : 'length',
      output,
      reasoningTokens: tokens,
    });
  };

/** Answers like an endpoint that reads only the last `window` tokens and does not say so. */
export const truncating =
  (window: number): Script =>
  (request) =>
    ok(undefined, { promptTokens: Math.min(window, countPrompt(request)) })(request);

export const status =
  (
    code: number,
    body: string | object = failure(`status ${code}`),
    headers: Record<string, string> = {},
  ): Script =>
  () => ({ status: code, body, headers });

export const rateLimited = (retryAfter?: string): Script =>
  status(
    429,
    failure('Rate limit reached', 'rate_limit_exceeded'),
    retryAfter === undefined ? {} : { 'retry-after': retryAfter },
  );

export const contextOverflow = (message = "This model's maximum context length is 8192 tokens."): Script =>
  status(400, failure(message, 'context_length_exceeded'));

/** Answers requests of at most `window` tokens, output limit included, and refuses the others as OpenAI does. */
export const withWindow =
  (window: number, then: Script = ok()): Script =>
  (request) => {
    const needed = countPrompt(request) + limitOf(request);
    if (needed <= window) return then(request);
    const message = `This model's maximum context length is ${window} tokens. However, you requested ${needed} tokens.`;
    return contextOverflow(message)(request);
  };

export const silence = (): Script => () => ({ status: 200, body: '', fault: 'silent' });
export const dropBeforeHeaders = (): Script => () => ({
  status: 200,
  body: '',
  fault: 'drop-before-headers',
});
export const dropMidBody = (): Script => async (request) => ({
  ...(await ok()(request)),
  fault: 'drop-mid-body',
});
export const webPage = (title = 'Sign in'): Script =>
  status(
    200,
    `<!doctype html><html><head><title>${title}</title></head><body><h1>${title}</h1></body></html>`,
    { 'content-type': 'text/html' },
  );

export const delayed =
  (ms: number, then: Script = ok()): Script =>
  async (request) => ({ ...(await then(request)), delayMs: ms });

/** Accepts only `max_completion_tokens`, as OpenAI's reasoning models do. */
export const requiresMaxCompletionTokens =
  (then: Script = ok()): Script =>
  (request) => {
    if (request.body.max_tokens === undefined) return then(request);
    const message =
      "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
    return { status: 400, body: failure(message, 'unsupported_parameter', 'max_tokens') };
  };

/** Accepts only `max_tokens`, as endpoints with strict schemas do. */
export const requiresMaxTokens =
  (then: Script = ok()): Script =>
  (request) => {
    if (request.body.max_completion_tokens === undefined) return then(request);
    const detail = [
      {
        type: 'extra_forbidden',
        loc: ['body', 'max_completion_tokens'],
        msg: 'Extra inputs are not permitted',
      },
    ];
    return { status: 422, body: { detail } };
  };

export const refusesTemperature =
  (then: Script = ok()): Script =>
  (request) => {
    if (request.body.temperature === undefined) return then(request);
    const message =
      "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported.";
    return { status: 400, body: failure(message, 'unsupported_value', 'temperature') };
  };

export function failure(message: string, code: string | null = null, param: string | null = null): object {
  return { error: { message, type: 'invalid_request_error', param, code } };
}

export function limitOf({ body }: RecordedRequest): number {
  return body.max_completion_tokens ?? body.max_tokens ?? 4_096;
}

/** Returns the material of a request: the data between its delimiters, or its last message if it has no delimiters. */
export function materialOf({ body }: RecordedRequest): string {
  return materialIn(body.messages.at(-1)?.content ?? '');
}

/**
 * Returns notes: the beginning of every third message with its reference, or, of notes to be merged, every third line; then
 * `changes` as the changes of the state.
 */
export function notesOn(asked: string, changes: readonly string[] = ['- none']): string {
  const marked = [...asked.matchAll(/^<\d{3}>(\d+) \w+[^\n]*\n([^\n]{0,80})/gm)];
  const lines = marked.map(([, seq, said]) => `- ${said} [m${seq}]`);
  const merged = asked.split('\n').filter((line) => /^- .*\[m\d/.test(line));
  const kept = (lines.length > 0 ? lines : merged).filter((_, index) => index % 3 === 0);
  return ['## Notes', ...kept, '## State', ...changes].join('\n');
}

const identifiers =
  /https?:\/\/[^\s"'<>)]+|(?:[\w.-]*\/)+[\w-]+\.\w+|\b[0-9a-f]{7,40}\b|\b\w+[-_.:]\w*\d\w*\b|\b\w*[A-Z]\w*_\w+\b/g;

/**
 * Returns a summary with sections that depends only on the request. It consists of identifiers and words of the material and
 * has at most a sixth of its length.
 */
function summaryOf(request: RecordedRequest): string {
  const asked = request.body.messages.at(-1)?.content ?? '';
  if (/^Now write "## (?:Notes|State)"|^These notes of the memory/m.test(asked)) return notesOn(asked);
  const material = withoutLabels(materialOf(request));
  const room = Math.min(material.length / 6, limitOf(request) * 2);
  const words = wordsFrom(material, Math.max(10, Math.min(24, Math.floor(room / 24))));
  const spoken = `- ${words.join(', ') || material.length}`;
  const lines = ['## Facts from tools'];
  const found = [...new Set([...material.matchAll(identifiers)].map(([identifier]) => identifier))];
  const closing = ['## Current state', spoken];
  let length = [...lines, ...closing].join('\n').length;
  if (length > room) return `## Current state\n${spoken}`;
  for (const identifier of found) {
    length += identifier.length + 3;
    if (length > room) break;
    lines.push(`- ${identifier}`);
  }
  return [...lines, ...closing].join('\n');
}
