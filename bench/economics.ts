/**
 * Computes the cost of sessions with the economic trigger, with fractions of the window, and with the best trigger of a series.
 * Costs come from each request's context, whose common prefix with the request before is read from the cache and whose rest is
 * written to it, and from the summarizer's chunks and limits. It needs no model and no servers.
 */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import {
  type Rehearsal,
  rehearse,
  type RehearsedRequest,
  rememberingCounters,
} from '../src/rehearsal/rehearse.js';
import { readTranscripts } from '../src/cli/play/transcripts.js';
import type { ChatMessage } from '../src/conversation/message.js';
import { isFailure } from '../src/errors.js';
import type { PolicyInput } from '../src/policy/schema.js';
import type { TokenCounter, TokenizerName } from '../src/tokens/counter.js';
import { agentTurns } from './conversation.js';
import { figure, median, type BenchResult } from './figures.js';

/** System prompt and tool definitions of a coding agent. */
const overhead = 10_000;
const window = 200_000;
const base: PolicyInput = { contextWindow: window, overhead };

/** Growth between two compactions, by that of the economic trigger. */
const sweep = [0.35, 0.5, 0.7, 0.85, 1, 1.2, 1.45, 1.8, 2.5, 4];

/** Recorded sessions shorter than this hardly compact at all. Tokens by their own index of four characters. */
const smallestRecorded = 250_000;
const bar = 1.05;

interface Session {
  name: string;
  messages: ChatMessage[];
}

interface Row {
  session: Session;
  economic: Rehearsal;
  half: Rehearsal;
  high: Rehearsal;
  best: Rehearsal;
  bestTrigger: number;
  /** Cost per token by factor of the sweep. */
  swept: Map<number, number>;
}

type Counters = (name: TokenizerName) => TokenCounter;

export async function economics(): Promise<BenchResult> {
  const rows: Row[] = [];
  const stability = new Stability();
  for (const make of [...synthetic(), ...(await recorded())]) {
    const session = make();
    const counters = rememberingCounters();
    rows.push(await measure(session, counters));
    await stability.add(session, counters);
    console.error(`  ${describe(rows.at(-1)!)}`);
  }
  const made = rows.filter(({ session }) => session.name.startsWith('t ='));
  const real = rows.filter((row) => !made.includes(row));
  const against = (of: (row: Row) => Rehearsal, among: Row[]) =>
    among.map((row) => of(row).costPerToken / row.best.costPerToken);
  const figures = [
    figure(
      'economics',
      'economic trigger against the best of a sweep, synthetic',
      '×',
      against(({ economic }) => economic, made),
      bar,
    ),
    figure(
      'economics',
      'fraction 0.5 against it, synthetic',
      '×',
      against(({ half }) => half, made),
    ),
    figure(
      'economics',
      'fraction 0.85 against it, synthetic',
      '×',
      against(({ high }) => high, made),
    ),
  ];
  if (real.length > 0) {
    figures.push(
      figure(
        'economics',
        'economic trigger against the best of a sweep, recorded',
        '×',
        against(({ economic }) => economic, real),
        bar,
      ),
      figure(
        'economics',
        'fraction 0.5 against it, recorded',
        '×',
        against(({ half }) => half, real),
      ),
      figure(
        'economics',
        'fraction 0.85 against it, recorded',
        '×',
        against(({ high }) => high, real),
      ),
    );
  }
  return {
    figures,
    notes: [
      `Window ${words(window)}, overhead ${words(overhead)}; cache reads 0.1, writes 1.25, summarizer 1 and 5, in uncached input tokens per token of the log.`,
      `Best: the cheapest of ten triggers in hindsight, session by session, luck of the last compaction included.`,
      ...pooled('synthetic', made),
      ...pooled('recorded', real),
      ...rows.map(describe),
      ...stability.lines(),
      ...(real.length === 0 ? ['PALIMPSEST_TRANSCRIPTS is not set: no recorded sessions.'] : []),
    ],
  };
}

/** Sessions of `reads` requests, `t` tokens appended before each; made when they are needed, so that few are in memory. */
function synthetic(): (() => Session)[] {
  return [500, 1_500, 5_000].flatMap((t) =>
    [200, 1_000].map((reads) => () => ({
      name: `t = ${words(t)}, N = ${words(reads)}`,
      // A turn of six messages is read three times.
      messages: agentTurns(Math.round(reads / 3), t / 2).flat(),
    })),
  );
}

async function recorded(): Promise<(() => Session)[]> {
  const folder = process.env.PALIMPSEST_TRANSCRIPTS;
  if (folder === undefined) return [];
  const names = ['claude-code.jsonl.gz', 'codex.jsonl', 'concat-desk.jsonl'];
  const files = readdirSync(path.join(folder, 'sessions')).filter((file) => names.includes(file));
  const reads = await Promise.all(files.map((file) => readTranscripts(path.join(folder, 'sessions', file))));
  return reads
    .flat()
    .flatMap((read) => ('error' in read ? [] : [{ name: read.id, messages: read.messages }]))
    .filter(({ messages }) => JSON.stringify(messages).length >= smallestRecorded)
    .map((session) => () => session);
}

