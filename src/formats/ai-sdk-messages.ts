/** Converts messages of the AI SDK: a UIMessage to ModelMessages, and ModelMessages to chat messages. */
import { invalid } from '../errors.js';
import type { ChatMessage, ContentPart, Json, ToolCall } from '../conversation/message.js';
import {
  assistantMessage,
  contentOf,
  fieldsAt,
  isFields,
  mediaKind,
  mediaPart,
  mustBe,
  placeholder,
  stringAt,
  textOr,
  textPart,
  toolCall,
  type Fields,
} from './content.js';

const roles = ['system', 'user', 'assistant', 'tool', 'data'];

export const isUiMessage = (value: Json | undefined): value is Fields =>
  isFields(value) && Array.isArray(value.parts);

/** Converts an item to chat messages: none for a tool message that only answers an approval, often several for a UIMessage. */
export function readMessage(value: Json, path: string): ChatMessage[] {
  const message = fieldsAt(value, path);
  const role = stringAt(message.role, `${path}.role`);
  const known = `Known roles: ${roles.slice(0, 4).join(', ')}.`;
  if (!roles.includes(role))
    throw invalid(`${path}.role ${JSON.stringify(role)} is not known.`, `${path}.role`, known);
  if (isUiMessage(message)) return modelMessages(message, path).flatMap((one) => readModel(one, path));
  return readModel(message, path);
}

export function readModel(message: Fields, path: string): ChatMessage[] {
  const { role } = message;
  const at = `${path}.content`;
  const parts = partsAt(message.content, at);
  if (role === 'tool')
    return parts.flatMap((part, index) => {
      const type = stringAt(part.type, `${at}[${index}].type`);
      return type === 'tool-result' ? [readResult(part, `${at}[${index}]`)] : [];
    });
  if (role === 'assistant') return [readAnswer(parts, at)];
  const content = contentOf(parts.map((part, index) => readPart(part, `${at}[${index}]`)));
  return [{ role: role === 'system' ? 'system' : 'user', content }];
}

function partsAt(content: Json | undefined, path: string): Fields[] {
  if (content === undefined || content === null || content === '') return [];
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  if (!Array.isArray(content)) throw mustBe('a string or a list of parts', content, path);
  return content.map((part, index) => fieldsAt(part, `${path}[${index}]`));
}

function readPart(part: Fields, path: string): ContentPart {
  const type = stringAt(part.type, `${path}.type`);
  if (type === 'text') return textPart(stringAt(part.text, `${path}.text`));
  if (type !== 'image' && type !== 'file') return placeholder(type, part);
  const kind = mediaTypeOf(part) || (type === 'image' ? 'image/png' : '');
  return (
    dataPart(type, kind, part, type === 'image' ? part.image : (part.data ?? part.url)) ??
    placeholder(type, part)
  );
}

const mediaTypeOf = (part: Fields): string => textOr(part.mediaType) || textOr(part.mimeType);

/** Reads data given as a URL, a data URL or base64; version 7 tags it with its kind. */
function dataPart(
  type: string,
  mediaType: string,
  part: Fields,
  given: Json | undefined,
): ContentPart | null {
  const tagged = isFields(given) ? given : null;
  if (tagged?.type === 'text' && typeof tagged.text === 'string') return textPart(tagged.text);
  const data = tagged ? textOr(tagged.data) || textOr(tagged.url) : textOr(given);
  if (data === '') return null;
  const kind = type === 'image' ? 'image' : mediaKind(mediaType);
  const name = textOr(part.filename);
  const isUrl = /^[a-z][a-z0-9+.-]*:/i.test(data.slice(0, 40));
  if (!isUrl) return mediaPart({ kind, mediaType: sniffed(data) ?? mediaType, data, name });
  const inline = /^data:([^;,]{0,100})(?:;[^,]{0,200})?;base64,/i.exec(data.slice(0, 400));
  if (!inline || kind === 'image') return mediaPart({ kind, mediaType, url: data, name });
  return mediaPart({ kind, mediaType: mediaType || inline[1]!, data: data.slice(inline[0].length), name });
}

