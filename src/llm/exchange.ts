import { setTimeout as sleep } from 'node:timers/promises';
import { isFailure, PalimpsestError } from '../errors.js';
import type { SummaryRequest } from '../summary/ask/prompts.js';
import { wholeLines } from '../summary/journal/notes.js';
import type { Answer } from './answer.js';
import { classify, type CallContext } from './classify.js';
import type { ChatRequest, Endpoint } from './endpoint.js';
import { EndpointRefusal } from './refusal.js';

export interface SummaryAnswer {
  text: string;
  /** Prompt tokens of all calls made for this answer. */
  inputTokens: number;
  /** Output tokens of all calls made for this answer, including reasoning if the endpoint counts it. */
  outputTokens: number;
  /** The endpoint reported no usage for at least one call; the counts include our estimate for it. */
  usageEstimated: boolean;
  /** Requests sent, including refused ones. */
  calls: number;
  /** Wall time of all requests for this answer. */
  ms: number;
  /** The model as it was requested. */
  model: string;
}

export interface SummarizeOptions {
  model: string;
  /**
   * Our own count of the request's tokens, used to estimate unreported usage and to detect silent truncation. A function is
   * called after the request was sent, so that counting costs no extra time; only a raised output limit needs the count before.
   */
  expectedInputTokens: number | (() => Promise<number>);
  /** Aborting it ends the request at once and throws an error that `isAbort` recognises. */
  signal: AbortSignal;
  /** The summarizer's window, in tokens; a raised output limit stays within it. Absent: no limit. */
  window?: number;
}

/**
 * Number of refusals that can teach something about an endpoint (schema, limit field, temperature, largest limit), plus one.
 */
const mostLessons = 5;

/** Milliseconds within which a request, and others sent with it, have left the process. */
const leavingMs = 30;

/** Sends one request and reads its answer. Rejects with errors that `classify` handles. */
export type Send = (body: ChatRequest) => Promise<Answer>;

/** The requests for one summary: the first request, requests that were changed after a refusal, and one with a raised limit. */
export class Exchange {
  readonly #started = performance.now();
  #calls = 0;
  #inputTokens = 0;
  #outputTokens = 0;
  #usageEstimated = false;
  #expected: number | undefined;

  constructor(
    readonly request: SummaryRequest,
    readonly options: SummarizeOptions,
    readonly endpoint: Endpoint,
    readonly send: Send,
    readonly context: CallContext,
  ) {}

