/** Prints the result of an import: sessions by outcome, rejected records with reasons, and the next step. */
import type { ImportReport, ImportStatus, ImportTotals } from '../../import/report.js';
import type { Output } from '../terminal/output.js';
import { count, plural, seconds } from '../terminal/numbers.js';
import type { Column } from '../terminal/table.js';

interface Line {
  status: ImportStatus;
  sessions: number;
  messages: number;
  added: number;
}

const meanings: Record<ImportStatus, string> = {
  stored: 'new',
  extended: 'the beginning was already stored',
  present: 'was already stored',
  duplicate: 'the same messages under another id',
  refused: 'set aside, see below',
};

export async function showImport(out: Output, imported: Imported): Promise<void> {
  const { totals, byStatus, milliseconds, dryRun, prefix } = imported;
  const statuses = Object.keys(meanings) as ImportStatus[];
  const lines = statuses.map((status): Line => ({ status, sessions: totals[status], ...byStatus[status] }));
  const columns: Column<Line>[] = [
    { head: dryRun ? 'would be' : 'sessions', value: ({ status }) => status },
    { head: 'number', value: ({ sessions }) => count(sessions), align: 'right' },
    { head: 'messages', value: ({ messages }) => count(messages), align: 'right' },
    { head: 'new', value: ({ added }) => count(added), align: 'right' },
    { head: '', value: ({ status }) => meanings[status], dispensable: 1 },
  ];
  await out.table(columns, lines);
  const sessions = statuses.reduce((sum, status) => sum + totals[status], 0);
  const perSecond = milliseconds > 0 ? (sessions / milliseconds) * 1_000 : 0;
  const rate = perSecond >= 10 ? count(Math.round(perSecond)) : perSecond.toFixed(1);
  await out.line(`${plural(sessions, 'session')} in ${seconds(milliseconds)}, ${rate} a second`);
  await showRefused(out, imported);
  if (imported.tooLarge > 0) {
    await out.paragraph(
      `${plural(imported.tooLarge, 'session')} ended in a user message larger than the budget, so they have no context ` +
        '(Budget.Unreachable): set reduce.newestUserMessage to true to shorten such messages, or set a larger window.',
      out.style.yellow,
    );
  }
  if (dryRun || totals.stored + totals.extended === 0) return;
  const select = prefix === undefined ? '' : ` --prefix ${JSON.stringify(prefix)}`;
  await out.line(
    `Next: palimpsest backfill start <job>${select} compacts those that are over their threshold.`,
  );
}

async function showRefused(out: Output, { totals, refused, rejects }: Imported): Promise<void> {
  if (totals.refused === 0) return;
  await out.line();
  await out.line(out.style.bold('Set aside:'));
  for (const report of refused) for (const text of linesOf(report)) await out.paragraph(text);
  const more = totals.refused - refused.length;
  const all = rejects === undefined ? 'all with --rejects FILE' : `all in ${rejects}`;
  if (more > 0 || rejects !== undefined)
    await out.line(`${more > 0 ? `and ${count(more)} more; ` : ''}${all}`);
}

function linesOf({ source, line, session, error }: ImportReport): string[] {
  if (!error) return [];
  const { type, message, path, hint } = error;
  const where = path !== undefined && !message.includes(path) ? ` (${path})` : '';
  return [
    `${source}:${line}  ${session.slice(0, 200)}`,
    `  ${type}: ${message}${where}`,
    ...(hint === undefined ? [] : [`  ${hint}`]),
  ];
}

/** The data that the command keeps of an import; it omits the sessions, because there may be millions. */
export interface Imported {
  totals: ImportTotals;
  byStatus: Record<ImportStatus, { messages: number; added: number }>;
  /** The first rejected records. */
  refused: ImportReport[];
  /** Sessions that have no context, because their newest user message is larger than their budget. */
  tooLarge: number;
  milliseconds: number;
  prefix: string | undefined;
  dryRun: boolean;
  rejects: string | undefined;
}
