import { writeFileSync } from 'node:fs';
import { invalid } from '../../errors.js';
import { type Rehearsal, rehearse, rememberingCounters } from '../../rehearsal/rehearse.js';
import { type ChartPoint, type ChartSeries, chartSvg } from '../chart/chart.js';
import { checkOutFile } from '../command/flags.js';
import {
  codeOfUnreadable,
  readTranscripts,
  type Transcript,
  type UnreadableTranscript,
} from '../play/transcripts.js';
import { exitCodes } from '../command/exit-codes.js';
import { errorJson, errorLines } from '../terminal/failures.js';
import { Interrupted, onInterrupt } from '../terminal/input.js';
import { count, plural } from '../terminal/numbers.js';
import { Screen } from '../terminal/progress.js';
import { baseline, type NamedPolicy, type PlanPolicyFlags, policiesFromFlags } from './policies.js';
import { cutLines, legend, planJson, type PlanRow, planTable, totalTable } from './report.js';

export interface PlanFlags extends PlanPolicyFlags {
  json?: boolean;
  svg?: string;
  /** Name of the policy whose cuts are shown. */
  cuts?: string;
  /** Use only this session. */
  session?: string;
}

/** With more sessions than this, one summary table replaces their tables. */
const mostTables = 5;

/**
 * `palimpsest plan` shows the effect that each policy would have on recorded sessions. It changes nothing and needs no server.
 * Resolves to the exit code: 0, 1 if a session could not be read, 2 if no session can be because the input is invalid, or 130.
 * Throws `Input.Invalid` for invalid flags.
 */
export async function plan(files: string[], flags: PlanFlags): Promise<number> {
  if (files.filter((file) => file === '-').length > 1)
    throw invalid('Standard input (-) can be read only once.', 'FILE');
  const screen = new Screen(flags.json ? process.stderr : process.stdout);
  const policies = policiesFromFlags(flags, (name, why) => screen.line(`${name} is omitted: ${why}`));
  checkCuts(flags, policies);
  if (flags.svg !== undefined) checkOutFile(flags.svg, '--svg');
  const { signal } = onInterrupt();
  const { sessions, unreadable } = await readSessions(files, flags);
  if (flags.svg !== undefined && sessions.length > 1) {
    throw invalid(
      `--svg draws one session, but ${sessions.length} were read.`,
      '--svg',
      `Choose one with --session, such as ${JSON.stringify(sessions[0]?.id)}.`,
    );
  }
  for (const one of unreadable) tellError(one, flags, screen);
  try {
    await comparePolicies(sessions, policies, flags, screen, signal);
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    screen.line('interrupted');
    return 130;
  }
  if (unreadable.length === 0) return exitCodes.done;
  return sessions.length > 0 ? exitCodes.failed : codeOfUnreadable(unreadable);
}

function checkCuts({ cuts, json }: PlanFlags, policies: readonly NamedPolicy[]): void {
  if (cuts === undefined) return;
  if (json) throw invalid('--json already shows every cut.', '--cuts', 'Omit one of them.');
  if (policies.some(({ name }) => name === cuts)) return;
  throw invalid(
    `The comparison has no policy ${JSON.stringify(cuts)}.`,
    '--cuts',
    `Its policies are ${policies.map(({ name }) => JSON.stringify(name)).join(', ')}.`,
  );
}

async function readSessions(
  files: readonly string[],
  { session }: PlanFlags,
): Promise<{ sessions: Transcript[]; unreadable: UnreadableTranscript[] }> {
  const reads = (await Promise.all(files.map((file) => readTranscripts(file)))).flat();
  const chosen = session === undefined ? reads : reads.filter(({ id }) => id === session);
  if (reads.length > 0 && chosen.length === 0) {
    const some = reads.slice(0, 3).map(({ id }) => JSON.stringify(id));
    throw invalid(
      `No session ${JSON.stringify(session)} was read.`,
      '--session',
      `The sessions are ${some.join(', ')}${reads.length > 3 ? ', …' : ''}.`,
    );
  }
  return {
    sessions: chosen.flatMap((read) => ('error' in read ? [] : [read])),
    unreadable: chosen.flatMap((read) => ('error' in read ? [read] : [])),
  };
}

async function comparePolicies(
  sessions: readonly Transcript[],
  policies: readonly NamedPolicy[],
  flags: PlanFlags,
  screen: Screen,
  signal: AbortSignal,
): Promise<void> {
  const summedUp = sessions.length > mostTables;
  const all: PlanRow[][] = [];
  for (const [index, session] of sessions.entries()) {
    const rows = await compare(session, policies, signal, (name) =>
      screen.redraw(`${index + 1} of ${plural(sessions.length, 'session')}: ${session.id} under ${name}`),
    );
    if (flags.json) process.stdout.write(`${planJson(session.id, session.messages.length, rows)}\n`);
    else tell(session, rows, flags, screen, summedUp);
    if (flags.svg !== undefined) writeChart(flags.svg, session, rows, screen);
    // The turns of thousands of sessions would take too much memory.
    if (summedUp)
      all.push(rows.map(({ name, rehearsal }) => ({ name, rehearsal: { ...rehearsal, turns: [] } })));
  }
  if (flags.json) return;
  if (summedUp) screen.line(`\n${plural(sessions.length, 'session')}\n${totalTable(all)}`);
  if (sessions.length > 0) screen.line(legend);
}

