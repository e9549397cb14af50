/** Renders a context as input of OpenAI's Responses API. */
import { isBlank, noOutput, noResult } from '../context/view/projection.js';
import type { ChatMessage, ContentPart, Json, ToolCall } from '../conversation/message.js';
import { asText } from '../conversation/json.js';
import { textOf } from '../conversation/validate.js';
import { type Fields, isFields, mediaOf, partsOf, placeholder, textOr } from './content.js';
import { envelopeOf } from './envelope.js';
import type { Rendered, ShownUnit } from './format.js';
import {
  answersType,
  callIdOf,
  isBlankMessage,
  isCall,
  isOutput,
  programOf,
  withCallId,
} from './responses-items.js';

/**
 * Returns the items of a unit with the call ids of its messages in the context, without empty messages. An envelope stays if it
 * contains the instructions, for {@link renderResponses}.
 */
export function withCallIds(items: readonly Json[], messages: readonly ChatMessage[]): Json[] {
  const calls = messages.flatMap(({ tool_calls: made = [] }) => made.map(({ id }) => id)).values();
  const answered = messages
    .filter(({ role }) => role === 'tool')
    .map(({ tool_call_id: id }) => id)
    .values();
  return items.flatMap((item): Json[] => {
    const document = envelopeOf(item);
    if (document) return typeof document.instructions === 'string' ? [item] : [];
    if (!isFields(item)) return [item];
    if (isBlankMessage(item) || item.type === 'compaction_trigger') return [];
    const id = isOutput(item) ? answered.next().value : asksForResult(item) ? calls.next().value : undefined;
    return [withInput(id === undefined || id === callIdOf(item) ? item : withCallId(item, id))];
  });
}

const asksForResult = (item: Fields): boolean =>
  isCall(item) || item.type === 'function_call' || item.type === 'custom_tool_call';

/** A call that was recorded without input gets an empty input. */
function withInput(item: Fields): Fields {
  if (item.type === 'function_call' && typeof item.arguments !== 'string')
    return { ...item, arguments: '{}' };
  if (item.type === 'custom_tool_call' && typeof item.input !== 'string') return { ...item, input: '' };
  return item;
}

/** Instructions go first, as text; everything else is an input item. */
export function renderResponses(units: readonly ShownUnit[]): Rendered {
  const first = units.findIndex((unit) => instructionOf(unit) === null);
  const leading = first < 0 ? units : units.slice(0, first);
  const instructions = leading.map((unit) => instructionOf(unit)!).filter((text) => text !== '');
  const shown = compatible(first < 0 ? [] : units.slice(first));
  const converter = new Converter(new Map(shown.flatMap(callTypesOf)));
  const messages = withCallers(
    withoutRunning(shown).flatMap(
      (unit) => unit.items?.filter((item) => envelopeOf(item) === null) ?? converter.items(unit.messages),
    ),
  );
  return { messages, ...(instructions.length > 0 ? { system: instructions.join('\n\n') } : {}) };
}

/**
 * Restores the `caller` of an output. An output that answers a call of a running program needs it, but a shortened output has
 * lost it.
 */
function withCallers(items: readonly Json[]): Json[] {
  const callers = new Map(
    items.flatMap((item): [string, Json][] =>
      isFields(item) && isCall(item) && programOf(item) !== null
        ? [[asText(callIdOf(item)), item.caller!]]
        : [],
    ),
  );
  const ended = new Set<string>();
  return items.map((item) => {
    if (!isFields(item) || !isOutput(item)) return item;
    const id = asText(callIdOf(item));
    if (item.type === 'program_output') ended.add(id);
    const caller = callers.get(id);
    const program = caller && programOf({ caller });
    return !program || ended.has(program) || programOf(item) === program ? item : { ...item, caller };
  });
}

/** Returns the separate instructions, or a leading system message of another format; null for everything else. */
function instructionOf({ items, messages }: ShownUnit): string | null {
  const inEnvelope = items?.every((item) => envelopeOf(item) !== null) ?? true;
  const system = messages.every(({ role }) => role === 'system' || role === 'developer');
  return inEnvelope && system ? messages.map(textOf).join('\n\n') : null;
}

class Converter {
  private legacyCalls = 0;

  constructor(private readonly callTypes: ReadonlyMap<string, string>) {}

  items(messages: readonly ChatMessage[]): Json[] {
    return messages.flatMap((message): Json[] => {
      const { role } = message;
      if (role === 'tool') return [this.output(message, message.tool_call_id ?? '')];
      if (role === 'function') return [this.output(message, `call_legacy_${this.legacyCalls}`)];
      if (role === 'assistant') return [...said('assistant', answerParts(message)), ...this.calls(message)];
      return said(role, askingParts(message));
    });
  }