async function measure(session: Session, counters: Counters): Promise<Row> {
  const play = (policy: PolicyInput) => rehearse(session.messages, { ...base, ...policy }, { counters });
  const economic = await play({ trigger: { economic: true } });
  const half = await play({ trigger: { fraction: 0.5 } });
  const high = await play({ trigger: { fraction: 0.85 } });
  let [best, bestTrigger] = [economic, economic.threshold ?? 0];
  const swept = new Map<number, number>();
  const after = overhead + (economic.limits.contextTarget ?? 0);
  for (const factor of sweep) {
    const tokens = Math.round(after + factor * Math.max(1_000, (economic.threshold ?? 0) - after));
    try {
      const tried = await play({ trigger: { tokens } });
      swept.set(factor, tried.costPerToken);
      if (tried.costPerToken < best.costPerToken) [best, bestTrigger] = [tried, tokens];
    } catch (error) {
      // The context exceeds the window.
      if (!isFailure(error, 'Input.Invalid')) throw error;
    }
  }
  return { session, economic, half, high, best, bestTrigger, swept };
}

/** All sessions together against the one factor of the sweep that is cheapest for all of them. */
function pooled(which: string, rows: readonly Row[]): string[] {
  const cost = (of: (row: Row) => number) =>
    rows.reduce((sum, row) => sum + of(row) * row.economic.rawTokens, 0);
  const factors = sweep.filter((factor) => rows.every(({ swept }) => swept.has(factor)));
  const totals = factors.map((factor) => ({ factor, total: cost(({ swept }) => swept.get(factor) ?? 0) }));
  const [cheapest] = totals.sort((one, other) => one.total - other.total);
  if (cheapest === undefined) return [];
  const ratio = cost(({ economic }) => economic.costPerToken) / cheapest.total;
  return [
    `All ${which} sessions together: economic is ${ratio.toFixed(3)} of the best growth for all, ${cheapest.factor} of its own.`,
  ];
}

function describe({ session, economic, half, high, best, bestTrigger }: Row): string {
  const shown = (name: string, { costPerToken, compactions }: Rehearsal, trigger: number | null) =>
    `${name} ${costPerToken.toFixed(2)} (at ${words(trigger ?? 0)}, ${compactions.length}×)`;
  return [
    `${session.name}: ${shown('economic', economic, economic.threshold)}`,
    shown('0.5', half, half.threshold),
    shown('0.85', high, high.threshold),
    shown('best', best, bestTrigger),
    `economic / best ${(economic.costPerToken / best.costPerToken).toFixed(3)}`,
  ].join(' · ');
}

const modes = ['journal', 'incremental', 'full_rewrite'] as const;

/** How much of a context the next one begins with: by characters, as a cache sees it. */
class Stability {
  private readonly within: number[] = [];
  private readonly broken: string[] = [];
  private readonly across = new Map<string, number[]>();

  async add({ name, messages }: Session, counters: Counters): Promise<void> {
    for (const mode of modes) {
      let before: { generation: number; texts: string[] } | null = null;
      const request = ({ generation, items, turn }: RehearsedRequest) => {
        const texts = items.map(({ message }) => JSON.stringify(message));
        if (before && before.generation === generation) {
          const share = sharedCharacters(before.texts.slice(0, -1), texts);
          this.within.push(share);
          if (share < 1) this.broken.push(`${name}, ${mode}, turn ${turn}`);
        } else if (before) {
          this.across.set(mode, [...(this.across.get(mode) ?? []), sharedCharacters(before.texts, texts)]);
        }
        before = { generation, texts };
      };
      const policy: PolicyInput = { ...base, trigger: { economic: true }, summary: { mode } };
      await rehearse(messages, policy, { counters, request });
    }
  }

  lines(): string[] {
    const whole = this.within.filter((share) => share === 1).length;
    const acrossed = [...this.across].map(
      ([mode, shares]) => `${mode} ${percent(median(shares))} (${shares.length} commits)`,
    );
    return [
      `Prefix between commits: ${words(whole)} of ${words(this.within.length)} requests begin with all of the one before but its newest message${this.broken.length > 0 ? `; not ${this.broken.slice(0, 5).join(', ')}` : ''}.`,
      `Prefix across a commit, median share of the context before: ${acrossed.join(', ')}.`,
    ];
  }
}

/** Share of `before` that `after` begins with. */
function sharedCharacters(before: readonly string[], after: readonly string[]): number {
  let shared = 0;
  let all = 0;
  let same = true;
  for (const [index, text] of before.entries()) {
    all += text.length;
    if (!same) continue;
    const other = after[index] ?? '';
    if (other === text) {
      shared += text.length;
      continue;
    }
    same = false;
    let at = 0;
    while (at < text.length && text[at] === other[at]) at++;
    shared += at;
  }
  return all === 0 ? 1 : shared / all;
}

const words = (value: number): string => Math.round(value).toLocaleString('en-US');
const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
