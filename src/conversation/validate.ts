import { createHash } from 'node:crypto';
import { invalid, type PalimpsestError } from '../errors.js';
import { groupMessages } from './groups.js';
import {
  roles,
  type CallLink,
  type ChatMessage,
  type ContentPart,
  type Json,
  type MessageMeta,
} from './message.js';
import { checkPlainJson } from './json.js';

type Fields = Record<string, unknown>;

const isObject = (value: unknown): value is Fields =>
  value !== null && typeof value === 'object' && !Array.isArray(value);
const isAbsent = (value: unknown): value is null | undefined => value === null || value === undefined;

function kindOf(value: unknown): string {
  if (value === undefined) return 'missing';
  if (value === null) return 'null';
  return Array.isArray(value) ? 'an array' : `a${typeof value === 'object' ? 'n' : ''} ${typeof value}`;
}

const mustBe = (expected: string, value: unknown, path: string, hint?: string): PalimpsestError =>
  invalid(`${path} must be ${expected}, but is ${kindOf(value)}.`, path, hint);

function checkOptionalString(owner: Fields, field: string, path: string): void {
  const value = owner[field];
  if (!isAbsent(value) && typeof value !== 'string') throw mustBe('a string', value, `${path}.${field}`);
}

function checkPart(part: unknown, path: string): void {
  if (!isObject(part))
    throw mustBe('an object with a type', part, path, 'e.g. {"type": "text", "text": "…"}');
  if (typeof part.type !== 'string') {
    throw mustBe('a string', part.type, `${path}.type`, 'e.g. "text" or "image_url"');
  }
  if (part.type === 'text' && typeof part.text !== 'string')
    throw mustBe('a string', part.text, `${path}.text`);
  checkOptionalString(part, 'text', path);
}

function checkContent(content: unknown, path: string): void {
  if (isAbsent(content) || typeof content === 'string') return;
  if (!Array.isArray(content)) throw mustBe('a string, an array of parts or null', content, path);
  content.forEach((part, index) => checkPart(part, `${path}[${index}]`));
}

function checkFunction(call: unknown, input: 'arguments' | 'input', path: string): void {
  if (!isObject(call)) throw mustBe('an object with name and arguments', call, path);
  if (typeof call.name !== 'string' || call.name === '') {
    const problem = call.name === '' ? 'must not be empty' : `must be a string, but is ${kindOf(call.name)}`;
    throw invalid(`${path}.name ${problem}.`, `${path}.name`, 'Give the name of the called function.');
  }
  if (typeof call[input] !== 'string') {
    const hint =
      input === 'input'
        ? 'Give the input as text, "" if there is none.'
        : 'Give the arguments as JSON text, "{}" if there are none.';
    throw mustBe('a string', call[input], `${path}.${input}`, hint);
  }
}

function checkCalls(message: Fields, path: string): void {
  const calls = message.tool_calls;
  if (!isAbsent(message.function_call))
    checkFunction(message.function_call, 'arguments', `${path}.function_call`);
  if (isAbsent(calls)) return;
  if (!Array.isArray(calls)) throw mustBe('an array', calls, `${path}.tool_calls`);
  if (calls.length > 0 && message.role !== 'assistant') {
    const hint = 'Only an assistant message can call tools.';
    throw invalid(
      `${path}.tool_calls is not allowed in a message of role ${String(message.role)}.`,
      `${path}.tool_calls`,
      hint,
    );
  }
  calls.forEach((call: unknown, index) => {
    const at = `${path}.tool_calls[${index}]`;
    if (!isObject(call)) throw mustBe('an object', call, at);
    checkOptionalString(call, 'id', at);
    checkOptionalString(call, 'type', at);
    if (isObject(call.custom) && isAbsent(call.function)) checkFunction(call.custom, 'input', `${at}.custom`);
    else checkFunction(call.function, 'arguments', `${at}.function`);
  });
}

/** The field in which a stored message keeps its original in another format. */
export const nativeField = 'palimpsest.native';

function checkMessage(message: unknown, path: string): void {
  if (!isObject(message)) throw mustBe('an object', message, path, 'e.g. {"role": "user", "content": "…"}');
  if (Object.hasOwn(message, nativeField))
    throw invalid(`${path} has the reserved field ${nativeField}.`, `${path}["${nativeField}"]`, 'Omit it.');
  const known = `Known roles: ${roles.join(', ')}.`;
  if (typeof message.role !== 'string') throw mustBe('a string', message.role, `${path}.role`, known);
  if (!roles.some((role) => role === message.role)) {
    throw invalid(`${path}.role ${JSON.stringify(message.role)} is not known.`, `${path}.role`, known);
  }
  checkContent(message.content, `${path}.content`);
  checkOptionalString(message, 'name', path);
  checkOptionalString(message, 'tool_call_id', path);
  checkCalls(message, path);
}

/**
 * Checks OpenAI chat messages; unknown fields stay unchanged. Throws `Input.Invalid` with the path of the first invalid field.
 * Defects between messages (an orphan result, a missing or reused id, an empty turn) are accepted: see {@link warningsOf}.
 */
