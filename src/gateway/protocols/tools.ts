import { recoveryTools } from '../../contract/recovery-tools.js';
import type { Json } from '../../conversation/message.js';
import { type Fields, isFields, textOr } from '../../formats/content.js';
import { jsonIn, type SseEvent } from '../sse.js';

const names: ReadonlySet<string> = new Set(recoveryTools.map(({ function: { name } }) => name));

export const isRecoveryTool = (name: string): boolean => names.has(name);

/** Whether the client has a tool of the same name, which it answers itself. */
export function hasNamesake(tools: Json | undefined, nameOf: (tool: Fields) => Json | undefined): boolean {
  return listOf(tools).some((tool) => isFields(tool) && isRecoveryTool(textOr(nameOf(tool))));
}

export const listOf = (value: Json | undefined): Json[] => (Array.isArray(value) ? value : []);

/** The sum of two reports of usage, field by field. */
export function sumOfUsage(one: Json, other: Json): Json {
  if (typeof one === 'number' && typeof other === 'number') return one + other;
  if (!isFields(one) || !isFields(other)) return other ?? one;
  const fields = Object.entries(one).filter(([name]) => !(name in other));
  const summed = Object.entries(other).map(([name, value]) => [name, sumOfUsage(one[name] ?? null, value)]);
  return Object.fromEntries([...fields, ...summed]) as Json;
}

/** The last report of usage in the end of a stream. Each report of an answer includes those before it. */
export function usageAtEnd(held: readonly SseEvent[]): Json {
  const reports = held
    .map(jsonIn)
    .map((data) => (isFields(data) && isFields(data.usage) ? data.usage : null));
  return reports.findLast((usage) => usage !== null) ?? null;
}

/** The number of tokens in a field; undefined if it has none. */
export const tokensIn = (value: Json | undefined): number | undefined =>
  typeof value === 'number' && Number.isFinite(value) && value > 0 ? value : undefined;
