/** Plays whole sessions with the product's planning, consolidation and acceptance. */
import { cutTurns } from '../../src/conversation/groups.js';
import type { Summarizer } from '../../src/compaction/in-memory/asker.js';
import type { ChatMessage } from '../../src/conversation/message.js';
import type { TokenCounter } from '../../src/tokens/counter.js';
import { countMessage } from '../../src/tokens/message.js';
import { pooled } from './intervals.js';
import { indexed, type Indexed, type Score } from './needs.js';
import type { Conversation } from '../../src/compaction/in-memory/conversation.js';
import { limitsOf } from '../../src/limits/limits.js';
import { resolvePolicy } from '../../src/policy/layers.js';
import { play, type Look, type Mode, type Played, type Setting } from './pipeline.js';
import type { Recorded } from './sessions.js';
import { lossyOracle } from './summarizers.js';
import { percent, sum, table } from './table.js';

/** From the largest on: the first window at which a session is compacted often enough is taken. */
const windows = [128_000, 64_000, 32_000, 16_000, 8_000, 4_000];

/** A session much smaller than its window is never compacted. */
const FILLS = 0.7;
export const KEEPS = 0.9;
/** Compactions after which contexts are looked at. */
export const passes = [1, 2, 4, 8, 16] as const;
const EXACT_TOKENS = 1_000;

interface Way {
  mode: Mode;
  by: 'lossy oracle' | 'extractive';
  summarizer: Summarizer | null;
}

interface Found extends Look {
  session: string;
  window: number;
}

export interface Compacted {
  markdown: string;
  pinsLost: number;
  unresolvable: number;
  costAt128k: number | null;
}

export async function compactedSessions(
  sessions: readonly Recorded[],
  counter: TokenCounter,
  { passes, modes }: { passes: readonly number[]; modes: readonly Mode[] },
): Promise<Compacted> {
  const oracle = lossyOracle(KEEPS, counter);
  const ways: Way[] = [
    ...modes.map((mode): Way => ({ mode, by: 'lossy oracle', summarizer: oracle })),
    { mode: 'incremental', by: 'extractive', summarizer: null },
  ];
  const indexes = new Map(sessions.map((session) => [session.id, indexed(session.messages)]));
  const rows: string[][] = [];
  const plays: (Played & { window: number; way: Way })[] = [];
  const looks: Found[] = [];
  for (const way of ways) {
    const found: Found[] = [];
    for (const session of sessions) {
      const index = indexes.get(session.id)!;
      for (const { window, played } of await atFallingWindows(session, index, way, passes, counter)) {
        plays.push({ ...played, window, way });
        const taken = new Set(found.filter((one) => one.session === session.id).map((one) => one.passes));
        found.push(
          ...played.looks.flatMap((look) =>
            taken.has(look.passes) ? [] : [{ ...look, session: session.id, window }],
          ),
        );
      }
    }
    looks.push(...found);
    for (const count of passes)
      rows.push(
        rowOf(
          way,
          count,
          found.filter((look) => look.passes === count),
        ),
      );
  }
  const long = await longSession(sessions, oracle, counter);
  const pinsLost = sum(plays.map((played) => played.pinsLost)) + long.pinsLost;
  const unresolvable = sum(looks.map(({ resolvable }) => resolvable.needed - resolvable.found));
  const costAt128k = long.evictedTokens === 0 ? null : long.summarizerTokens / long.evictedTokens;
  return {
    pinsLost,
    unresolvable,
    costAt128k,
    markdown: [
      `### Later-needed identifiers in the context (\`incremental\` and \`full_rewrite\`: snapshot ≤ 1,000, exact values ≤ ${EXACT_TOKENS.toLocaleString('en-US')} tokens)`,
      '',
      table(
        [
          'summarizer',
          'mode',
          'compactions',
          'sessions',
          'window, median',
          'head, mean tokens',
          'needed',
          'in the context',
          'tail only, same tokens',
          'not in the tail',
          'code symbols',
          'invented',
        ],
        rows,
      ),
      '',
      '### Cost and stability',
      '',
      table(
        [
          'window',
          'mode',
          'compactions',
          'summarizer tokens per evicted token',
          'repairs',
          'prefix kept between commits',
          'steps with all of it',
          'prefix kept across',
        ],
        costRows([
          ...plays,
          {
            ...long,
            window: 128_000,
            way: { mode: 'incremental', by: 'lossy oracle', summarizer: oracle },
            joined: true,
          },
        ]),
      ),
      '',
      `Rules pinned word for word: missing in ${pinsLost} of ${sum(plays.map(({ generations }) => generations)) + long.generations} contexts after a compaction. ` +
        `Needed identifiers that the archive did not give back: ${unresolvable} of ${sum(looks.map(({ resolvable }) => resolvable.needed))}.`,
    ].join('\n'),
  };
}

