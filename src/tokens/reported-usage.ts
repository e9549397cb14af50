/** Reads the usage that a provider reports for a request into this product's form. */
import { invalid } from '../errors.js';

/** Tokens as the provider reported them for one request. */
export interface ReportedUsage {
  /** Tokens of the whole request, including those read from or written to a cache. */
  inputTokens: number;
  outputTokens: number;
  /** Model as the provider names it. @default the policy's model */
  model?: string;
  /**
   * Tokens of the whole request as Palimpsest counts them: the context that was sent, tools and instructions.
   * @default the session's context and the policy's overhead
   */
  countedTokens?: number;
}

/** `usage` of OpenAI's chat completions. `prompt_tokens` includes cached tokens. */
interface ChatCompletionsUsage {
  prompt_tokens: number;
  completion_tokens?: number | null;
  prompt_tokens_details?: object | null;
  completion_tokens_details?: object | null;
  model?: string;
}

/** `usage` of OpenAI's Responses API. `input_tokens` includes cached tokens. */
interface ResponsesUsage {
  input_tokens: number;
  output_tokens?: number | null;
  input_tokens_details?: object | null;
  output_tokens_details?: object | null;
  model?: string;
}

/** `usage` of Anthropic's messages. `input_tokens` excludes tokens read from or written to a cache: a request is the sum of all three. */
interface AnthropicUsage {
  input_tokens: number;
  cache_creation_input_tokens?: number | null;
  cache_read_input_tokens?: number | null;
  output_tokens?: number | null;
  model?: string;
}

/** `usageMetadata` of Gemini. `promptTokenCount` includes cached content. */
interface GeminiUsage {
  promptTokenCount?: number;
  candidatesTokenCount?: number | null;
  thoughtsTokenCount?: number | null;
  model?: string;
}

/** `usage` of the AI SDK, version 6. `inputTokens` includes cached tokens; it is undefined if the provider reported nothing. */
interface AiSdkUsage {
  inputTokens: number | undefined;
  inputTokenDetails: object;
  outputTokens: number | undefined;
  outputTokenDetails?: object;
  totalTokens?: number;
  model?: string;
}

/** Usage as callers give it: the provider's object, or two numbers. Other fields of a provider are ignored. */
export type UsageReport =
  | ReportedUsage
  | ChatCompletionsUsage
  | ResponsesUsage
  | AnthropicUsage
  | GeminiUsage
  | AiSdkUsage
  | { usageMetadata: GeminiUsage; model?: string };

type Fields = Readonly<Record<string, unknown>>;

interface Shape {
  /** The field that identifies this form. */
  mark: string;
  /** Fields to add up. The first is required; the others may be absent or null. */
  input: readonly [string, ...string[]];
  output: readonly string[];
}

/** Includes the underscored field names of Gemini's Python SDK. */
const shapes: readonly Shape[] = [
  { mark: 'prompt_tokens', input: ['prompt_tokens'], output: ['completion_tokens'] },
  {
    mark: 'input_tokens',
    input: ['input_tokens', 'cache_creation_input_tokens', 'cache_read_input_tokens'],
    output: ['output_tokens'],
  },
  {
    mark: 'promptTokenCount',
    input: ['promptTokenCount'],
    output: ['candidatesTokenCount', 'thoughtsTokenCount'],
  },
  {
    mark: 'prompt_token_count',
    input: ['prompt_token_count'],
    output: ['candidates_token_count', 'thoughts_token_count'],
  },
];

const aiSdk: Shape = { mark: 'inputTokenDetails', input: ['inputTokens'], output: ['outputTokens'] };

const ownFields = ['inputTokens', 'outputTokens', 'model', 'countedTokens'];
const forms =
  'Give the unchanged usage object of OpenAI, Anthropic, Gemini or the AI SDK, or {inputTokens, outputTokens, model?, countedTokens?} including cached tokens.';

/** Null if the AI SDK says that the provider reported nothing. Throws `Input.Invalid` with the path of the field. */
export function readUsage(usage: unknown, path = 'usage'): ReportedUsage | null {
  if (!isFields(usage)) throw invalid(`${path} must be an object`, path, forms);
  for (const wrapper of ['usageMetadata', 'usage_metadata']) {
    if (!isFields(usage[wrapper])) continue;
    const read = readUsage(usage[wrapper], `${path}.${wrapper}`);
    return read && named(read, usage.model ?? read.model, path);
  }
  if (aiSdk.mark in usage) return isAbsent(usage.inputTokens) ? null : readShape(aiSdk, usage, path);
  if ('inputTokens' in usage) return ownUsage(usage, path);
  const shape = shapes.find(({ mark }) => mark in usage);
  if (shape === undefined) throw invalid(`${path} has an unknown form`, path, forms);
  return readShape(shape, usage, path);
}

function readShape({ input, output }: Shape, usage: Fields, path: string): ReportedUsage {
  const [whole, ...parts] = input;
  const inputTokens = optional(usage, parts, path) + tokensIn(usage, whole, path);
  if (!Number.isSafeInteger(inputTokens))
    throw invalid(`${path} adds up to ${inputTokens} tokens`, path, forms);
  return named({ inputTokens, outputTokens: optional(usage, output, path) }, usage.model, path);
}

function ownUsage(usage: Fields, path: string): ReportedUsage {
  const unknown = Object.keys(usage).find((field) => !ownFields.includes(field));
  if (unknown !== undefined) {
    throw invalid(
      `${path} has no field ${JSON.stringify(unknown)}`,
      `${path}.${unknown}`,
      `Known fields: ${ownFields.join(', ')}. ${forms}`,
    );
  }
  const inputTokens = tokensIn(usage, 'inputTokens', path);
  const outputTokens = tokensIn(usage, 'outputTokens', path);
  const counted = isAbsent(usage.countedTokens)
    ? {}
    : { countedTokens: tokensIn(usage, 'countedTokens', path) };
  return named({ inputTokens, outputTokens, ...counted }, usage.model, path);
}

function named(reported: Omit<ReportedUsage, 'model'>, model: unknown, path: string): ReportedUsage {
  if (isAbsent(model)) return reported;
  if (typeof model === 'string') return { ...reported, model };
  throw invalid(`${path}.model must be a string`, `${path}.model`, 'Give the name of the model, or omit it.');
}

function optional(usage: Fields, fields: readonly string[], path: string): number {
  return fields.reduce((sum, field) => sum + (isAbsent(usage[field]) ? 0 : tokensIn(usage, field, path)), 0);
}

function tokensIn(usage: Fields, field: string, path: string): number {
  const tokens = usage[field];
  if (typeof tokens === 'number' && Number.isSafeInteger(tokens) && tokens >= 0) return tokens;
  throw invalid(
    `${path}.${field} must be a whole number of tokens, not ${JSON.stringify(tokens)}`,
    `${path}.${field}`,
    'Give the number that the provider reported for the request of the first assistant message of this turn, including cached tokens.',
  );
}

function isAbsent(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
