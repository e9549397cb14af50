/**
 * Which originals a request to the Responses API may hold: an item gives way to what it means where the API would refuse it
 * beside the others.
 */
import type { ChatMessage, Json, ToolCall } from '../conversation/message.js';
import { noResult } from '../context/view/projection.js';
import { isFields, textOr, type Fields } from './content.js';
import { asText } from '../conversation/plain-json.js';
import type { ShownUnit } from './format.js';
import { answersType, callIdOf, isCall, isOutput, programOf } from './responses-items.js';

/** The units as they can stand together, the result of each program behind what the program called. */
export function settled(units: readonly ShownUnit[]): ShownUnit[] {
  const shown = withoutRepeatedIds(withProgramsInOrder(units));
  while (convertClashes(shown));
  return shown;
}

const itemsIn = ({ items }: ShownUnit): Fields[] => (items ?? []).filter(isFields);
const idOf = (item: Fields): string => asText(callIdOf(item));
const converted = ({ messages }: ShownUnit): ShownUnit => ({ items: null, messages });

/** "Duplicate item found with id": the first one stays. */
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

/** A view shows results with their calls, but a program returns after the calls that it makes. */
function withProgramsInOrder(units: readonly ShownUnit[]): ShownUnit[] {
  const ordered = [...units];
  for (const unit of units) {
    const [output] = itemsIn(unit).filter(({ type }) => type === 'program_output');
    if (!output) continue;
    const from = ordered.indexOf(unit);
    let last = from;
    // What stands for a result that is missing has no place of its own.
    for (let next = from + 1; next < ordered.length && isPartOf(ordered[next]!, idOf(output)); next++)
      if ((ordered[next]!.seq ?? 0) < (unit.seq ?? 0)) last = next;
    if (last > from) ordered.splice(last, 0, ...ordered.splice(from, 1));
  }
  return ordered;
}

/** Whether a unit holds nothing but results and what the program calls and thinks. */
function isPartOf({ items, messages }: ShownUnit, program: string): boolean {
  if (items === null) return messages.every(({ role }) => role === 'tool');
  return items
    .filter(isFields)
    .every((item) => isOutput(item) || item.type === 'reasoning' || programOf(item) === program);
}

/** By call id: the type of the item that makes the call. */
export function callTypesOf({ items, messages }: ShownUnit): [string, string][] {
  if (!items)
    return messages.flatMap(({ tool_calls: calls = [] }) =>
      calls.map((call): [string, string] => [call.id, isCustom(call) ? 'custom_tool_call' : 'function_call']),
    );
  return items.flatMap((item): [string, string][] =>
    isFields(item) && isCall(item) ? [[idOf(item), textOr(item.type)]] : [],
  );
}

export const isCustom = ({ custom, function: called }: ToolCall): boolean =>
  isFields(custom as Json) && !called;

/** By call id: the type of the output item; of a converted one `null`, for it follows its call. */
function outputTypesOf({ items, messages }: ShownUnit): [string, string | null][] {
  if (!items)
    return messages.flatMap(({ role, tool_call_id: id }): [string, null][] =>
      role === 'tool' && id ? [[id, null]] : [],
    );
  return items.flatMap((item): [string, string][] =>
    isFields(item) && isOutput(item) ? [[idOf(item), textOr(item.type)]] : [],
  );
}

/** Only calls of functions can be answered in words. */
const convertible = (callType: string | undefined): boolean =>
  callType === 'function_call' || callType === 'custom_tool_call';

/**
 * Converts what clashes: an output whose call is shown in another form, or not at all; a call of a kind that no text can
 * answer (a shell, a computer) whose output is not the original; calls of a program, and answers to requests for
 * approval, without the original that they refer to. False where nothing did.
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
 * Units with items that refer to what does not stand before them: calls of a program, or answers to them, outside of its
 * run; answers to requests for approval.
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
 * Whether a program still waits for what it called: nothing stands behind it but its calls and their results. The API goes
 * on with it, and makes its output.
 */
function isRunning(shown: readonly ShownUnit[], program: string, caller: number, output: number): boolean {
  const [message] = shown[output]!.messages;
  return message?.content === noResult && shown.slice(caller + 1).every((unit) => isPartOf(unit, program));
}

/** Results that stand for none yet, of programs that are running. */
export function withoutRunning(shown: readonly ShownUnit[]): ShownUnit[] {
  const programs = new Set(
    shown.flatMap(callTypesOf).flatMap(([id, type]) => (type === 'program' ? [id] : [])),
  );
  const isPending = ({ role, tool_call_id: id = '' }: ChatMessage): boolean =>
    role === 'tool' && programs.has(id);
  return shown.filter(({ items, messages }) => items !== null || !messages.every(isPending));
}