/**
 * `journal` of this version beside `incremental` of another, at equal context tokens: that one keeps as much of the tail
 * as its target leaves beside its largest head.
 */
export async function besideVersion(
  sessions: readonly Recorded[],
  counter: TokenCounter,
  passes: readonly number[],
  engine: typeof Conversation,
): Promise<string> {
  const oracle = lossyOracle(KEEPS, counter);
  const ways: { name: string; way: Way; more?: (window: number) => Partial<Setting> }[] = [
    { name: 'journal', way: { mode: 'journal', by: 'lossy oracle', summarizer: oracle } },
    {
      name: 'incremental before',
      way: { mode: 'incremental', by: 'lossy oracle', summarizer: oracle },
      more: (window) => ({ engine, tail: fullTail(window) }),
    },
  ];
  const found = new Map<string, Found[]>();
  for (const { name, way, more } of ways) {
    const looks: Found[] = [];
    for (const session of sessions) {
      const index = indexed(session.messages);
      for (const { window, played } of await atFallingWindows(session, index, way, passes, counter, more))
        looks.push(...played.looks.map((look) => ({ ...look, session: session.id, window })));
    }
    found.set(name, looks);
  }
  const rows = [...passes.map(String), 'all'].flatMap((count) =>
    ways.map(({ name }) => {
      const others = ways.filter((other) => other.name !== name).flatMap((other) => found.get(other.name)!);
      const both = (look: Found) =>
        (count === 'all' || String(look.passes) === count) &&
        others.some(
          (other) =>
            other.session === look.session && other.window === look.window && other.passes === look.passes,
        );
      const looks = found.get(name)!.filter(both);
      const score = (what: keyof Omit<Score, 'byClass'>) =>
        percent(pooled(looks.map((look) => look.score[what])));
      const values = sum(looks.map(({ exact }) => exact.values));
      const used = sum(looks.map(({ exact }) => exact.used));
      return [
        `${name}, ${count}`,
        String(looks.length),
        String(Math.round(sum(looks.map(({ contextTokens }) => contextTokens)) / Math.max(1, looks.length))),
        String(sum(looks.map((look) => look.score.identifiers.needed))),
        score('identifiers'),
        score('beyondTail'),
        values === 0 ? '–' : `${((100 * used) / values).toFixed(1)} % of ${values}`,
      ];
    }),
  );
  return table(
    [
      'compactions',
      'looks',
      'context, mean tokens',
      'needed',
      'in the context',
      'not in the tail',
      'exact values used later',
    ],
    rows,
  );
}

function fullTail(window: number): NonNullable<Setting['tail']> {
  const target = 0.72;
  const policy = resolvePolicy({
    ...{ contextWindow: window, target },
    summary: { mode: 'incremental', maxTokens: 1_000, ledgerTokens: EXACT_TOKENS },
  });
  return { target, tokens: limitsOf(policy).tailTarget };
}

async function atFallingWindows(
  session: Recorded,
  index: Indexed,
  { mode, summarizer }: Way,
  passes: readonly number[],
  counter: TokenCounter,
  more: (window: number) => Partial<Setting> = () => ({}),
): Promise<{ window: number; played: Played }[]> {
  const plays: { window: number; played: Played }[] = [];
  for (const window of windows.filter((size) => session.total >= FILLS * size)) {
    const setting = {
      ...{ window, mode, summarizer, exactTokens: EXACT_TOKENS, lookAfter: passes },
      ...more(window),
    };
    const played = await play(session, index, setting, counter);
    plays.push({ window, played });
    if (played.generations >= Math.max(...passes)) break;
  }
  return plays;
}

