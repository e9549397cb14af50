/** Turns texts into vectors through the `embeddings` of any OpenAI-compatible endpoint. */
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { classify } from './classify.js';
import { openEndpoint, shownUrl, startDeadline, type EndpointOptions } from './client.js';

/** The endpoint for embeddings, and how much of a session a search compares. */
export interface EmbeddingSettings extends Omit<EndpointOptions, 'timeoutMs'> {
  model: string;
  /** Requested vector length; not every model supports it. @default the model's own length */
  dimensions?: number;
  /** Maximum vectors of a session that a search compares, newest first, if the server has no pgvector. @default 20,000 */
  scan?: number;
  /** Prompt and answer tokens per minute of the whole deployment, shared with these calls. @default unlimited */
  tokensPerMinute?: number;
}

export interface Embedder {
  /** Vectors with different names are not comparable. */
  readonly name: string;
  readonly scan: number;
  readonly tokensPerMinute: number | undefined;
  /** Returns a vector for each text, in order. Throws `Llm.*` failures, or the abort. */
  embed(texts: readonly string[], signal?: AbortSignal): Promise<number[][]>;
}

const timeoutMs = 20_000;

/** Maximum texts per request. */
export const mostTexts = 64;

/** Length in UTF-16 code units. A text of this length or less is not shortened further. */
const shortest = 200;

/** Throws `Input.Invalid` for an unusable key or URL. */
export function createEmbedder(settings: EmbeddingSettings): Embedder {
  const { model, dimensions, scan = 20_000, tokensPerMinute, apiKey = '' } = settings;
  const baseUrl = settings.baseUrl ?? 'https://api.openai.com/v1';
  const api = openEndpoint({ apiKey, baseUrl, timeoutMs });
  if (api === null)
    throw invalid(
      'No key for the embeddings endpoint is set.',
      'PALIMPSEST_EMBEDDING_API_KEY',
      'Set PALIMPSEST_EMBEDDING_API_KEY or OPENAI_API_KEY; use any value for endpoints that need no key.',
    );

  async function ask(texts: readonly string[], signal: AbortSignal): Promise<number[][]> {
    const deadline = startDeadline(signal, timeoutMs);
    const body = { model, input: [...texts], encoding_format: 'float' as const };
    try {
      const asked = api!.embeddings.create(
        { ...body, ...(dimensions === undefined ? {} : { dimensions }) },
        { signal: deadline.signal },
      );
      return vectorsOf(await (await asked.asResponse()).json(), texts.length);
    } catch (error) {
      const context = { model, baseUrl: shownUrl(baseUrl), timeoutMs, apiKey, prompts: texts };
      throw classify(deadline.ending() ?? asBadOutput(error), context);
    } finally {
      deadline.stop();
    }
  }

  /** A text too long for the model is represented by its beginning. */
  async function embed(texts: readonly string[], signal: AbortSignal): Promise<number[][]> {
    try {
      return await ask(texts, signal);
    } catch (error) {
      if (!isFailure(error, 'Llm.ContextOverflow')) throw error;
      const [text = ''] = texts;
      if (texts.length === 1) {
        if (text.length <= shortest) throw error;
        return embed([beginningOf(text, Math.floor(text.length / 2))], signal);
      }
      const vectors: number[][] = [];
      for (const one of texts) vectors.push(...(await embed([one], signal)));
      return vectors;
    }
  }

  return {
    name: dimensions === undefined ? model : `${model}/${dimensions}`,
    scan,
    tokensPerMinute,
    embed: (texts, signal = new AbortController().signal) => embed(texts, signal),
  };
}

function beginningOf(text: string, length: number): string {
  return text.slice(0, length).replace(/[\uD800-\uDBFF]$/, '');
}

function asBadOutput(error: unknown): unknown {
  return error instanceof SyntaxError ? badOutput('is not JSON') : error;
}

function vectorsOf(body: unknown, texts: number): number[][] {
  const data: unknown = typeof body === 'object' && body !== null && 'data' in body ? body.data : null;
  if (!Array.isArray(data) || data.length !== texts) throw badOutput(`does not contain ${texts} embeddings`);
  const vectors = new Array<number[]>(texts);
  for (const [place, one] of (data as unknown[]).entries()) {
    const { index = place, embedding } = (one ?? {}) as { index?: unknown; embedding?: unknown };
    const isVector =
      Array.isArray(embedding) &&
      embedding.some((number) => number !== 0) &&
      embedding.every((number) => Number.isFinite(number));
    if (!isVector || typeof index !== 'number' || !(index in data))
      throw badOutput('does not contain a vector');
    vectors[index] = embedding as number[];
  }
  const [first] = vectors;
  if (vectors.some((vector) => vector?.length !== first?.length))
    throw badOutput('contains vectors of different lengths');
  return vectors;
}

function badOutput(what: string): PalimpsestError {
  return new PalimpsestError('Llm.BadOutput', `The answer of the embeddings endpoint ${what}.`, {
    hint: 'Check that PALIMPSEST_EMBEDDING_MODEL names an embedding model.',
  });
}
