import { LRUCache } from 'lru-cache';
import type OpenAI from 'openai';
import type { SummaryRequest } from '../summary/ask/prompts.js';
import type { SummarySchema } from '../summary/answer/structured.js';
import type { Answer } from './answer.js';
import { type EndpointRefusal, saysContextOverflow } from './refusal.js';

export type ChatRequest = OpenAI.Chat.ChatCompletionCreateParamsNonStreaming;

/** The facts that the process has learnt about one model at one base URL. Every field starts with a value that most endpoints accept. */
export interface Traits {
  /** OpenAI's reasoning models take `max_completion_tokens`; most other endpoints know only `max_tokens`. */
  limitField: 'max_tokens' | 'max_completion_tokens';
  /** Whether a temperature may be sent; reasoning models accept only 1. */
  temperature: boolean;
  /** Whether the endpoint accepts a JSON schema for its answer (`response_format`); false once it has refused one. */
  schema: boolean;
  /** The largest output limit that the endpoint accepts, known once it has refused a larger one. */
  largestOutput: number;
  /** Output tokens to request per token wanted, because reasoning counts against the limit. */
  limitFactor: number;
  /** The highest share of our count that the endpoint reported for a complete prompt; null until a prompt was certainly complete. */
  countRatio: number | null;
  /** The largest prompt that the endpoint has reported, in tokens. */
  largestPrompt: number;
}

const reasoningModel = /(?:^|\/)(?:o\d|gpt-5)/i;

/** Below this number of tokens, a difference of counts does not indicate truncation. */
const smallestSuspect = 1_000;
/** If the endpoint reports less than this share of our own count, it has silently truncated the prompt. */
const wholeShare = 0.8;
/** No tokenizer counts less than this share of our own count. */
const smallestRatio = 0.4;
/** A model that needs more than this many times the wanted output for reasoning is unsuitable as a summarizer. */
const largestFactor = 8;

/** Policies may name any model; the process remembers the ones used last. */
const mostModels = 1_000;

/** Remembers which requests the models of one base URL accept, learnt from refusals. */
export class Endpoint {
  readonly #models = new LRUCache<string, Traits>({ max: mostModels });

  traitsOf(model: string): Traits {
    return (
      this.#models.get(model) ?? {
        limitField: reasoningModel.test(model) ? 'max_completion_tokens' : 'max_tokens',
        temperature: !reasoningModel.test(model),
        schema: true,
        largestOutput: Infinity,
        limitFactor: 1,
        countRatio: null,
        largestPrompt: 0,
      }
    );
  }

  requestFor(model: string, { messages, schema }: SummaryRequest, limit: number): ChatRequest {
    const traits = this.traitsOf(model);
    return {
      model,
      messages,
      [traits.limitField]: Math.min(limit, traits.largestOutput),
      ...(traits.temperature ? { temperature: 0 } : {}),
      ...(traits.schema && schema ? { response_format: formatOf(schema) } : {}),
    };
  }

  /** Learns from a refusal of `sent`. Returns false if nothing was learnt, so that a repeated request would fail again. */
  learnFrom(refusal: EndpointRefusal, sent: ChatRequest): boolean {
    const lesson = lessonOf(refusal, sent);
    if (lesson !== null) this.#remember(sent.model, lesson);
    return lesson !== null;
  }

  /** A reasoning model needed `limit` tokens to answer with at most `wanted`: request that ratio from now on. */
  rememberLimit(model: string, limit: number, wanted: number): void {
    const { limitFactor } = this.traitsOf(model);
    this.#remember(model, { limitFactor: Math.min(Math.max(limitFactor, limit / wanted), largestFactor) });
  }

  /**
   * Returns whether the endpoint has read only a part of the prompt, judged by the prompt tokens that it reports. An endpoint that
   * truncates fills its window. So if it reports clearly fewer tokens than for an earlier prompt, this prompt was complete, and
   * its tokenizer is coarser than ours: the reported share of our count becomes `countRatio`. This is done only while no ratio
   * is known for the model.
   */
  hasTruncated(model: string, expected: number, { processedTokens }: Answer): boolean {
    if (processedTokens === null || expected <= smallestSuspect) return false;
    const { countRatio, largestPrompt } = this.traitsOf(model);
    this.#remember(model, { largestPrompt: Math.max(largestPrompt, processedTokens) });
    const ratio = processedTokens / expected;
    const isWhole = ratio >= wholeShare * Math.min(countRatio ?? 1, 1);
    const isCoarser = countRatio === null && ratio >= smallestRatio && processedTokens <= 0.9 * largestPrompt;
    if (!isWhole && !isCoarser) return true;
    this.#remember(model, { countRatio: Math.max(countRatio ?? 0, ratio) });
    return false;
  }

  #remember(model: string, lesson: Partial<Traits>): void {
    this.#models.set(model, { ...this.traitsOf(model), ...lesson });
  }
}

function formatOf({ type, properties, required, additionalProperties }: SummarySchema) {
  const schema = { type, properties, required, additionalProperties };
  return { type: 'json_schema', json_schema: { name: 'summary', strict: true, schema } } as const;
}

/** The names that endpoints give to a field that they do not accept: the field, its kind, or its implementation. */
const namesSchema =
  /response_?format|json_?schema|structured[ _-]?outputs?|json mode|guided|grammar|additionalProperties|output_config/i;

const refusesField =
  /unsupported|not supported|not permitted|unrecogni[sz]ed|unknown|unexpected|extra_forbidden|extra (?:inputs|fields)|use '?max/i;

function lessonOf(refusal: EndpointRefusal, sent: ChatRequest): Partial<Traits> | null {
  const { status, text, error } = refusal;
  // Some servers fail on the schema itself, because they have no grammar for it or forward the field unread.
  const onSchema = [400, 404, 415, 422, 500, 501].includes(status) && !saysContextOverflow(status, text);
  if (sent.response_format && onSchema && (namesSchema.test(error.param) || namesSchema.test(text)))
    return { schema: false };
  if ((status !== 400 && status !== 422) || saysContextOverflow(status, text)) return null;
  const limitField = sent.max_completion_tokens === undefined ? 'max_tokens' : 'max_completion_tokens';
  const other = limitField === 'max_tokens' ? 'max_completion_tokens' : 'max_tokens';
  const names = (name: string): boolean =>
    error.param === name || new RegExp(`(?<!\\w)${name}(?!\\w)`).test(text);
  if (sent.temperature !== undefined && names('temperature')) return { temperature: false };
  if (names(limitField) && refusesField.test(text)) return { limitField: other };
  const largestOutput = largestOutputIn(text.replaceAll(sent.model, ''), sent[limitField] ?? 0);
  return largestOutput === null ? null : { largestOutput };
}

/**
 * Returns the limit that an endpoint names when it refuses ours, as in "supports at most 4096 completion tokens, whereas you
 * provided 8000", "8000 > 4096, which is the maximum allowed number of output tokens", "the valid range of max_tokens is [1,
 * 8192]".
 */
function largestOutputIn(text: string, sent: number): number | null {
  if (!/max_(?:completion_)?tokens|(?:completion|output) tokens/i.test(text)) return null;
  if (!/too large|at most|less than or equal|maximum|valid range|exceed/i.test(text)) return null;
  const smaller = [...text.matchAll(/\d+/g)]
    .map(([digits]) => Number(digits))
    .filter((n) => n >= 16 && n < sent);
  return smaller.length === 0 ? null : Math.max(...smaller);
}