function rowOf({ mode, by }: Way, count: number, looks: readonly Found[]): string[] {
  const share = (of: (look: Found) => Score, what: keyof Omit<Score, 'byClass'>) =>
    percent(pooled(looks.map((look) => of(look)[what])));
  const mean = (values: readonly number[]) => Math.round(sum(values) / Math.max(1, values.length));
  const sizes = looks.map(({ window }) => window).sort((a, b) => a - b);
  const written = sum(looks.map((look) => look.written.identifiers));
  const invented = sum(looks.map((look) => look.written.invented));
  const shown = (value: number) => value.toLocaleString('en-US');
  return [
    by,
    mode,
    String(count),
    String(looks.length),
    shown(sizes[Math.floor(sizes.length / 2)] ?? 0),
    shown(mean(looks.map(({ headTokens }) => headTokens))),
    String(sum(looks.map(({ score }) => score.identifiers.needed))),
    share(({ score }) => score, 'identifiers'),
    share(({ tailOnly }) => tailOnly, 'identifiers'),
    share(({ score }) => score, 'beyondTail'),
    share(({ score }) => score, 'symbols'),
    `${invented} of ${shown(written)}`,
  ];
}

function costRows(plays: readonly (Played & { window: number; way: Way; joined?: boolean })[]): string[][] {
  const byModel = plays.filter(({ way }) => way.summarizer !== null);
  const rows: string[][] = [];
  for (const window of [...new Set(byModel.map((played) => played.window))].sort((a, b) => b - a)) {
    for (const mode of [...new Set(byModel.map(({ way }) => way.mode))]) {
      for (const joined of [true, false]) {
        const these = byModel.filter(
          (played) =>
            played.window === window && played.way.mode === mode && (played.joined ?? false) === joined,
        );
        const evicted = sum(these.map(({ evictedTokens }) => evictedTokens));
        if (evicted === 0) continue;
        const between = these.flatMap(({ stable }) => stable.between);
        const across = these.flatMap(({ stable }) => stable.across);
        const share = (values: readonly number[]) =>
          values.length === 0 ? '–' : `${((100 * sum(values)) / values.length).toFixed(1)} %`;
        rows.push([
          `${window.toLocaleString('en-US')}${joined ? ', 1,000 turns joined' : ''}`,
          mode,
          String(sum(these.map(({ generations }) => generations))),
          (sum(these.map(({ summarizerTokens }) => summarizerTokens)) / evicted).toFixed(3),
          String(sum(these.map(({ repairs }) => repairs))),
          share(between),
          share(between.map((value) => (value >= 1 ? 1 : 0))),
          share(across),
        ]);
      }
    }
  }
  return rows;
}

/** A thousand turns: sessions one after the other, without their system messages, at the window of 128,000. */
async function longSession(
  sessions: readonly Recorded[],
  summarizer: Summarizer,
  counter: TokenCounter,
): Promise<Played> {
  const messages: ChatMessage[] = [];
  let turns = 0;
  for (const session of [...sessions].sort((a, b) => b.total - a.total)) {
    const said = session.messages.filter(({ role }) => role !== 'system' && role !== 'developer');
    for (const { from, to } of cutTurns(said)) {
      if (turns++ >= 1_000) break;
      messages.push(...said.slice(from, to));
    }
  }
  const tokens = messages.map((message) => countMessage(message, counter));
  const joined: Recorded = {
    id: 'joined',
    family: 'joined',
    half: 'tuning',
    messages,
    tokens,
    total: sum(tokens),
  };
  const setting = {
    window: 128_000,
    mode: 'incremental',
    summarizer,
    exactTokens: EXACT_TOKENS,
    lookAfter: [1_000],
  } as const;
  return play(joined, indexed(messages), setting, counter);
}
