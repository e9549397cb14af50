import Table from 'cli-table3';
import type { ChatMessage } from '../../conversation/message.js';
import { renderParts } from '../../conversation/render.js';
import { baseline } from './policies.js';
import type { RehearsedCompaction, Rehearsal } from '../../rehearsal/rehearse.js';
import { breakdownText } from '../pages/breakdown.js';
import { count, percent, plural } from '../terminal/numbers.js';
import { shortenEnd } from '../terminal/table.js';

/** One policy and its effect on a session. */
export interface PlanRow {
  name: string;
  rehearsal: Rehearsal;
}

const firstCuts = 2;
const boundaryMark = { user: 'u', assistant: 'a', other: 'o' };

/** Explains the tables of `palimpsest plan`. */
export const legend = [
  'at / window: tokens (or messages) that trigger, and the window · ×: number of compactions · largest: tokens of the largest request',
  'cuts: messages that each compaction evicts; the tail then begins with a user message (u), an assistant message inside a run (a)',
  '  or another message (o); a compaction that is "shortened only" evicts nothing · evicted: tokens of all evicted messages',
  'in / out: tokens that the summarizer reads and writes, at most · stays: messages after the last cut, and their tokens',
  'repeats: share of the first request after a compaction that equals the start of the previous request, which a prompt cache serves',
  "per token: modelled cost of the agent's input and of the summarizer per token of the log, in uncached input tokens, compared with",
  '  no compaction; sessions in which a turn failed under the policy are left out',
  'No model was called: the extractive summarizer sizes snapshots, chunks and limits size the calls, and journal notes have the requested length.',
  'Each policy counts tokens with its own tokenizer.',
].join('\n');

type Column = [head: string, align: 'left' | 'right', cell: (row: PlanRow) => string];

/** Columns that are omitted one after the other if the terminal is too narrow. */
const dispensable = ['repeats', 'cuts', 'stays', 'in / out', 'evicted'];

/** Prints one row per policy, with fewer columns if `columns` is too small, or one paragraph per policy. Failures follow. */
export function planTable(rows: readonly PlanRow[], columns = Infinity): string {
  const all = columnsOf(rows);
  for (let dropped = 0; dropped <= dispensable.length; dropped++) {
    const without = dispensable.slice(0, dropped);
    const table = tableOf(
      rows,
      all.filter(([head]) => !without.includes(head)),
    );
    if (table.indexOf('\n') > columns) continue;
    const hint = dropped === 0 ? [] : [`Columns omitted to fit the width: ${without.join(', ')}.`];
    return [table, ...hint, ...rows.flatMap(failureLines)].join('\n');
  }
  return [...rows.map((row) => paragraph(row, all)), ...rows.flatMap(failureLines)].join('\n');
}

function tableOf(rows: readonly PlanRow[], columns: readonly Column[]): string {
  const table = new Table({
    head: columns.map(([head]) => head),
    colAligns: columns.map(([, align]) => align),
    style: { head: [], border: [], compact: true },
  });
  for (const row of rows) table.push(columns.map(([, , cell]) => cell(row)));
  return table.toString();
}

function columnsOf(rows: readonly PlanRow[]): Column[] {
  const none = rows.find(({ name }) => name === baseline)?.rehearsal;
  const paid = rows.some(({ rehearsal }) => rehearsal.policy.prices.currency !== null);
  return [
    ['policy', 'left', ({ name }) => name],
    [
      'at / window',
      'right',
      ({ rehearsal }) => `${triggerOf(rehearsal)} / ${count(rehearsal.limits.window)}`,
    ],
    ['', 'right', ({ rehearsal }) => `${rehearsal.compactions.length}×`],
    ['cuts', 'left', ({ rehearsal }) => cutsOf(rehearsal.compactions)],
    ['largest', 'right', ({ rehearsal }) => count(rehearsal.largest)],
    ['evicted', 'right', ({ rehearsal }) => count(rehearsal.evictedTokens)],
    [
      'in / out',
      'right',
      ({ rehearsal: { summarizer } }) => `${count(summarizer.input)} / ${count(summarizer.output)}`,
    ],
    ['repeats', 'right', ({ rehearsal }) => repeatedBy(rehearsal.compactions)],
    ...(paid ? [['money', 'right', ({ rehearsal }) => moneyOf(rehearsal)] satisfies Column] : []),
    ['per token', 'right', ({ rehearsal }) => perToken(rehearsal, none)],
    [
      'stays',
      'right',
      ({ rehearsal: { tail } }) => `${plural(tail.messages, 'message')}, ${count(tail.tokens)}`,
    ],
  ];
}