  private calls({ tool_calls: calls = [], function_call: legacy }: ChatMessage): Json[] {
    const items = calls.map((call): Json => {
      if (!isCustom(call))
        return {
          type: 'function_call',
          call_id: call.id,
          ...(call.function ?? { name: '', arguments: '{}' }),
        };
      const { name, input } = call.custom as Fields;
      return { type: 'custom_tool_call', call_id: call.id, name: name!, input: input! };
    });
    if (!legacy) return items;
    this.legacyCalls += 1;
    return [...items, { type: 'function_call', call_id: `call_legacy_${this.legacyCalls}`, ...legacy }];
  }

  private output({ content }: ChatMessage, id: string): Json {
    const type =
      this.callTypes.get(id) === 'custom_tool_call' ? 'custom_tool_call_output' : 'function_call_output';
    const parts = partsOf(content);
    const text = parts.every((part) => part.type === 'text');
    const output = isBlank(content)
      ? noOutput
      : text
        ? textOf({ role: 'tool', content })
        : parts.flatMap(inputPart);
    return { type, call_id: id, output };
  }
}

function said(role: string, content: Json[]): Json[] {
  return content.length === 0 ? [] : [{ type: 'message', role, content }];
}

/** Only a chat message can have a name, so it becomes part of the text. */
function askingParts({ role, name, content }: ChatMessage): Json[] {
  const parts = partsOf(content).flatMap(inputPart);
  return name && role === 'user' && parts.length > 0
    ? [{ type: 'input_text', text: `[${name}]` }, ...parts]
    : parts;
}

function inputPart(part: ContentPart): Json[] {
  const media = mediaOf(part);
  if (!media) {
    const text = part.type === 'text' ? (part.text ?? '') : textOr(placeholder(part.type, part as Json).text);
    return text.trim() === '' ? [] : [{ type: 'input_text', text }];
  }
  if (media.kind === 'audio') return [{ type: 'input_audio', input_audio: part.input_audio as Json }];
  if (media.kind === 'file') return [{ type: 'input_file', ...(part.file as Fields) }];
  if (media.fileId !== undefined) return [{ type: 'input_image', file_id: media.fileId }];
  const { image_url: image } = part as Fields;
  return [
    {
      type: 'input_image',
      image_url: isFields(image) ? image.url! : image!,
      ...(isFields(image) && image.detail ? { detail: image.detail } : {}),
    },
  ];
}

/** An assistant's input may only contain text and refusals. */
function answerParts({ content, refusal, audio }: ChatMessage): Json[] {
  const parts = partsOf(content).flatMap((part): Json[] => {
    if (part.type === 'refusal') return refused(part.refusal);
    const text = part.type === 'text' ? (part.text ?? '') : textOr(placeholder(part.type, part as Json).text);
    return text.trim() === '' || /thinking|reasoning/.test(part.type) ? [] : [{ type: 'output_text', text }];
  });
  const transcript = isFields(audio as Json) ? textOr((audio as Fields).transcript, '[audio]') : '';
  const spokenAloud = transcript === '' ? [] : [{ type: 'output_text', text: transcript }];
  return [...parts, ...spokenAloud, ...refused(refusal)];
}

function refused(refusal: unknown): Json[] {
  return typeof refusal === 'string' && refusal.trim() !== '' ? [{ type: 'refusal', refusal }] : [];
}

/**
 * Decides which originals a request to the Responses API may contain: an item is converted if the API would refuse it together
 * with the others. Returns the units in a compatible form, with the result of each program after what the program called.
 */
function compatible(units: readonly ShownUnit[]): ShownUnit[] {
  const shown = withoutRepeatedIds(withProgramsInOrder(units));
  while (convertClashes(shown));
  return shown;
}

const itemsIn = ({ items }: ShownUnit): Fields[] => (items ?? []).filter(isFields);
const idOf = (item: Fields): string => asText(callIdOf(item));
const converted = ({ messages }: ShownUnit): ShownUnit => ({ items: null, messages });

/** "Duplicate item found with id": the first item is kept. */
function withoutRepeatedIds(units: readonly ShownUnit[]): ShownUnit[] {
  const ids = new Set<string>();
  return units.map((unit) => {
    const own = itemsIn(unit).map(({ id }) => textOr(id));
    const given = own.filter((id) => id !== '');
    if (new Set(given).size < given.length || given.some((id) => ids.has(id))) return converted(unit);
    for (const id of given) ids.add(id);
    return unit;
  });
}

/** A view shows results directly after their calls, but a program returns after the calls that it makes. */
function withProgramsInOrder(units: readonly ShownUnit[]): ShownUnit[] {
  const ordered = [...units];
  for (const unit of units) {
    const [output] = itemsIn(unit).filter(({ type }) => type === 'program_output');
    if (!output) continue;
    const from = ordered.indexOf(unit);
    let last = from;
    // The placeholder for a missing result has no fixed position.
    for (let next = from + 1; next < ordered.length && isPartOf(ordered[next]!, idOf(output)); next++)
      if ((ordered[next]!.seq ?? 0) < (unit.seq ?? 0)) last = next;
    if (last > from) ordered.splice(last, 0, ...ordered.splice(from, 1));
  }
  return ordered;
}

