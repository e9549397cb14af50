/** A context as input of OpenAI's Responses API. */
import type { ChatMessage, ContentPart, Json } from '../conversation/message.js';
import { isBlank, noOutput } from '../context/view/projection.js';
import { textOf } from '../conversation/validate.js';
import { isFields, mediaOf, partsOf, placeholder, textOr, type Fields } from './content.js';
import { asText } from '../conversation/plain-json.js';
import { envelopeOf } from './envelope.js';
import type { Rendered, ShownUnit } from './format.js';
import { callIdOf, isBlankMessage, isCall, isOutput, programOf } from './responses-items.js';
import { callTypesOf, isCustom, settled, withoutRunning } from './responses-settle.js';

/**
 * The items of a unit with the call ids that its messages have in the context, without messages that say nothing. An
 * envelope stays where it holds the instructions, for {@link renderResponses}.
 */
export function withCallIds(items: readonly Json[], messages: readonly ChatMessage[]): Json[] {
  const calls = messages.flatMap(({ tool_calls: made = [] }) => made.map(({ id }) => id));
  const answered = messages.filter(({ role }) => role === 'tool').map(({ tool_call_id: id }) => id);
  return items.flatMap((item): Json[] => {
    const document = envelopeOf(item);
    if (document) return typeof document.instructions === 'string' ? [item] : [];
    if (!isFields(item)) return [item];
    if (isBlankMessage(item) || item.type === 'compaction_trigger') return [];
    const id = isOutput(item) ? answered.shift() : asksForResult(item) ? calls.shift() : undefined;
    return [withInput(id === undefined || id === callIdOf(item) ? item : { ...item, call_id: id })];
  });
}

const asksForResult = (item: Fields): boolean =>
  isCall(item) || item.type === 'function_call' || item.type === 'custom_tool_call';

/** A call that was recorded without its input has an empty one. */
function withInput(item: Fields): Fields {
  if (item.type === 'function_call' && typeof item.arguments !== 'string')
    return { ...item, arguments: '{}' };
  if (item.type === 'custom_tool_call' && typeof item.input !== 'string') return { ...item, input: '' };
  return item;
}

/** Instructions lead, as text; everything else is an input item. */
export function renderResponses(units: readonly ShownUnit[]): Rendered {
  const first = units.findIndex((unit) => instructionOf(unit) === null);
  const leading = first < 0 ? units : units.slice(0, first);
  const instructions = leading.map((unit) => instructionOf(unit)!).filter((text) => text !== '');
  const shown = settled(first < 0 ? [] : units.slice(first));
  const kinds = new Map(shown.flatMap(callTypesOf));
  const converter = new Converter(kinds);
  const messages = withCallers(
    withoutRunning(shown).flatMap(
      (unit) => unit.items?.filter((item) => envelopeOf(item) === null) ?? converter.items(unit.messages),
    ),
  );
  return { messages, ...(instructions.length > 0 ? { system: instructions.join('\n\n') } : {}) };
}

/** The output of a call that a program made says so, also where it was shortened. */
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

/** Instructions from beside the input, or a leading system message of another format; null for everything else. */
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

/** Only a chat message can have a name: the text says it. */
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

/** An assistant's input is text and refusals only. */
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