export function checkMessages(value: unknown, path = 'messages'): ChatMessage[] {
  if (!Array.isArray(value)) throw mustBe('an array of messages', value, path);
  checkPlainJson(value, path);
  return chatMessages(value, path);
}

/** {@link checkMessages} for values that are known to be plain JSON. */
export function chatMessages(value: readonly Json[], path: string): ChatMessage[] {
  value.forEach((message, index) => checkMessage(message, `${path}[${index}]`));
  return value as unknown as ChatMessage[];
}

/** The stored form of a message: its JSON, and the sha256 (hex) of that text in UTF-8. */
export function serializeMessage(message: ChatMessage): { body: string; sha256: string } {
  const body = JSON.stringify(message);
  return { body, sha256: createHash('sha256').update(body, 'utf8').digest('hex') };
}

const filled = (value: unknown): value is string => typeof value === 'string' && value !== '';
const visible = (value: unknown): boolean => typeof value === 'string' && value.trim() !== '';

function callsOf(message: ChatMessage): CallLink[] {
  const calls = (message.tool_calls ?? []).map((call): CallLink => {
    const called = isObject(call.custom) && !call.function ? call.custom : call.function;
    return { id: filled(call.id) ? call.id : null, name: filled(called?.name) ? called.name : '' };
  });
  const legacy = message.function_call;
  return isObject(legacy) && filled(legacy.name) ? [...calls, { id: null, name: legacy.name }] : calls;
}

function showsSomething(part: ContentPart): boolean {
  return /text|thinking|reasoning/.test(part.type) ? visible(part.text) : true;
}

/** The links of a message and whether it is empty. A message with reasoning only is empty: no provider accepts it. */
export function metaOf(message: ChatMessage): Pick<MessageMeta, 'role' | 'calls' | 'answers' | 'empty'> {
  const { role, content } = message;
  const calls = role === 'assistant' ? callsOf(message) : [];
  const answer = role === 'tool' ? message.tool_call_id : role === 'function' ? message.name : null;
  const shown =
    visible(content) ||
    (Array.isArray(content) && content.some(showsSomething)) ||
    visible(message.refusal) ||
    isObject(message.audio);
  const result = role === 'tool' || role === 'function';
  return {
    role,
    calls,
    answers: filled(answer) ? answer : null,
    empty: !result && !shown && calls.length === 0,
  };
}

function partText(part: ContentPart): string {
  if (filled(part.text)) return part.text;
  if (filled(part.refusal)) return part.refusal;
  if (/text|thinking|reasoning/.test(part.type)) return '';
  const kind = /image|audio|video|file/.exec(part.type)?.[0] ?? part.type;
  return `[${kind}]`;
}

/** Plain text of a message's content, parts joined by line ends; media as `[image]`, `[audio]`, `[file]`. */
export function textOf(message: ChatMessage): string {
  const { content } = message;
  if (filled(content)) return content;
  if (!Array.isArray(content)) return filled(message.refusal) ? message.refusal : '';
  return content
    .map(partText)
    .filter((text) => text !== '')
    .join('\n');
}

type WarningType = 'orphan_result' | 'result_without_id' | 'reused_id' | 'empty_turn' | 'unanswered_call';

/** A defect that is stored unchanged and shown in a context only in a valid form. */
export interface MessageWarning {
  /** Index in the checked array, from 0. */
  index: number;
  type: WarningType;
  message: string;
}

/**
 * The defects between these messages, in order. `turn` excludes orphan results and unanswered calls: their other half may be
 * in an earlier or a later turn.
 */
export function warningsOf(messages: ChatMessage[], scope: 'session' | 'turn' = 'session'): MessageWarning[] {
  const found = allWarningsOf(messages);
  if (scope === 'session') return found;
  return found.filter(({ type }) => type !== 'orphan_result' && type !== 'unanswered_call');
}

function allWarningsOf(messages: ChatMessage[]): MessageWarning[] {
  const metas = messages.map((message, index) => ({ ...metaOf(message), seq: index + 1, tokens: 0, at: 0 }));
  const { answeredBy, orphans } = groupMessages(metas);
  const seen = new Set<string>();
  return metas.flatMap((meta, index) => {
    const found: [WarningType, string][] = [];
    if (meta.empty) found.push(['empty_turn', `The ${meta.role} message has no text, media or calls.`]);
    if (meta.role === 'tool' && meta.answers === null) {
      found.push(['result_without_id', 'The tool result has no tool_call_id.']);
    } else if (orphans.has(index)) {
      found.push(['orphan_result', `The result for ${JSON.stringify(meta.answers)} answers no call.`]);
    }
    meta.calls.forEach(({ id, name }, call) => {
      const label = id === null ? `of ${name}` : JSON.stringify(id);
      if (id !== null && seen.has(id)) found.push(['reused_id', `The call id ${label} was used before.`]);
      if (id !== null) seen.add(id);
      if (answeredBy[index]?.[call] === null)
        found.push(['unanswered_call', `The call ${label} has no result.`]);
    });
    return found.map(([type, message]) => ({ index, type, message }));
  });
}