/** Images are recognised by their first bytes. */
function sniffed(base64: string): string | undefined {
  const starts = { iVBORw: 'image/png', '/9j/': 'image/jpeg', R0lGOD: 'image/gif', UklGR: 'image/webp' };
  return Object.entries(starts).find(([start]) => base64.startsWith(start))?.[1];
}

/**
 * Calls that the provider answered itself become text. Requests for approval and redacted reasoning are left out; other
 * reasoning is kept separately.
 */
function readAnswer(parts: readonly Fields[], path: string): ChatMessage {
  const said: ContentPart[] = [];
  const calls: ToolCall[] = [];
  const thoughts: string[] = [];
  parts.forEach((part, index) => {
    const at = `${path}[${index}]`;
    const type = stringAt(part.type, `${at}.type`);
    if (type === 'reasoning') thoughts.push(textOr(part.text));
    else if (type === 'redacted-reasoning' || type === 'tool-approval-request') return;
    else if (type === 'tool-call' && part.providerExecuted !== true) calls.push(readCall(part, at));
    else if (type === 'tool-call' || type === 'tool-result') said.push(hostedPart(type, part));
    else said.push(readPart(part, at));
  });
  return assistantMessage(said, calls, thoughts.filter((text) => text !== '').join('\n\n'));
}

function hostedPart(type: string, { toolName, input, args, output, result }: Fields): ContentPart {
  const told = {
    toolName: toolName ?? null,
    ...(type === 'tool-call' ? { input: input ?? args ?? null } : {}),
  };
  return placeholder(type, type === 'tool-call' ? told : { ...told, output: output ?? result ?? null });
}

function readCall(part: Fields, path: string): ToolCall {
  const name = stringAt(part.toolName, `${path}.toolName`);
  if (name === '')
    throw invalid(
      `${path}.toolName must not be empty.`,
      `${path}.toolName`,
      'Every call must name its tool.',
    );
  const id = stringAt(part.toolCallId, `${path}.toolCallId`);
  const input = part.input ?? part.args;
  // Text that is not JSON is kept as the model wrote it.
  return typeof input === 'string'
    ? { id, type: 'function', function: { name, arguments: input } }
    : toolCall(id, name, input);
}

function readResult(part: Fields, path: string): ChatMessage {
  const id = stringAt(part.toolCallId, `${path}.toolCallId`);
  const name = textOr(part.toolName);
  return {
    role: 'tool',
    tool_call_id: id,
    ...(name === '' ? {} : { name }),
    content: outputOf(part.output ?? part.result, path),
  };
}

/** Reads an output of version 5 and later (`{type, value}`), or the bare result of version 4. */
function outputOf(output: Json | undefined, path: string): string | ContentPart[] {
  if (output === undefined || output === null) return '';
  if (typeof output === 'string') return output;
  if (!isFields(output) || typeof output.type !== 'string') return JSON.stringify(output);
  const { type, value = null } = output;
  if (type === 'text' || type === 'error-text') return textOr(value);
  if (type === 'json' || type === 'error-json')
    return typeof value === 'string' ? value : JSON.stringify(value);
  if (type === 'execution-denied') return textOr(output.reason) || 'Tool execution denied.';
  if (type !== 'content') return JSON.stringify(output);
  if (!Array.isArray(value)) throw mustBe('a list of parts', value, `${path}.output.value`);
  return contentOf(value.map((part, index) => outputPart(fieldsAt(part, `${path}.output.value[${index}]`))));
}

function outputPart(part: Fields): ContentPart {
  const type = textOr(part.type);
  if (type === 'text') return textPart(textOr(part.text));
  const mediaType = mediaTypeOf(part) || (type.startsWith('image') ? 'image/png' : '');
  const isImage = type.startsWith('image') || mediaType.startsWith('image/');
  return (
    dataPart(isImage ? 'image' : 'file', mediaType, part, part.data ?? part.url) ?? placeholder(type, part)
  );
}

