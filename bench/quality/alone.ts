import type { TokenCounter } from '../../src/tokens/counter.js';
import { last4000, ledgerOf, longerTail, masking } from './baselines.js';
import type { IdentifierClass } from './grammar.js';
import { pooled, type SessionCount, type Share } from './intervals.js';
import { holds, indexed, neededAfter, scoreOf, type Score } from './needs.js';
import { isLongCoding, type Recorded } from './sessions.js';
import { splitsOf } from './splits.js';
import { percent, table } from './table.js';

/** The ledger by itself against simpler ways, over fixed splits of every session: part one of the quality bench. */
export const passes = [1, 2, 4, 8, 16] as const;
export const LEDGER_TOKENS = 1_000;

/** One variant's score at one split. */
interface Scored {
  session: Recorded;
  variant: string;
  score: Score;
}

const ledgerName = (count: number) => `ledger, ${count} pass${count === 1 ? '' : 'es'}`;

export interface Alone {
  markdown: string;
  /** Pooled over all sessions, and over long coding sessions, after one pass. */
  pooled: Share | null;
  longCoding: Share | null;
}

export function ledgerAlone(sessions: readonly Recorded[], counter: TokenCounter): Alone {
  const scored = sessions.flatMap((session) => scoreSession(session, counter));
  const of = (variant: string, keep: (session: Recorded) => boolean, what: keyof Omit<Score, 'byClass'>) =>
    pooled(
      perSession(
        scored.filter((one) => one.variant === variant && keep(one.session)),
        what,
      ),
    );
  const variants = [...new Set(scored.map(({ variant }) => variant))];
  const all = () => true;
  const half = (name: Recorded['half']) => (session: Recorded) => session.half === name;
  const one = ledgerName(1);
  const families = [...new Set(sessions.map(({ family }) => family))].sort();
  return {
    pooled: of(one, all, 'identifiers'),
    longCoding: of(one, isLongCoding, 'identifiers'),
    markdown: [
      '### Later-needed identifiers in the context, ledger alone',
      '',
      table(
        [
          'beside the same tail',
          'all sessions',
          'long coding',
          'tuning half',
          'held-out half',
          'not in the tail',
          'code symbols',
        ],
        variants.map((variant) => [
          variant,
          percent(of(variant, all, 'identifiers')),
          percent(of(variant, isLongCoding, 'identifiers')),
          percent(of(variant, half('tuning'), 'identifiers')),
          percent(of(variant, half('held out'), 'identifiers')),
          percent(of(variant, all, 'beyondTail')),
          percent(of(variant, all, 'symbols')),
        ]),
      ),
      '',
      '### By family',
      '',
      table(
        [
          'family',
          'sessions',
          'needed',
          one,
          ledgerName(16),
          'not in the tail, one pass',
          '1,000 tokens more tail',
          'last 4,000 tokens',
        ],
        families.flatMap((family) => {
          const within = (session: Recorded) => session.family === family;
          const share = of(one, within, 'identifiers');
          if (!share) return [];
          return [
            [
              family,
              String(share.sessions),
              String(share.needed),
              percent(share),
              percent(of(ledgerName(16), within, 'identifiers')),
              percent(of(one, within, 'beyondTail')),
              percent(of('1,000 tokens more tail', within, 'identifiers')),
              percent(of('last 4,000 evicted tokens', within, 'identifiers')),
            ],
          ];
        }),
      ),
      '',
      '### By class, one pass',
      '',
      byClass(scored.filter(({ variant }) => variant === one)),
    ].join('\n'),
  };
}

function scoreSession(session: Recorded, counter: TokenCounter): Scored[] {
  const index = indexed(session.messages);
  return splitsOf(session).flatMap((split) => {
    const needed = neededAfter(index, split.evictedTo, split.now);
    if (needed.size === 0) return [];
    const tail = [
      ...index.texts.slice(0, index.leading),
      ...index.texts.slice(split.evictedTo, split.now),
    ].join('\n');
    const archive = index.texts.slice(0, split.evictedTo).join('\n');
    const lost = [...needed.keys()].filter((name) => !holds(archive, name));
    if (lost.length > 0) throw new Error(`${session.id}: ${lost.join(', ')} cannot be found in the archive`);
    const texts: [string, string][] = [
      ['nothing', ''],
      ['1,000 tokens more tail', longerTail(session, index, split, LEDGER_TOKENS)],
      ['1,000 tokens, tool results masked', masking(session, index, split, LEDGER_TOKENS)],
      ['last 4,000 evicted tokens', last4000(session, index, split, LEDGER_TOKENS)],
      ...passes.map((count): [string, string] => [
        ledgerName(count),
        ledgerOf(session, index, split, { tokens: LEDGER_TOKENS, passes: count, counter }),
      ]),
    ];
    return texts.map(([variant, text]) => ({
      session,
      variant,
      score: scoreOf(needed, `${tail}\n${text}`, tail),
    }));
  });
}

function perSession(scored: readonly Scored[], what: keyof Omit<Score, 'byClass'>): SessionCount[] {
  const counts = new Map<string, SessionCount>();
  for (const { session, score } of scored) {
    const count = counts.get(session.id) ?? { kept: 0, needed: 0 };
    counts.set(session.id, {
      kept: count.kept + score[what].kept,
      needed: count.needed + score[what].needed,
    });
  }
  return [...counts.values()];
}

function byClass(scored: readonly Scored[]): string {
  const kinds = Object.keys(scored[0]?.score.byClass ?? {}) as IdentifierClass[];
  const rows = kinds.map((kind) => {
    const needed = scored.reduce((sum, { score }) => sum + score.byClass[kind].needed, 0);
    const kept = scored.reduce((sum, { score }) => sum + score.byClass[kind].kept, 0);
    return [kind, String(needed), needed === 0 ? '–' : `${((100 * kept) / needed).toFixed(1)} %`];
  });
  return table(['class', 'needed', 'in the context'], rows);
}
