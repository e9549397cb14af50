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

/** Log formats of agents, which are read and written back whole. A context of such a session has the format of its provider. */
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
