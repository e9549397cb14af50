/** Prints the parts of a context in tokens. */
import type { ContextBreakdown } from '../../context/view/breakdown.js';
import type { SessionMemory } from '../../contract/sessions.js';
import type { JournalEntry } from '../../summary/journal/rewrites.js';
import { count, percent } from '../terminal/numbers.js';
import type { Fact, Output } from '../terminal/output.js';
import type { Column } from '../terminal/table.js';

/** Entries shown, newest last; `--json` has all of them. */
const mostEntries = 8;

/** Returns `system 120 · note 130 · journal 640 · tail 3,400`: the existing parts in the order of the request. */
export function breakdownText({ system, head, parts, carried, tail }: ContextBreakdown): string {
  const inHead: [string, number][] =
    parts === null
      ? [['head', head]]
      : [
          ['note', parts.note],
          ['journal', parts.journal],
          ['exact values', parts.exact],
          ['pins', parts.pins],
          ['state', parts.state],
          ['snapshot', parts.snapshot],
        ];
  const all: [string, number][] = [['system', system], ...inHead, ['carried', carried], ['tail', tail]];
  const shown = all.filter(([, tokens]) => tokens !== 0).map(([name, tokens]) => `${name} ${count(tokens)}`);
  return shown.join(' · ') || 'nothing';
}

export function memoryFacts({ breakdown, journal, promptCache }: SessionMemory): (Fact | null)[] {
  return [
    ['holds', breakdownText(breakdown)],
    journal && [
      'journal',
      `${entries(journal.entries.length)}; a line was rewritten ${journal.rewritesPerLine.toFixed(2)} times by merges`,
    ],
    promptCache && [
      'unchanged',
      `${count(promptCache.tokens)} of ${count(promptCache.requestTokens)} tokens (${percent(promptCache.tokens, promptCache.requestTokens)}) of the first request after the newest commit`,
    ],
  ];
}

function entries(number: number): string {
  return `${count(number)} ${number === 1 ? 'entry' : 'entries'}`;
}

export async function showJournal(out: Output, { journal }: SessionMemory): Promise<void> {
  if (journal === null || journal.entries.length === 0) return;
  await out.line();
  await out.table(entryColumns, journal.entries.slice(-mostEntries));
  const earlier = journal.entries.length - mostEntries;
  if (earlier > 0) out.note(`${entries(earlier)} before these: --json has them all`);
}

const entryColumns: Column<JournalEntry>[] = [
  {
    head: 'entry',
    value: ({ fromSeq, throughSeq }) => `${count(fromSeq)}–${count(throughSeq)}`,
    align: 'right',
  },
  { head: 'merges', value: ({ rank }) => count(rank), align: 'right' },
  { head: 'rewritten', value: ({ rewrites }) => rewrites.toFixed(1), align: 'right', dispensable: 2 },
  { head: 'lines', value: ({ lines }) => (lines === 0 ? 'in the archive' : count(lines)), align: 'right' },
  { head: 'tokens', value: ({ tokens }) => count(tokens), align: 'right' },
  { head: 'by', value: ({ byRule }) => (byRule ? 'rule' : 'model'), dispensable: 1 },
];
