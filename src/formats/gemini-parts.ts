/**
 * Converts Gemini's contents to chat messages (ai.google.dev/api/caching#Content). Fields are read in both spellings:
 * `functionCall` as in the API's JSON, `function_call` as the Python SDKs write it.
 */
import type { ChatMessage, ContentPart, Json, ToolCall } from '../conversation/message.js';
import {
  assistantMessage,
  contentOf,
  fieldsAt,
  isFields,
  mediaKind,
  mediaPart,
  mustBe,
  partsOf,
  placeholder,
  stringAt,
  textOr,
  textPart,
  toolCall,
  type Fields,
} from './content.js';

const snakeCase = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** Returns a field by its name in the API; null counts as absent. */
export function read(fields: Fields, name: string): Json | undefined {
  return fields[name] ?? fields[snakeCase(name)] ?? undefined;
}

export function readObject(fields: Fields, name: string): Fields | undefined {
  const value = read(fields, name);
  return isFields(value) ? value : undefined;
}

/** Sets one field under its existing spelling; undefined removes it. */
export function written(fields: Fields, name: string, value: Json | undefined): Fields {
  const key = Object.hasOwn(fields, snakeCase(name)) ? snakeCase(name) : name;
  if (value !== undefined) return { ...fields, [key]: value };
  const { [key]: _removed, ...rest } = fields;
  return rest;
}

const roles = 'Roles: user, model, function; a leading item of role system stands for `systemInstruction`.';

/** Converts one content. Responses come first, as separate messages. */
export function chatMessages(content: Fields, path: string): ChatMessage[] {
  const role = stringAt(content.role, `${path}.role`);
  const parts = partsAt(content.parts, `${path}.parts`);
  if (role === 'model') return [ofModel(parts)];
  if (role === 'user' || role === 'function') return ofUser(parts);
  if (role === 'system') return [{ role, content: contentOf(parts.flatMap(([part]) => readable(part))) }];
  throw mustBe('user, model, function or system', content.role, `${path}.role`, roles);
}

/** Returns parts with their paths. An answer that was cut off before its first word has none. */
function partsAt(parts: Json | undefined, path: string): [Fields, string][] {
  if (parts === undefined || parts === null) return [];
  if (!Array.isArray(parts)) throw mustBe('an array of parts', parts, path);
  return parts.map((part, index) => [fieldsAt(part, `${path}[${index}]`), `${path}[${index}]`]);
}

function ofModel(parts: readonly [Fields, string][]): ChatMessage {
  const shown: ContentPart[] = [];
  const calls: ToolCall[] = [];
  const thoughts: string[] = [];
  const ids = new IdsByName();
  for (const [part, path] of parts) {
    const call = read(part, 'functionCall');
    if (call !== undefined)
      calls.push(callOf(fieldsAt(call, `${path}.functionCall`), ids, `${path}.functionCall`));
    else if (part.thought === true && typeof part.text === 'string') thoughts.push(part.text);
    else shown.push(...readable(part, path));
  }
  return assistantMessage(shown, calls, thoughts.filter((thought) => thought !== '').join('\n\n'));
}

/** Assigns ids to calls and responses without one, by name and order within their content. */
class IdsByName {
  private readonly seen = new Map<string, number>();

  next(name: string): string {
    const count = (this.seen.get(name) ?? 0) + 1;
    this.seen.set(name, count);
    return `${name}_${count}`;
  }
}

function callOf(call: Fields, ids: IdsByName, path: string): ToolCall {
  const name = nameAt(call, path);
  const args = call.args ?? {};
  if (!isFields(args)) throw mustBe('an object', args, `${path}.args`);
  return toolCall(textOr(call.id) || ids.next(name), name, args);
}

function nameAt({ name }: Fields, path: string): string {
  if (name === '') throw mustBe('the name of a function', name, `${path}.name`);
  return stringAt(name, `${path}.name`);
}

function ofUser(parts: readonly [Fields, string][]): ChatMessage[] {
  const results: ChatMessage[] = [];
  const shown: ContentPart[] = [];
  const ids = new IdsByName();
  for (const [part, path] of parts) {
    const response = read(part, 'functionResponse');
    const last = results.at(-1);
    // A function that returns an image has it next to its response.
    if (last && shown.length === 0 && isMedia(part))
      last.content = contentOf([...partsOf(last.content), ...readable(part, path)]);
    else if (response === undefined) shown.push(...readable(part, path));
    else
      results.push(resultOf(fieldsAt(response, `${path}.functionResponse`), ids, `${path}.functionResponse`));
  }
  if (results.length > 0 && shown.length === 0) return results;
  return [...results, { role: 'user', content: contentOf(shown) }];
}

const isMedia = (part: Fields): boolean =>
  readObject(part, 'inlineData') !== undefined || readObject(part, 'fileData') !== undefined;

function resultOf(response: Fields, ids: IdsByName, path: string): ChatMessage {
  const name = nameAt(response, path);
  const text = responseText(response.response);
  const media = partsAt(response.parts, `${path}.parts`).flatMap(([part, at]) => readable(part, at));
  return {
    role: 'tool',
    tool_call_id: textOr(response.id) || ids.next(name),
    content: contentOf([...(text === '' ? [] : [textPart(text)]), ...media]),
  };
}

/** The API requires an object; if it contains only a text, that text is the function's output. */
function responseText(response: Json | undefined): string {
  if (response === undefined || response === null) return '';
  if (!isFields(response)) return typeof response === 'string' ? response : JSON.stringify(response);
  const [entry, ...others] = Object.entries(response);
  if (entry === undefined) return '';
  const [key, value] = entry;
  if (others.length === 0 && /^(?:output|result)$/.test(key) && typeof value === 'string') return value;
  return JSON.stringify(response);
}

/** Converts a part that is neither a call nor a response. */
export function readable(part: Fields, path = 'part'): ContentPart[] {
  const { text, thought } = part;
  if (text !== undefined && text !== null) {
    const said = stringAt(text, `${path}.text`);
    return thought === true ? [textPart(`[thought] ${said}`)] : said === '' ? [] : [textPart(said)];
  }
  const inline = readObject(part, 'inlineData');
  const file = readObject(part, 'fileData');
  const code = readObject(part, 'executableCode');
  const output = readObject(part, 'codeExecutionResult');
  if (inline) return [ofMedia(inline, { data: textOr(inline.data) })];
  if (file) return [ofMedia(file, { url: textOr(read(file, 'fileUri')) })];
  if (code) return [textPart(`\`\`\`${textOr(code.language).toLowerCase()}\n${textOr(code.code)}\n\`\`\``)];
  if (output) return [textPart(`[codeExecutionResult ${textOr(output.outcome)}]\n${textOr(output.output)}`)];
  const { thoughtSignature: _signature, thought_signature: _written, ...rest } = part;
  const [kind] = Object.keys(rest);
  return kind === undefined ? [] : [placeholder(kind, rest)];
}

function ofMedia(blob: Fields, where: { data: string } | { url: string }): ContentPart {
  const mediaType = textOr(read(blob, 'mimeType')).toLowerCase();
  const name = textOr(read(blob, 'displayName'));
  return mediaPart({ kind: mediaKind(mediaType), mediaType, name, ...where });
}
