/** Formats a context can be asked for: what providers and agent libraries take as a request. */
export const contextFormats = [
  'openai-chat',
  'anthropic',
  'openai-responses',
  'gemini',
  'langchain',
  'ai-sdk',
] as const;

export type ContextFormat = (typeof contextFormats)[number];

/** Logs of agents: read and written back whole; a context of such a session is shown in the format of its provider. */
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
