import { existsSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import Table from 'cli-table3';
import type { CompactionOutcome } from '../../contract/compactions.js';
import type { Config } from '../../config/config.js';
import { invalid } from '../../errors.js';
import { programName } from '../../runtime/program.js';
import type { Stack } from '../servers/stack.js';
import { count, plural, seconds } from '../terminal/numbers.js';
import type { PlayedSession, PlayedTurn } from './player.js';

/** The Temporal UI; `url` is null if none is known. */
interface TemporalUi {
  url: string | null;
  namespace: string;
}

/** The page of a run in the Temporal UI, or its ids. */
function runLink({ url, namespace }: TemporalUi, { workflowId, runId }: CompactionOutcome): string {
  if (url === null) return `${workflowId} ${runId}`;
  return `${url}/namespaces/${encodeURIComponent(namespace)}/workflows/${encodeURIComponent(workflowId)}/${runId}/history`;
}

const barWidth = 16;

/** `turn 12/41   48 messages   9,512 / 24,000 ███████·········   compacting → generation 2` */
export function turnLine(played: PlayedTurn): string {
  const { turn, turns, messages, window, budget, tokens, shortened, compacting } = played;
  const width = String(turns).length;
  const size =
    tokens === null
      ? `cannot fit into ${count(budget)} tokens`
      : `${count(tokens).padStart(count(window).length)} / ${count(window)} ${bar(tokens / window)}`;
  return [
    `turn ${String(turn).padStart(width)}/${turns}`,
    `${count(messages).padStart(4)} messages`,
    `context ${size}`,
    ...(shortened > 0 ? [`${plural(shortened, 'message')} shortened`] : []),
    ...(compacting === null ? [] : [`compacting → generation ${compacting}`]),
  ].join('   ');
}

function bar(share: number): string {
  const filled = Math.max(0, Math.min(barWidth, Math.round(share * barWidth)));
  return '█'.repeat(filled) + '·'.repeat(barWidth - filled);
}

/** `compacted 18,912 → 7,345 tokens   generation 2, 41 messages archived` */
export function compactedLine({
  generation,
  tokensBefore,
  tokensAfter,
  evicted,
  archivePart,
}: CompactionOutcome): string {
  const what =
    archivePart === null
      ? 'reductions only'
      : `${plural(evicted, 'message')} into archive part ${archivePart}`;
  return `compacted ${count(tokensBefore)} → ${count(tokensAfter)} tokens   generation ${generation}, ${what}`;
}

const legend =
  'evicted: messages · calls, tokens in / out: of the model · model, beyond: time waiting for the model, other time · part: of the archive';

/** One row for each compaction, then a link to each run. If the table does not fit into `columns`, one paragraph each. */
export function compactionTable(
  compactions: readonly CompactionOutcome[],
  ui: TemporalUi,
  columns = Infinity,
): string {
  if (compactions.length === 0) return 'No compaction was committed.';
  const table = tableOf(compactions);
  if (table.indexOf('\n') > columns) return compactions.map((c) => paragraph(c, ui)).join('\n');
  const links = compactions.map((c) => `  ${c.generation}  ${runLink(ui, c)}`);
  const where = ui.url === null ? 'Runs (workflow and run id):' : 'Runs in the Temporal UI:';
  return [table, legend, where, ...links].join('\n');
}

function tableOf(compactions: readonly CompactionOutcome[]): string {
  const columns: [head: string, align: 'left' | 'right', cell: (c: CompactionOutcome) => string][] = [
    ['', 'right', (c) => String(c.generation)],
    ['reason', 'left', (c) => c.reason],
    ['method', 'left', (c) => c.method],
    ['tokens', 'right', (c) => `${count(c.tokensBefore)} → ${count(c.tokensAfter)}`],
    ['evicted', 'right', (c) => count(c.evicted)],
    ['chunks', 'right', (c) => count(c.chunks) + (c.chunksByRule > 0 ? ` (${c.chunksByRule} by rule)` : '')],
    ['calls', 'right', (c) => count(c.modelCalls)],
    ['tokens in / out', 'right', (c) => `${count(c.modelInputTokens)} / ${count(c.modelOutputTokens)}`],
    ['model', 'right', (c) => seconds(c.modelMs)],
    ['beyond', 'right', (c) => seconds(c.overheadMs)],
    ['part', 'right', (c) => (c.archivePart === null ? '–' : String(c.archivePart))],
  ];
  const table = new Table({
    head: columns.map(([head]) => head),
    colAligns: columns.map(([, align]) => align),
    style: { head: [], border: [], compact: true },
  });
  for (const compaction of compactions) table.push(columns.map(([, , cell]) => cell(compaction)));
  return table.toString();
}

function paragraph(c: CompactionOutcome, ui: TemporalUi): string {
  const part = c.archivePart === null ? 'no archive part' : `archive part ${c.archivePart}`;
  const tokens = `${count(c.tokensBefore)} → ${count(c.tokensAfter)} tokens`;
  const model = `${plural(c.modelCalls, 'model call')} (${count(c.modelInputTokens)} in, ${count(c.modelOutputTokens)} out)`;
  return [
    `generation ${c.generation} (${c.reason}, ${c.method}): ${tokens}`,
    `  ${plural(c.evicted, 'message')} evicted, ${part}, ${plural(c.chunks, 'chunk')}, ${model}`,
    `  ${seconds(c.modelMs)} waiting for the model, ${seconds(c.overheadMs)} for everything else`,
    `  ${runLink(ui, c)}`,
  ].join('\n');
}

/** `replay: 147 messages, identical` */
export const replayLine = ({ replay }: PlayedSession): string =>
  `replay: ${plural(replay.messages, 'message')}, identical`;

/** The single line that is printed for a session among many. */
export function sessionLine(played: PlayedSession): string {
  const { session, messages, tokens, budget, compactions, warnings } = played;
  const first = compactions[0];
  return [
    session,
    plural(messages, 'message'),
    `context ${count(tokens)} of ${count(budget)}`,
    plural(compactions.length, 'compaction') +
      (first ? ` (${[...new Set(compactions.map(({ method }) => method))].join(', ')})` : ''),
    ...(warnings.length > 0 ? [plural(warnings.length, 'warning')] : []),
    replayLine(played),
  ].join('   ');
}

/** Whether the newest summary was written by rule, in an earlier run. */
export function keepsExtractive({ storedTurns, compactions }: PlayedSession): boolean {
  const summaries = compactions.filter(({ method }) => method !== 'none');
  return storedTurns > 0 && summaries.at(-1)?.method === 'extractive';
}

const tenantOption = (tenant: string | undefined): string =>
  tenant === undefined ? '' : ` --tenant ${tenant}`;

/** How a model gets to write the summaries of sessions that were played without one. */
export function rewriteLines(
  sessions: readonly string[],
  { staysUp, tenant }: { staysUp: boolean; tenant?: string | undefined },
  env: NodeJS.ProcessEnv = process.env,
): string[] {
  const [first, ...others] = sessions;
  if (first === undefined) return [];
  const which = others.length === 0 ? 'The session keeps' : `${plural(sessions.length, 'session')} keep`;
  const command = `${programName(env)} resummarize ${others.length === 0 ? first : 'SESSION'}${tenantOption(tenant)}`;
  return [
    `${which} the summaries of an earlier start, written by rule. To see the model's:`,
    `  ${command}${staysUp ? '' : '   (beside a start without --once and --json)'}`,
    '  or start with PALIMPSEST_DATA=FOLDER, which plays everything again in another folder.',
  ];
}

/** Warnings by message index; the first `most` in full. */
export function warningLines({ warnings }: PlayedSession, most = 10): string[] {
  const lines = warnings
    .slice(0, most)
    .map(({ index, type, message }) => `  messages[${index}]: ${type}: ${message}`);
  if (warnings.length > most) lines.push(`  and ${count(warnings.length - most)} more`);
  return lines;
}

/** The `--json` output for a session. */
export function sessionJson(played: PlayedSession, ui: TemporalUi): string {
  const { session, messages, window, budget, tokens, replay, context, warnings } = played;
  const compactions = played.compactions.map((outcome) => {
    const { generation, reason, method, tokensBefore, tokensAfter, evicted, chunks, chunksByRule } = outcome;
    const { modelCalls, modelInputTokens, modelOutputTokens, modelMs, overheadMs, archivePart } = outcome;
    const { savedPerTurn, cost, currency, paysBackAfter } = outcome;
    return {
      ...{ generation, reason, method, tokensBefore, tokensAfter, evicted, chunks, chunksByRule, modelCalls },
      ...{ modelInputTokens, modelOutputTokens, modelMs, overheadMs, archivePart },
      ...{ savedPerTurn, cost, currency, paysBackAfter, run: runLink(ui, outcome) },
    };
  });
  return JSON.stringify({
    ...{ session, messages, window, budget, tokens, compactions, replay, context },
    ...(warnings.length > 0 ? { warnings } : {}),
  });
}

/** The last lines of `dev`: addresses of the servers, and how to connect from code. */
export function nextSteps(
  { uiUrl, apiUrl }: Pick<Stack, 'uiUrl' | 'apiUrl'>,
  { session = 'SESSION', tenant }: { session?: string | undefined; tenant?: string | undefined },
  { databaseUrl, temporal, dataDir, api }: Pick<Config, 'databaseUrl' | 'temporal' | 'dataDir' | 'api'>,
  env: NodeJS.ProcessEnv = process.env,
): string[] {
  const program = programName(env);
  const path = `/v1/sessions/${encodeURIComponent(session)}/context`;
  const named = databaseUrl !== undefined && temporal.address !== undefined;
  const elsewhere = named ? 'the same DATABASE_URL and TEMPORAL_ADDRESS' : `PALIMPSEST_DATA=${dataDir}`;
  const asksToken = api.tokens.length > 0 || tenant !== undefined;
  const over = `{ url: '${apiUrl}'${asksToken ? ', token' : ''} }`;
  const header = asksToken ? ' -H "authorization: Bearer $PALIMPSEST_TOKEN"' : '';
  return [
    'The servers stay up until Ctrl-C. From your code:',
    "  import { Palimpsest } from 'palimpsest';",
    `  const palimpsest = await Palimpsest.connect(${tenant === undefined ? '' : `{ tenant: '${tenant}' }`});`,
    `  In this folder it needs no ${tenant === undefined ? '' : 'other '}options; elsewhere set ${elsewhere}.`,
    ...(apiUrl === null
      ? []
      : [
          `  Over HTTP: await HttpPalimpsest.connect(${over}) of 'palimpsest/http';`,
          `  with PALIMPSEST_URL=${apiUrl} it needs no url.`,
        ]),
    'Look around:',
    ...(uiUrl === null ? [] : [`  ${uiUrl}`]),
    ...(apiUrl === null ? [] : [`  curl ${apiUrl}${path}${header}`]),
    `  ${program} status ${session}${tenantOption(tenant)}`,
    `  ${program} --help`,
  ];
}

/** The final context of one session, and the cost of its summaries. */
export interface WrittenContext {
  session: string;
  context: PlayedSession['context'];
  calls: number;
  inputTokens: number;
  outputTokens: number;
  contextTokens: number;
}

/** The output of `dev --out`: the final context of each session. */
export function contextToWrite(
  session: string,
  { context, tokens, compactions }: PlayedSession,
): WrittenContext {
  const sum = (of: (outcome: PlayedSession['compactions'][number]) => number) =>
    compactions.reduce((total, outcome) => total + of(outcome), 0);
  return {
    session,
    context,
    calls: sum(({ modelCalls }) => modelCalls),
    inputTokens: sum(({ modelInputTokens }) => modelInputTokens),
    outputTokens: sum(({ modelOutputTokens }) => modelOutputTokens),
    contextTokens: tokens,
  };
}

/** Throws `Input.Invalid` if the folder of the file is missing. The path may itself be a folder. */
export function checkOut(out: string): void {
  const folder = isFolder(out) ? out : path.dirname(path.resolve(out));
  if (!isFolder(folder)) throw invalid(`--out: there is no folder ${folder}`, '--out');
}

/**
 * Writes one file for each session into a folder. Into a file, writes the messages of one session, or an array of
 * `{session, messages}` for several.
 */
export function writeContexts(out: string, contexts: readonly WrittenContext[]): void {
  const [only, ...others] = contexts;
  if (only === undefined) return;
  if (isFolder(out)) {
    for (const one of contexts) writeJson(path.join(out, `${nameFor(one.session)}.json`), one);
    return;
  }
  const several = contexts.map(({ session, context }) => ({ session, messages: context }));
  writeJson(out, others.length === 0 ? only.context : several);
}

function nameFor(session: string): string {
  return session.replace(/[^\p{L}\p{N}._~-]+/gu, '_').slice(0, 120);
}

function writeJson(file: string, value: unknown): void {
  writeFileSync(file, `${JSON.stringify(value, null, 1)}\n`);
}

function isFolder(name: string): boolean {
  return existsSync(name) && statSync(name).isDirectory();
}