function paragraph(row: PlanRow, columns: readonly Column[]): string {
  const { rehearsal } = row;
  const cells = columns
    .slice(1)
    .map(([head, , cell]) =>
      head === '' ? plural(rehearsal.compactions.length, 'compaction') : `${head} ${cell(row)}`,
    );
  return [row.name, ...cells.map((cell) => `  ${cell}`)].join('\n');
}

function triggerOf({ threshold, limits }: Rehearsal): string {
  if (threshold !== null) return count(threshold);
  const messages = Math.min(...limits.triggers.flatMap((one) => one.messages ?? []));
  return messages === Infinity ? '–' : plural(messages, 'message');
}

/** Returns `2–40 u, 41–78 a, +3`; commits of reductions alone are counted separately. */
function cutsOf(compactions: readonly RehearsedCompaction[]): string {
  const cuts = compactions.filter(({ boundary }) => boundary !== null);
  const reductions = compactions.length - cuts.length;
  const texts = cuts
    .slice(0, firstCuts)
    .map(
      ({ fromSeq, throughSeq, boundary }) =>
        `${count(fromSeq)}–${count(throughSeq)} ${boundaryMark[boundary ?? 'other']}`,
    );
  const more = cuts.length > firstCuts ? [`+${count(cuts.length - firstCuts)}`] : [];
  const reduced = reductions > 0 ? [`${reductions} shortened only`] : [];
  return [...texts, ...more, ...reduced].join(', ') || '–';
}

/** Returns the share of the requests after compactions that a prompt cache contains. */
function repeatedBy(compactions: readonly RehearsedCompaction[]): string {
  const total = (of: (one: RehearsedCompaction) => number) =>
    compactions.reduce((so, one) => so + of(one), 0);
  if (compactions.length === 0) return '–';
  return percent(
    total(({ cachedTokens }) => cachedTokens),
    total(({ tokensAfter }) => tokensAfter),
  );
}

const sum = ({ agentCost, summarizerCost }: Rehearsal): number => agentCost + summarizerCost;

function moneyOf(rehearsal: Rehearsal): string {
  const { currency } = rehearsal.policy.prices;
  return currency === null ? '–' : `${currency} ${inMoney(sum(rehearsal))}`;
}

const inMoney = (amount: number): string =>
  amount >= 100 ? count(Math.round(amount)) : amount.toFixed(amount >= 1 ? 2 : 4);

/** A policy with failed turns sent less without saving anything, so it has no comparable price. */
function perToken(rehearsal: Rehearsal, none: Rehearsal | undefined): string {
  if (rehearsal.failures.length > 0) return 'turns failed';
  const cost = rehearsal.costPerToken.toFixed(2);
  if (none === undefined || none === rehearsal || none.costPerToken === 0) return cost;
  const change = Math.round((rehearsal.costPerToken / none.costPerToken - 1) * 100);
  return `${cost} (${change < 0 ? '−' : '+'}${Math.abs(change)} %)`;
}

function failureLines({ name, rehearsal }: PlanRow): string[] {
  const lines = rehearsal.failures.flatMap(({ type, message, hint, turn, turns }) => [
    `  ${name}: ${type} at turn ${turn}${turns > 1 ? ` and ${plural(turns - 1, 'more turn')}` : ''}: ${message}`,
    ...(hint === undefined ? [] : [`    ${hint}`]),
  ]);
  const { largest, limits } = rehearsal;
  const holds = limits.window - limits.reservedOutput;
  if (largest <= holds) return lines;
  const first = rehearsal.turns.find(({ tokens }) => (tokens ?? 0) > holds)?.turn ?? 0;
  return [
    ...lines,
    `  ${name}: the ${count(holds)} tokens of the window without the answer are exceeded from turn ${first} on`,
  ];
}

