import type { Json } from '../conversation/message.js';
import { invalid, isFailure } from '../errors.js';
import type { FileLayout, Format, RequestFormat } from './format.js';
import {
  type ContextFormat,
  contextFormats,
  type FormatName,
  formatNames,
  type LogFormat,
} from '../conversation/format-names.js';
import { anthropic } from './anthropic.js';
import { aiSdk } from './ai-sdk.js';
import { chatgpt } from './chatgpt.js';
import { claudeCode } from './claude-code.js';
import { cline } from './cline.js';
import { codex } from './codex.js';
import { deerFlow } from './deer-flow.js';
import { langchain } from './langchain.js';
import { openaiAgents } from './openai-agents.js';
import { geminiCli } from './gemini-cli.js';
import { gemini } from './gemini.js';
import { googleAdk } from './google-adk.js';
import { openaiChat } from './openai-chat.js';
import { openaiResponses } from './openai-responses.js';
import { openhands } from './openhands.js';
import { sweAgent } from './swe-agent.js';

const requestFormats: Record<ContextFormat, RequestFormat> = {
  'openai-chat': openaiChat,
  anthropic,
  'openai-responses': openaiResponses,
  langchain,
  gemini,
  'ai-sdk': aiSdk,
};

const logs: Record<LogFormat, Format> = {
  'claude-code': claudeCode,
  'gemini-cli': geminiCli,
  'google-adk': googleAdk,
  cline,
  chatgpt,
  codex,
  openhands,
  'swe-agent': sweAgent,
  'deer-flow': deerFlow,
  'openai-agents': openaiAgents,
};

/** The formats in which sessions may be written. */
const formats: readonly Format[] = [...Object.values(requestFormats), ...Object.values(logs)];

/** Agent logs are unmistakable and come first; request formats with distinctive field names come before the others. */
const mostSpecificFirst: readonly FormatName[] = [
  'claude-code',
  'codex',
  'gemini-cli',
  'chatgpt',
  'google-adk',
  'cline',
  'openhands',
  'swe-agent',
  'deer-flow',
  'openai-agents',
  'langchain',
  'ai-sdk',
  'openai-responses',
  'gemini',
  'anthropic',
  'openai-chat',
];

/** The formats in the order in which an unknown file is tried. */
export const candidates: readonly Format[] = mostSpecificFirst.flatMap(
  (name) => formats.find((format) => format.name === name) ?? [],
);

/** Whether a parsed file is one of this format. */
export function opens(format: Format, document: Json, layout: FileLayout): boolean {
  try {
    return (format.open?.(document, layout) ?? null) !== null;
  } catch (error) {
    if (isFailure(error, 'Input.Invalid')) return true; // of this format, but without a message
    throw error;
  }
}

/** Throws `Input.Invalid`, which names the known formats. */
export function formatOf(name: string): Format {
  const format = formats.find((one) => one.name === name);
  if (format) return format;
  throw invalid(
    `${JSON.stringify(name)} is not a known format`,
    'format',
    `Formats: ${formatNames.join(', ')}.`,
  );
}

/** Throws `Input.Invalid`, which names the formats of contexts. */
export function contextFormatOf(name: string): RequestFormat {
  const format = Object.values(requestFormats).find((one) => one.name === name);
  if (format) return format;
  const hint = `Formats of a context: ${contextFormats.join(', ')}.`;
  throw invalid(`${JSON.stringify(name)} is not a format of a context`, 'format', hint);
}
