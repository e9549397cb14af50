/**
 * A scripted agent for tests of frameworks: what its model answers to a request, its tools, and a window that refuses longer
 * requests. The model knows only the messages of the request.
 */
import { createHash } from 'node:crypto';
import { counterFor } from '../../src/tokens/counter.js';

/** A message of a request, in the words of no framework. */
export interface Seen {
  role: 'system' | 'user' | 'assistant' | 'tool';
  text: string;
  calls?: readonly { name: string; input: unknown }[];
}

interface Call {
  id: string;
  name: string;
  input: Record<string, unknown>;
}

export interface Answer {
  text: string;
  calls: Call[];
  usage: { input: number; output: number };
}

const { count } = counterFor('o200k_base');

export class ShipmentModel {
  requests = 0;
  /** Requests that did not fit. */
  refused = 0;
  /** Tokens of the largest request, its output limit included. */
  largest = 0;
  private made = 0;

  constructor(
    readonly window: number,
    readonly outputLimit: number,
  ) {}

  /** Throws if the request does not fit the window. */
  answer(messages: readonly Seen[], tools: unknown): Answer {
    this.requests++;
    const input = sizeOf(messages) + count(JSON.stringify(tools ?? []));
    const used = input + this.outputLimit;
    this.largest = Math.max(this.largest, used);
    if (used > this.window) {
      this.refused++;
      throw new Error(`context_length_exceeded: ${used} of ${this.window} tokens`);
    }
    const { text, calls } = nextStep(messages);
    const output = count(text + JSON.stringify(calls));
    const named = calls.map(([name, given]) => ({ id: `call_${++this.made}`, name, input: given }));
    return { text, calls: named, usage: { input, output } };
  }
}

/** As OpenAI's cookbook counts. */
function sizeOf(messages: readonly Seen[]): number {
  const of = ({ role, text, calls = [] }: Seen): number =>
    3 +
    count(role) +
    count(text) +
    calls.reduce((sum, { name, input }) => sum + 3 + count(name + JSON.stringify(input)), 0);
  return 3 + messages.reduce((sum, message) => sum + of(message), 0);
}

type Wanted = [name: string, input: Record<string, unknown>];

/** Reads both records of a shipment at once; searches for an evicted detail, then reads it word for word. */
function nextStep(messages: readonly Seen[]): { text: string; calls: Wanted[] } {
  const at = messages.findLastIndex(({ role }) => role === 'user');
  const request = messages[at]?.text ?? '';
  const results = messages.slice(at + 1).flatMap(({ role, text }) => (role === 'tool' ? [text] : []));
  const shipment = Number(/shipment (\d+)/.exec(request)?.[1] ?? '0');
  if (request.startsWith('Check')) {
    if (results.length > 0)
      return says(`Shipment ${shipment} is complete; ${results.length} records read, nothing is missing.`);
    return { text: '', calls: [...checks(shipment)] };
  }
  if (!request.startsWith('Under which seal')) return says(`Noted: ${request.slice(0, 80)}`);
  const seal = messages.map(({ text }) => sealIn(text, shipment)).find((found) => found !== null);
  if (seal) return says(`Shipment ${shipment} left under seal ${seal}.`);
  if (results.length === 0)
    return {
      text: '',
      calls: [['search_history', { query: `shipment ${shipment} seal`, role: 'tool', limit: 3 }]],
    };
  const hit = /"message":(\d+)/.exec(results[0] ?? '')?.[1];
  if (results.length === 1 && hit)
    return { text: '', calls: [['get_tool_response', { message: Number(hit) }]] };
  return says(`The seal of shipment ${shipment} is not in the records.`);
}

const checks = (shipment: number): Wanted[] => [
  ['get_shipment', { shipment }],
  ['get_route', { shipment }],
];

const says = (text: string) => ({ text, calls: [] });

/** A record as the tool gave it, or the same within the answer of a recovery tool. */
function sealIn(text: string, shipment: number): string | null {
  return new RegExp(`shipment ${shipment}\\b[^]{0,80}?seal (SL-[0-9A-F]{8})`).exec(text)?.[1] ?? null;
}

/** The request of a turn. Each tenth one asks for a detail of a shipment that was checked long ago. */
export function requestOf(turn: number): { text: string; expects: string } {
  if (turn > 20 && turn % 10 === 0)
    return { text: `Under which seal did shipment ${turn - 18} leave?`, expects: sealOf(turn - 18) };
  return { text: `Check shipment ${turn}.`, expects: `Shipment ${turn} is complete; 2 records` };
}

export const toolNames = ['get_shipment', 'get_route'] as const;

export function recordOf(name: (typeof toolNames)[number], shipment: number): string {
  if (name === 'get_route')
    return Array.from(
      { length: 8 },
      (_, stop) => `stop ${stop + 1}: depot ${(shipment * 7 + stop * 13) % 97}`,
    ).join('\n');
  const items = Array.from(
    { length: 14 },
    (_, index) =>
      `item ${index + 1}: article ${(shipment * 131 + index * 17) % 9_973}, ${(index * 7) % 12} pieces`,
  );
  return [`shipment ${shipment} left under seal ${sealOf(shipment)}`, ...items].join('\n');
}

function sealOf(shipment: number): string {
  return `SL-${createHash('sha256').update(`seal ${shipment}`).digest('hex').slice(0, 8).toUpperCase()}`;
}
