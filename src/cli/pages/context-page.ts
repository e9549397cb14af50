/** Prints the context as a table: origin, tokens and first words of each message. */
import type { ChatMessage } from '../../conversation/message.js';
import type { ContextEntry, SessionContext } from '../../contract/context.js';
import { count, percent, plural } from '../terminal/numbers.js';
import type { Output } from '../terminal/output.js';
import type { Column } from '../terminal/table.js';
import { breakdownText } from './breakdown.js';

type Line = ContextEntry & { role: string; text: string };

export async function showContext(out: Output, context: SessionContext): Promise<void> {
  const { session, generation, messages, entries, tokens, breakdown, budget, window, format, etag } = context;
  await out.facts([
    ['session', session],
    [
      'context',
      `${count(tokens)} of ${count(budget)} tokens (${percent(tokens, budget)}), window ${count(window)}`,
    ],
    ['holds', breakdownText(breakdown)],
    ['shown', `${plural(messages.length, 'message')} in the format ${format}, generation ${generation}`],
    ['etag', etag],
  ]);
  await out.line();
  // In other formats several entries may form one message.
  const aligned = messages.length === entries.length;
  const lines = entries.map((entry, index): Line => {
    const message = aligned ? messages[index] : undefined;
    return { ...entry, role: message?.role ?? '', text: message ? textOf(message) : '' };
  });
  await out.table(columns, lines);
}

const columns: Column<Line>[] = [
  { head: 'seq', value: ({ seq }) => (seq === null ? '–' : count(seq)), align: 'right' },
  { head: 'source', value: ({ source }) => source },
  { head: 'role', value: ({ role }) => role },
  { head: 'tokens', value: ({ tokens }) => count(tokens), align: 'right' },
  { head: 'begins', value: ({ text }) => text.slice(0, 200), least: 10, shorten: 'end' },
];

/** Returns one line of text, or the calls of a message. */
function textOf({ content, tool_calls: calls }: ChatMessage): string {
  const text =
    typeof content === 'string'
      ? content
      : Array.isArray(content)
        ? content.map((part) => part.text ?? `[${part.type}]`).join(' ')
        : '';
  const made = Array.isArray(calls)
    ? calls.map(({ function: called }) => `→ ${called?.name ?? 'call'}(${called?.arguments ?? ''})`)
    : [];
  return [text, ...made].filter(Boolean).join(' ').replaceAll(/\s+/g, ' ').trim();
}
