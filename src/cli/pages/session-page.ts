/** `palimpsest status` shows one session on one screen. */
import { programName } from '../../runtime/program.js';
import type { Status } from '../../contract/sessions.js';
import { adviceFor } from '../terminal/failures.js';
import { ago, count, percent, plural } from '../terminal/numbers.js';
import type { Fact, Output } from '../terminal/output.js';
import type { Column } from '../terminal/table.js';
import { memoryFacts, showJournal } from './breakdown.js';

const barWidth = 24;

/** Number of compactions shown, newest first; `timeline` shows all. */
const mostRecords = 5;

export async function showStatus(out: Output, status: Status, allKnobs: boolean): Promise<void> {
  await out.facts(factsOf(out, status));
  await showJournal(out, status);
  if (status.summaryRecords.length > 0) {
    await out.line();
    await out.table(recordColumns, status.summaryRecords.slice(0, mostRecords));
    const more = status.summaryRecords.length - mostRecords;
    if (more > 0) out.note(`${plural(more, 'earlier compaction')}: palimpsest timeline ${status.session}`);
  }
  const knobs = allKnobs ? status.knobs : status.knobs.filter(({ source }) => source !== 'default');
  if (knobs.length === 0) return;
  await out.line();
  await out.table(
    [
      { head: 'policy', value: ({ path }) => path, least: 20 },
      { head: 'value', value: ({ value }) => JSON.stringify(value), least: 12, shorten: 'end' },
      { head: 'from', value: ({ source }) => source },
    ] satisfies Column<Status['knobs'][number]>[],
    knobs,
  );
}

function factsOf({ style }: Output, status: Status): (Fact | null)[] {
  const { tokens, budget, measureAt, generation, lastError, exhausted, calibration } = status;
  const full = tokens / Math.max(1, budget);
  const filled = Math.max(0, Math.min(barWidth, Math.round(full * barWidth)));
  return [
    ['session', status.session],
    ['phase', phaseOf(status), status.phase === 'unknown' ? style.red : undefined],
    status.overdue === null
      ? null
      : [
          'overdue',
          `for ${ago(status.overdue)}: no workflow is known to work on it; the next sweep signals one`,
          style.yellow,
        ],
    status.paused ? ['paused', `no compaction begins until \`${programName()} resume\``, style.yellow] : null,
    [
      'context',
      `${'█'.repeat(filled)}${'·'.repeat(barWidth - filled)}  ${count(tokens)} of ${count(budget)} tokens (${percent(tokens, budget)})`,
      full > 1 ? style.yellow : undefined,
    ],
    ...memoryFacts(status),
    [
      'next',
      measureAt === null ? 'no compaction will be triggered' : `is measured at ${count(measureAt)} tokens`,
    ],
    ['log', `${plural(status.messages, 'message')}, ${count(status.liveMessages)} of them in the context`],
    saidFact(status),
    ['window', windowText(status), status.window.source === 'fallback' ? style.yellow : undefined],
    assumedFact(status),
    [
      'generation',
      `${generation}; ${plural(status.summariesPerformed, 'archive part')} with ${count(status.tokensSummarized)} tokens`,
    ],
    calibration.applied === 1 && calibration.appliedOverhead === 0
      ? null
      : [
          'counts',
          `× ${calibration.applied.toFixed(3)} and ${count(calibration.appliedOverhead)} of overhead by ${plural(calibration.samples, 'report')} of usage`,
        ],
    calibration.warning === null ? null : ['usage', calibration.warning, style.yellow],
    ...status.knobs.flatMap(({ path, warning }): Fact[] =>
      warning === undefined ? [] : [['policy', `${path}: ${warning}`, style.yellow]],
    ),
    exhausted === null
      ? null
      : ['full', `${exhausted.reason}; compacts again once the context has grown`, style.yellow],
    lastError === null ? null : failureFact(status, lastError, style),
    lastError === null ? null : adviceFact(lastError.type),
    status.retryAt === null
      ? null
      : ['retry', `${retryOf(status.retryAt)} (${plural(status.failures, 'failure')} in a row)`],
    ...status.skippedPins.map(({ path, reason }): Fact => ['no pin', `${path}: ${reason}`, style.yellow]),
    ...status.rejectedTurns.map(({ turnId, type, message }): Fact => [
      'refused',
      `turn ${turnId}: ${type}: ${message}`,
      style.yellow,
    ]),
  ];
}

function windowText({ window: { tokens, given, source }, calibration }: Status): string {
  const counted = `; ${count(tokens)} as counted here, where one token is ${calibration.applied.toFixed(3)} of the provider's`;
  return `${count(given)} tokens (${source})${tokens === given ? '' : counted}`;
}

/** The next step if the window is not that of the agent's model. */
function assumedFact({ window, knobs }: Status): Fact | null {
  if (window.source !== 'fallback') return null;
  const model = knobs.find(({ path }) => path === 'model')?.value;
  const why =
    typeof model === 'string'
      ? `the model ${JSON.stringify(model)} is not known: correct it, or set contextWindow`
      : 'the policy names no model: set model or contextWindow';
  return ['', `→ assumed, because ${why}`];
}

function saidFact({ said: { first, last } }: Status): Fact | null {
  const minute = (at: string | null) => at?.slice(0, 16).replace('T', ' ') ?? '?';
  return first === null && last === null ? null : ['said', `${minute(first)} – ${minute(last)} UTC`];
}

/** Without a failure in a row, the latest compaction committed, and the rules wrote what the model did not. */
function failureFact(
  { failures }: Status,
  { type, message }: NonNullable<Status['lastError']>,
  style: Output['style'],
): Fact {
  const told = `${type}: ${message}`;
  return failures === 0 ? ['by rule', told, style.yellow] : ['failed', told, style.red];
}

function adviceFact(type: string): Fact | null {
  const advice = adviceFor(type);
  return advice === undefined ? null : ['', `→ ${advice}`];
}

function phaseOf({ phase, compaction }: Status): string {
  if (compaction) return `${phase}: generation ${compaction.generation}`;
  if (phase === 'asleep') return 'asleep: no turn for a while; the next turn wakes it';
  if (phase === 'unknown')
    return `unknown: no worker answers for its workflow (\`${programName()} doctor\` shows whether one polls)`;
  return phase;
}

function retryOf(retryAt: string): string {
  const wait = Date.parse(retryAt) - Date.now();
  return wait <= 0 ? 'possible now' : `in ${Math.ceil(wait / 1_000)} s at the earliest`;
}

const recordColumns: Column<Status['summaryRecords'][number]>[] = [
  { head: 'gen', value: ({ generation }) => String(generation), align: 'right' },
  { head: 'when', value: ({ at }) => `${ago(at)} ago`, align: 'right' },
  { head: 'reason', value: ({ reason }) => reason, least: 6 },
  { head: 'method', value: ({ method }) => method, least: 6 },
  {
    head: 'tokens',
    value: ({ tokensBefore, tokensAfter }) => `${count(tokensBefore)} → ${count(tokensAfter)}`,
    align: 'right',
  },
  { head: 'evicted', value: ({ evicted }) => count(evicted), align: 'right', dispensable: 1 },
  {
    head: 'messages',
    value: ({ range }) => (range === null ? '–' : `${range.fromSeq}–${range.throughSeq}`),
    align: 'right',
    dispensable: 2,
  },
];