  async run(): Promise<SummaryAnswer> {
    const { model } = this.options;
    const wanted = this.request.maxTokens;
    let { answer, limit } = await this.#askAsUsual();
    const whole = this.request.wholeLines && isCutOff(answer) ? wholeLines(answer.text) : '';
    if (whole !== '') answer = { ...answer, text: whole, finish: 'stop' };
    if (isCutOff(answer)) {
      // An answer without visible text has used up the limit for reasoning. It needs more room than a text that was cut off.
      const raised = await this.#fitting(limit * (answer.text === '' && limit <= wanted ? 4 : 2));
      if (raised > limit) {
        const thoughtful = answer.reasoned || answer.text === '';
        ({ answer, limit } = { answer: await this.#ask(raised), limit: raised });
        if (thoughtful && !isCutOff(answer)) this.endpoint.rememberLimit(model, limit, wanted);
      }
    }
    this.#check(answer);
    return {
      text: answer.text,
      ...this.#spent(),
      usageEstimated: this.#usageEstimated,
      ms: Math.round(performance.now() - this.#started),
      model,
    };
  }

  /** Uses the limit that this model is known to need, or the wanted limit if the prompt leaves no room for the known one. */
  async #askAsUsual(): Promise<{ answer: Answer; limit: number }> {
    const wanted = this.request.maxTokens;
    const limit = await this.#fitting(
      Math.ceil(wanted * this.endpoint.traitsOf(this.options.model).limitFactor),
    );
    try {
      return { answer: await this.#ask(limit), limit };
    } catch (error) {
      if (limit <= wanted || !isFailure(error, 'Llm.ContextOverflow')) throw error;
      return { answer: await this.#ask(wanted), limit: wanted };
    }
  }

  async #ask(limit: number): Promise<Answer> {
    const { model } = this.options;
    for (let lessons = 0; ; lessons += 1) {
      const body = this.endpoint.requestFor(model, this.request, limit);
      this.#calls += 1;
      try {
        const sending = this.send(body);
        await Promise.race([sending, sleep(leavingMs)]);
        const expected = await this.#expectedInputTokens();
        const answer = await sending;
        this.#count(answer, expected);
        if (this.endpoint.hasTruncated(model, expected, answer)) throw this.#truncated(answer, expected);
        return answer;
      } catch (error) {
        const learnt =
          error instanceof EndpointRefusal && lessons < mostLessons && this.endpoint.learnFrom(error, body);
        if (!learnt) throw classify(error, this.context);
      }
    }
  }

  async #fitting(limit: number): Promise<number> {
    const { window = Infinity, model } = this.options;
    const { largestOutput } = this.endpoint.traitsOf(model);
    if (limit <= this.request.maxTokens) return Math.min(limit, largestOutput);
    // Counts differ by a few percent between tokenizers, and chat templates add tokens.
    const room = Math.floor(window - 1.05 * (await this.#expectedInputTokens()));
    return Math.min(limit, Math.max(room, this.request.maxTokens), largestOutput);
  }

  async #expectedInputTokens(): Promise<number> {
    const { expectedInputTokens: expected } = this.options;
    this.#expected ??= typeof expected === 'number' ? expected : await expected();
    return this.#expected;
  }

  #count({ text, promptTokens, outputTokens }: Answer, expectedInputTokens: number): void {
    this.#inputTokens += promptTokens ?? expectedInputTokens;
    this.#outputTokens += outputTokens ?? Math.ceil(text.length / 4);
    this.#usageEstimated ||= promptTokens === null || outputTokens === null;
  }

  #spent(): { inputTokens: number; outputTokens: number; calls: number } {
    return { inputTokens: this.#inputTokens, outputTokens: this.#outputTokens, calls: this.#calls };
  }

  /** Throws if the answer is not a summary. The details contain its cost. */
  #check({ text, finish, refused, reasoned }: Answer): void {
    const details = { finish: finish.slice(0, 64), ...this.#spent() };
    const bad = (message: string, hint: string): PalimpsestError =>
      new PalimpsestError('Llm.BadOutput', message, { hint, details });
    if (finish === 'content_filter') {
      const hint = 'A content filter refused this text; the policy decides whether the fallback is used.';
      throw new PalimpsestError('Llm.Rejected', 'A content filter stopped the answer.', {
        hint,
        details: { ...details, filtered: true },
      });
    }
    if (finish === 'error' || finish === 'insufficient_system_resource') {
      throw new PalimpsestError('Llm.Unavailable', 'The endpoint interrupted its answer.', {
        hint: 'The call is retried later.',
        details,
      });
    }
    if (finish === 'model_length' || finish === 'model_context_window_exceeded') {
      const hint = 'The chunk is halved. Set policy.summary.contextWindow to the window of this model.';
      throw new PalimpsestError('Llm.ContextOverflow', 'The answer reached the end of the window.', {
        hint,
        details,
      });
    }
    if (refused || finish === 'refusal')
      throw bad('The model refused to summarize.', 'Another model may accept the request.');
    if (finish === 'length') {
      throw bad(
        'The answer was cut off at the output limit.',
        'Raise policy.summary.maxTokens, or use a model that reasons less.',
      );
    }
    if (text === '') {
      throw bad(
        reasoned ? 'The answer contains reasoning but no text.' : 'The answer is empty.',
        'Check the model and its chat template.',
      );
    }
  }

  #truncated({ promptTokens }: Answer, expectedInputTokens: number): PalimpsestError {
    const { model } = this.options;
    const message = `The endpoint read ${promptTokens} of about ${expectedInputTokens} prompt tokens and reported no error.`;
    const hint = `Give model "${model}" a larger window at the endpoint (Ollama: num_ctx), or set policy.summary.contextWindow to its actual window.`;
    return new PalimpsestError('Llm.ContextOverflow', message, {
      hint,
      details: { promptTokens, expectedInputTokens, ...this.#spent() },
    });
  }
}

function isCutOff({ finish, refused }: Answer): boolean {
  return finish === 'length' && !refused;
}