/** Converts a UIMessage to ModelMessages step by step, as `convertToModelMessages` (package `ai`) does. */
export function modelMessages(message: Fields, path = 'message'): Fields[] {
  const parts = (message.parts as Json[]).map((part, index) => fieldsAt(part, `${path}.parts[${index}]`));
  if (message.role === 'system')
    return [
      {
        role: 'system',
        content: parts.map((part) => (part.type === 'text' ? textOr(part.text) : '')).join(''),
      },
    ];
  if (message.role !== 'assistant')
    return [{ role: 'user', content: parts.flatMap((part) => (isContent(part) ? [contentPart(part)] : [])) }];
  const steps: Fields[][] = [[]];
  for (const part of parts) {
    if (part.type === 'step-start') steps.push([]);
    else steps.at(-1)!.push(part);
  }
  return steps.flatMap((step, index) => stepMessages(step, `${path}.parts (step ${index})`));
}

const isContent = ({ type }: Fields): boolean => type === 'text' || type === 'file';
const isTool = ({ type }: Fields): boolean => /^(?:tool-.|dynamic-tool$)/.test(textOr(type));

function stepMessages(step: readonly Fields[], path: string): Fields[] {
  const shown = step.filter(
    (part) =>
      isContent(part) || part.type === 'reasoning' || (isTool(part) && part.state !== 'input-streaming'),
  );
  if (shown.length === 0) return [];
  const content = shown.flatMap((part): Fields[] =>
    isTool(part) ? callParts(part, path) : [contentPart(part)],
  );
  const results = shown.filter((part) => isTool(part) && part.providerExecuted !== true).flatMap(resultParts);
  return [
    { role: 'assistant', content },
    ...(results.length > 0 ? [{ role: 'tool', content: results }] : []),
  ];
}

function contentPart({ type, text, url, mediaType, filename, providerMetadata }: Fields): Fields {
  const options: Fields = isFields(providerMetadata) ? { providerOptions: providerMetadata } : {};
  if (type !== 'file') return { type: type!, text: text ?? '', ...options };
  const named: Fields = filename === undefined ? {} : { filename };
  return { type, mediaType: mediaType ?? '', ...named, data: url ?? '', ...options };
}

const toolNameOf = ({ type, toolName }: Fields): string =>
  type === 'dynamic-tool' ? textOr(toolName) : textOr(type).slice('tool-'.length);

function callParts(part: Fields, path: string): Fields[] {
  const options: Fields = isFields(part.callProviderMetadata)
    ? { providerOptions: part.callProviderMetadata }
    : {};
  const toolCallId = stringAt(part.toolCallId, `${path}.toolCallId`);
  const input = part.input ?? part.rawInput ?? {};
  const hosted: Fields = part.providerExecuted === true ? { providerExecuted: true } : {};
  const call = { type: 'tool-call', toolCallId, toolName: toolNameOf(part), input, ...hosted, ...options };
  return part.providerExecuted === true ? [call, ...resultParts(part)] : [call];
}

function resultParts(part: Fields): Fields[] {
  const output = uiOutput(part);
  const options: Fields = isFields(part.callProviderMetadata)
    ? { providerOptions: part.callProviderMetadata }
    : {};
  return output === null
    ? []
    : [{ type: 'tool-result', toolCallId: part.toolCallId!, toolName: toolNameOf(part), output, ...options }];
}

function uiOutput({ state, output, errorText, approval }: Fields): Fields | null {
  if (state === 'output-available')
    return typeof output === 'string'
      ? { type: 'text', value: output }
      : { type: 'json', value: output ?? null };
  if (state === 'output-error') return { type: 'error-text', value: textOr(errorText) };
  if (state !== 'output-denied') return null;
  const reason = isFields(approval) ? textOr(approval.reason) : '';
  return { type: 'error-text', value: reason || 'Tool execution denied.' };
}