/** Prints one row per policy over many sessions. */
export function totalTable(sessions: readonly (readonly PlanRow[])[]): string {
  const names = sessions[0]?.map(({ name }) => name) ?? [];
  const table = new Table({
    head: ['policy', 'compactions', 'in sessions', 'evicted', 'in / out', 'per token', 'do not fit'],
    colAligns: ['left', 'right', 'right', 'right', 'right', 'right', 'right'],
    style: { head: [], border: [], compact: true },
  });
  for (const name of names) {
    const all = sessions.flatMap((rows) =>
      rows.filter((row) => row.name === name).map(({ rehearsal }) => rehearsal),
    );
    const total = (of: (one: Rehearsal) => number) => all.reduce((so, one) => so + of(one), 0);
    const priced = all.filter(({ failures }) => failures.length === 0);
    const raw = priced.reduce((so, { rawTokens }) => so + rawTokens, 0);
    const cost = priced.reduce((so, { costPerToken, rawTokens }) => so + costPerToken * rawTokens, 0);
    table.push([
      name,
      count(total(({ compactions }) => compactions.length)),
      count(all.filter(({ compactions }) => compactions.length > 0).length),
      count(total(({ evictedTokens }) => evictedTokens)),
      `${count(total(({ summarizer }) => summarizer.input))} / ${count(total(({ summarizer }) => summarizer.output))}`,
      raw === 0 ? 'turns failed' : (cost / raw).toFixed(2),
      count(all.filter(({ fits }) => !fits).length),
    ]);
  }
  return table.toString();
}

const firstWords = 100;

/** Describes each compaction of one policy with the first words of the messages around its cut. */
export function cutLines(messages: readonly ChatMessage[], { name, rehearsal }: PlanRow): string[] {
  if (rehearsal.compactions.length === 0) return [`${name}: no compaction`];
  return rehearsal.compactions.flatMap((one) => {
    const sizes = `${count(one.tokensBefore)} → ${count(one.tokensAfter)} tokens`;
    const about = `${name}, compaction ${one.generation} after turn ${one.turn} (${one.reason}): ${sizes}`;
    if (one.boundary === null) return [`${about}, shortened only`];
    const evicted = `${plural(one.evictedMessages, 'message')} of ${count(one.evictedTokens)} tokens`;
    return [
      `${about}, evicts ${evicted}`,
      ` after it: ${breakdownText(one.breakdown)}; ${percent(one.cachedTokens, one.tokensAfter)} as in the request before`,
      ...around(messages, one.throughSeq).map(
        ({ seq, text }) => `  ${seq <= one.throughSeq ? '✂' : '│'} ${String(seq).padStart(5)}  ${text}`,
      ),
    ];
  });
}

/** Returns the last two messages before a cut and the first two after it. */
function around(messages: readonly ChatMessage[], throughSeq: number): { seq: number; text: string }[] {
  return [throughSeq - 1, throughSeq, throughSeq + 1, throughSeq + 2].flatMap((seq) => {
    const message = messages[seq - 1];
    return message === undefined ? [] : [{ seq, text: openingOf(message) }];
  });
}

function openingOf(message: ChatMessage): string {
  const { content } = renderParts({ seq: 0, message, tokens: 0 });
  const words = content.slice(0, 1_000).replaceAll(/\s+/g, ' ').trim();
  return `${message.role}: ${shortenEnd(words, firstWords)}`;
}

/** Returns the output of `--json` for a session. */
export function planJson(session: string, messages: number, rows: readonly PlanRow[]): string {
  const policies = rows.map(({ name, rehearsal }) => {
    const { policy, limits, threshold, compactions, failures, largest, evictedTokens, summarizer, agent } =
      rehearsal;
    const { summarizerCost, agentCost, costPerToken, tail, context, journal } = rehearsal;
    return {
      ...{ policy: name, window: limits.window, budget: limits.budget, overhead: limits.overhead, threshold },
      ...{ compactions, largest, evictedTokens, summarizer, agent, currency: policy.prices.currency },
      ...{ summarizerCost, agentCost, costPerToken, tail, context, journal, failures },
    };
  });
  const first = rows[0]?.rehearsal;
  return JSON.stringify({
    session,
    messages,
    turns: first?.turns.length ?? 0,
    tokens: first?.rawTokens ?? 0,
    policies,
  });
}
