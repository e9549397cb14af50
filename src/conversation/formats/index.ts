/** The formats that sessions may be written in. */
import { invalid } from '../../errors.js';
import {
  contextFormats,
  formatNames,
  type ContextFormat,
  type Format,
  type FormatName,
  type RequestFormat,
} from './format.js';
import { anthropic } from './anthropic.js';
import { aiSdk } from './ai-sdk.js';
import { codex } from './codex.js';
import { deerFlow } from './deer-flow.js';
import { langchain } from './langchain.js';
import { openaiAgents } from './openai-agents.js';
import { gemini } from './gemini.js';
import { openaiChat } from './openai-chat.js';
import { openaiResponses } from './openai-responses.js';
import { openhands } from './openhands.js';
import { sweAgent } from './swe-agent.js';

export * from './format.js';

const requestFormats: Partial<Record<ContextFormat, RequestFormat>> = {
  'openai-chat': openaiChat,
  anthropic,
  'openai-responses': openaiResponses,
  langchain,
  gemini,
  'ai-sdk': aiSdk,
};

const logs: Partial<Record<FormatName, Format>> = {
  codex,
  openhands,
  'swe-agent': sweAgent,
  'deer-flow': deerFlow,
  'openai-agents': openaiAgents,
};

export const formats: readonly Format[] = [...Object.values(requestFormats), ...Object.values(logs)];

/** Throws `Input.Invalid` naming the known formats. */
export function formatOf(name: string): Format {
  const format: Format | undefined = requestFormats[name as ContextFormat] ?? logs[name as FormatName];
  if (format) return format;
  throw invalid(`${JSON.stringify(name)} is no format`, 'format', `Formats: ${formatNames.join(', ')}.`);
}

/** Throws `Input.Invalid` naming the formats that a context can have. */
export function contextFormatOf(name: string): RequestFormat {
  const format = requestFormats[name as ContextFormat];
  if (format) return format;
  const hint = `A context can be had as ${contextFormats.join(', ')}.`;
  throw invalid(`${JSON.stringify(name)} is no format of a context`, 'format', hint);
}
