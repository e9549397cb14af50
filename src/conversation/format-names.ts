/** Formats of contexts: the request formats of providers and agent libraries. */
export const contextFormats = [
  'openai-chat',
  'anthropic',
  'openai-responses',
  'gemini',
  'langchain',
  'ai-sdk',
] as const;

export type ContextFormat = (typeof contextFormats)[number];

/**
 * Formats of agents' logs. Such a log is imported and exported as a whole. The context of a session in one of these formats has
 * the request format of the agent's provider.
 */
const logFormats = [
  'claude-code',
  'codex',
  'gemini-cli',
  'google-adk',
  'cline',
  'openhands',
  'swe-agent',
  'chatgpt',
  'deer-flow',
  'openai-agents',
] as const;

export type LogFormat = (typeof logFormats)[number];
export const formatNames = [...contextFormats, ...logFormats] as const;
export type FormatName = ContextFormat | LogFormat;