/** Returns whether a unit contains only results and the program's calls and reasoning. */
function isPartOf({ items, messages }: ShownUnit, program: string): boolean {
  if (items === null) return messages.every(({ role }) => role === 'tool');
  return items
    .filter(isFields)
    .every((item) => isOutput(item) || item.type === 'reasoning' || programOf(item) === program);
}

/** Maps each call id to the type of its call item. */
function callTypesOf({ items, messages }: ShownUnit): [string, string][] {
  if (!items)
    return messages.flatMap(({ tool_calls: calls = [] }) =>
      calls.map((call): [string, string] => [call.id, isCustom(call) ? 'custom_tool_call' : 'function_call']),
    );
  return items.flatMap((item): [string, string][] =>
    isFields(item) && isCall(item) ? [[idOf(item), textOr(item.type)]] : [],
  );
}

const isCustom = ({ custom, function: called }: ToolCall): boolean => isFields(custom as Json) && !called;

/** Maps each call id to the type of its output item; null for a converted one, which follows its call. */
function outputTypesOf({ items, messages }: ShownUnit): [string, string | null][] {
  if (!items)
    return messages.flatMap(({ role, tool_call_id: id }): [string, null][] =>
      role === 'tool' && id ? [[id, null]] : [],
    );
  return items.flatMap((item): [string, string][] =>
    isFields(item) && isOutput(item) ? [[idOf(item), textOr(item.type)]] : [],
  );
}

/** Only function calls can be answered with text. */
const convertible = (callType: string | undefined): boolean =>
  callType === 'function_call' || callType === 'custom_tool_call';

/**
 * Converts the units of items that conflict, and returns whether there were any: (1) an output whose call is not shown, or
 * shown in another form; (2) a call that text cannot answer (a shell, a computer), if its output was converted; (3) a call of a
 * program or an answer to an approval request, if the original that it refers to is not shown.
 */
function convertClashes(shown: ShownUnit[]): boolean {
  const callTypes = new Map(shown.flatMap(callTypesOf));
  const callers = new Map(shown.flatMap((unit, index) => callTypesOf(unit).map(([id]) => [id, index])));
  const lost = withoutReferent(shown);
  let clashes = false;
  const convert = (index: number | undefined): void => {
    if (index === undefined || shown[index]!.items === null) return;
    shown[index] = converted(shown[index]!);
    clashes = true;
  };
  shown.forEach((unit, index) => {
    if (lost.has(index)) convert(index);
    for (const [id, type] of outputTypesOf(unit)) {
      const callType = callTypes.get(id);
      if (type === null ? convertible(callType) : answersType(type, callType ?? '')) continue;
      if (type === null && callType === 'program' && isRunning(shown, id, callers.get(id)!, index)) continue;
      if (type !== null) convert(index);
      if (!convertible(callType)) convert(callers.get(id));
    }
  });
  return clashes;
}

/**
 * Returns units with items that refer to missing earlier items: calls of a program or their outputs outside of its run, and
 * answers to approval requests.
 */
function withoutReferent(shown: readonly ShownUnit[]): Set<number> {
  const lost = new Set<number>();
  const running = new Set<string>();
  const requests = new Set<string>();
  shown.forEach((unit, index) => {
    for (const item of itemsIn(unit)) {
      const program = programOf(item);
      if (program !== null && !running.has(program)) lost.add(index);
      if (item.type === 'program') running.add(idOf(item));
      if (item.type === 'program_output') running.delete(idOf(item));
      if (item.type === 'mcp_approval_request') requests.add(textOr(item.id));
      if (item.type === 'mcp_approval_response' && !requests.has(textOr(item.approval_request_id)))
        lost.add(index);
    }
  });
  return lost;
}

/**
 * Returns whether a program still waits for its calls: only its calls and their results follow it. The API continues it and
 * produces its output.
 */
function isRunning(shown: readonly ShownUnit[], program: string, caller: number, output: number): boolean {
  const [message] = shown[output]!.messages;
  return message?.content === noResult && shown.slice(caller + 1).every((unit) => isPartOf(unit, program));
}

/** Removes the placeholders for results of programs that are still running. */
function withoutRunning(shown: readonly ShownUnit[]): ShownUnit[] {
  const programs = new Set(
    shown.flatMap(callTypesOf).flatMap(([id, type]) => (type === 'program' ? [id] : [])),
  );
  const isPending = ({ role, tool_call_id: id = '' }: ChatMessage): boolean =>
    role === 'tool' && programs.has(id);
  return shown.filter(({ items, messages }) => items !== null || !messages.every(isPending));
}