async function compare(
  { messages }: Transcript,
  policies: readonly NamedPolicy[],
  signal: AbortSignal,
  begin: (name: string) => void,
): Promise<PlanRow[]> {
  const counters = rememberingCounters();
  const rows: PlanRow[] = [];
  for (const { name, input } of policies) {
    begin(name);
    rows.push({ name, rehearsal: await rehearse(messages, input, { counters, signal }) });
  }
  return rows;
}

function tell(
  { id, messages }: Transcript,
  rows: readonly PlanRow[],
  { cuts }: PlanFlags,
  screen: Screen,
  summedUp: boolean,
): void {
  const first = rows[0]?.rehearsal;
  const about = `${id}: ${plural(messages.length, 'message')}, ${plural(first?.turns.length ?? 0, 'turn')}, ${count(first?.rawTokens ?? 0)} tokens`;
  if (summedUp) {
    const compacted = rows.filter(({ rehearsal }) => rehearsal.compactions.length > 0);
    const times = compacted.map(({ name, rehearsal }) => `${name} ${rehearsal.compactions.length}×`);
    screen.line(`${about}   ${times.join(', ') || 'no policy compacts'}`);
  } else screen.line(`${about}\n${planTable(rows, screen.columns)}`);
  const shown = rows.find(({ name }) => name === cuts);
  if (shown) for (const line of cutLines(messages, shown)) screen.line(line);
}

function writeChart(
  file: string,
  { id, messages }: Transcript,
  rows: readonly PlanRow[],
  screen: Screen,
): void {
  const svg = planChart(id, messages.length, rows);
  try {
    writeFileSync(file, svg);
  } catch (error) {
    throw invalid(
      `The chart could not be written: ${error instanceof Error ? error.message : String(error)}`,
      '--svg',
    );
  }
  screen.line(`chart written to ${file}`);
}

function tellError({ id, error }: UnreadableTranscript, { json }: PlanFlags, screen: Screen): void {
  if (json) process.stdout.write(`${errorJson(id, error)}\n`);
  const [first, ...rest] = errorLines(error);
  screen.line(`${id}   error   ${first}`);
  for (const line of rest) screen.line(line);
}

/**
 * Draws the sizes of a session's requests under several policies as an SVG chart, with a line per policy, its compactions
 * marked at their start, and windows and triggers as horizontal lines.
 */
export function planChart(session: string, messages: number, rows: readonly PlanRow[]): string {
  const first = rows[0]?.rehearsal;
  const overhead = first?.limits.overhead ?? 0;
  return chartSvg({
    title: `Context of ${session}`,
    subtitle:
      `${plural(messages, 'message')}, ${plural(first?.turns.length ?? 0, 'turn')}, ${count(first?.rawTokens ?? 0)} tokens; ` +
      'dots are compactions, dotted lines the sizes that trigger them',
    xLabel: 'turn',
    yLabel: overhead > 0 ? 'overhead + context, tokens' : 'context, tokens',
    series: rows.map(seriesOf),
    rules: windowRules(rows, Math.max(...rows.map(({ rehearsal }) => rehearsal.largest))),
  });
}

function seriesOf({ name, rehearsal }: PlanRow): ChartSeries {
  const { compactions, threshold, largest } = rehearsal;
  return {
    name,
    note: `${plural(compactions.length, 'compaction')}, largest ${count(largest)}`,
    points: pointsOf(rehearsal),
    marks: marksOf(rehearsal),
    rule: threshold,
    reference: name === baseline,
  };
}

/** Returns the request of each turn, and the context after the compactions that follow it. */
function pointsOf({ turns, compactions, limits }: Rehearsal): ChartPoint[] {
  // Reading a context shortens it to this size.
  const largest = limits.budget + limits.overhead;
  const after = new Map<number, ChartPoint[]>();
  for (const { turn, tokensAfter } of compactions) {
    after.set(turn, [...(after.get(turn) ?? []), { turn, size: Math.min(tokensAfter, largest) }]);
  }
  return turns.flatMap(({ turn, tokens }) => [{ turn, size: tokens }, ...(after.get(turn) ?? [])]);
}

/** Returns the places where the line falls: the request before each compaction. */
function marksOf({ turns, compactions }: Rehearsal): ChartPoint[] {
  return compactions.map(({ turn, tokensBefore }) => ({
    turn,
    size: turns[turn - 1]?.tokens ?? tokensBefore,
  }));
}

/** Returns each window once; a window far above every request would flatten the lines, so only the table shows it. */
function windowRules(rows: readonly PlanRow[], largest: number): { size: number; label: string }[] {
  const compacting = rows.filter(({ name }) => name !== baseline || rows.length === 1);
  const windows = new Map<number, string[]>();
  for (const { name, rehearsal } of compacting) {
    const { window } = rehearsal.limits;
    windows.set(window, [...(windows.get(window) ?? []), name]);
  }
  const near = [...windows].filter(([size]) => size <= 2 * largest);
  return near.map(([size, names]) => ({
    size,
    label: windows.size === 1 ? `window ${count(size)}` : `window ${count(size)} (${names.join(', ')})`,
  }));
}
