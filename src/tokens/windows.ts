/**
 * Context windows of hosted models in tokens. A row applies to every name that starts with it; the longest match wins.
 * Open-weight models are missing on purpose: their window depends on the server's settings, so the policy must give it.
 */
const windows: Record<string, number> = {
  // platform.openai.com/docs/models
  'gpt-3.5-turbo': 16_385,
  'gpt-3.5-turbo-instruct': 4_096,
  'gpt-35-turbo': 16_385, // the spelling of Azure deployments
  'gpt-4': 8_192,
  'gpt-4-32k': 32_768,
  'gpt-4-turbo': 128_000,
  'gpt-4-0125': 128_000,
  'gpt-4-1106': 128_000,
  'gpt-4-vision': 128_000,
  'gpt-4o': 128_000,
  'gpt-4.1': 1_047_576,
  'gpt-4.5': 128_000,
  'chatgpt-4o': 128_000,
  'gpt-5': 400_000,
  'gpt-5-chat': 128_000,
  'gpt-5.1-chat': 128_000,
  'gpt-5.2-chat': 128_000,
  'gpt-5.3-chat': 128_000,
  'gpt-5.4': 1_050_000,
  'gpt-5.4-mini': 400_000,
  'gpt-5.4-nano': 400_000,
  'gpt-5.5': 1_050_000,
  'gpt-oss': 131_072,
  'codex-mini': 200_000,
  o1: 200_000,
  'o1-mini': 128_000,
  'o1-preview': 128_000,
  o3: 200_000,
  'o4-mini': 200_000,
  // docs.anthropic.com/en/docs/about-claude/models: 200,000 unless a beta header requests more
  claude: 200_000,
  // ai.google.dev/gemini-api/docs/models
  gemini: 1_048_576,
  'gemini-1.5-pro': 2_097_152,
  'gemini-2.5-flash-image': 32_768,
  'gemini-2.0-flash-lite': 1_048_576,
  // api-docs.deepseek.com, docs.mistral.ai, docs.x.ai
  'deepseek-chat': 128_000,
  'deepseek-reasoner': 128_000,
  'mistral-large': 128_000,
  'grok-3': 131_072,
  'grok-4': 256_000,
};

/**
 * The bare name of a model as routers, clouds and fine-tunes write it: `openai/gpt-4o`, `us.anthropic.claude-…`,
 * `ft:gpt-4o-mini:org::id`, `models/gemini-2.5-pro`.
 */
export function modelName(model: string): string {
  return model
    .trim()
    .toLowerCase()
    .replace(/^ft:/, '')
    .replace(/^.*\//, '')
    .replace(/^(?:[a-z]{2,6}\.)?(?:anthropic|openai|google|deepseek|mistral)\./, '');
}

export function isKnownAnthropicModel(model: string): boolean {
  return modelName(model).startsWith('claude');
}

/** Tokens of a known model's window, or undefined. */
export function windowOfModel(model: string): number | undefined {
  const row = registeredModel(model);
  return row === undefined ? undefined : windows[row];
}

/** The name in the registry that applies to a model, such as `gpt-4o` to `openai/gpt-4o-2024-08-06`; undefined for none. */
export function registeredModel(model: string): string | undefined {
  const name = modelName(model);
  let longest = '';
  for (const prefix of Object.keys(windows)) {
    const ends = name.charAt(prefix.length);
    // `o1` matches `o1-2024-12-17` but not `o10`; `gpt-5` does not match `gpt-5.9`, whose window is unknown.
    if (name.startsWith(prefix) && /^$|[-:@_]/.test(ends) && prefix.length > longest.length) longest = prefix;
  }
  return longest === '' ? undefined : longest;
}

export interface ResolvedWindow {
  /** Tokens. */
  tokens: number;
  /** Source of the number; show a warning for `fallback`. */
  source: 'explicit' | 'model' | 'fallback';
}

/** The explicit window, else the model's window in the registry, else the fallback. */
export function resolveWindow(given: {
  contextWindow?: number | null;
  model?: string | null;
  fallbackContextWindow: number;
}): ResolvedWindow {
  if (given.contextWindow !== undefined && given.contextWindow !== null)
    return { tokens: given.contextWindow, source: 'explicit' };
  const known = given.model ? windowOfModel(given.model) : undefined;
  if (known !== undefined) return { tokens: known, source: 'model' };
  return { tokens: given.fallbackContextWindow, source: 'fallback' };
}
