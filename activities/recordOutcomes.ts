import type { Pool } from 'pg';
import { policyOf } from '../src/policy/layers.js';
import { recordItems, spentBy, type BegunItem, type ItemResult } from '../src/store/backfills/items.js';
import type { Backfill } from '../src/contract/backfills.js';
import { readSessions } from '../src/store/backfills/estimate.js';
import { loadBackfill } from '../src/store/backfills/jobs.js';
import type { BackfillIds } from '../src/contract/ids.js';
import { paidTowards } from '../src/store/compactions/digests.js';
import type { End } from '../src/temporal/failures.js';
import { type Dependencies, runStep } from './run.js';
import { stillDue } from './selectSessions.js';

export interface EndedCompaction {
  session: string;
  /** Unix milliseconds. */
  at: number;
  end: End;
  /** The session's generation before the compaction. */
  generation: number;
  /** Incarnation of the session that was started. Absent in records of earlier versions. */
  incarnation?: string;
  /** True if the compaction was requested regardless of size: the session is considered again even if its own trigger is not met. */
  force: boolean;
  /** Compactions of this session by this job so far. */
  rounds: number;
}

/** A session to compact. */
export interface Start {
  session: string;
  /** The session's current generation; the compaction makes the next one. */
  generation: number;
  incarnation?: string;
  /** Compact regardless of size. */
  force: boolean;
  /** Earlier compactions of this session by this job. */
  rounds: number;
}

export interface RecordInput extends BackfillIds {
  begun: BegunItem[];
  ended: EndedCompaction[];
  /** Return the report as well. */
  report: boolean;
  /** Return the amount spent as well, because the job has a limit. */
  limited: boolean;
}

export interface Recorded {
  /** Sessions to compact once more. */
  again: Start[];
  report: Backfill | null;
  spent: number | null;
}

/**
 * Records which sessions have started and how their compactions ended, and returns the sessions that need another one. It
 * handles many at once, so that a small session costs little more than its own compaction.
 */
export function recordOutcomes({ pool }: Dependencies) {
  return ({ begun, ended, report, limited, ...ids }: RecordInput): Promise<Recorded> =>
    runStep('record outcomes', async () => {
      const open = ended.filter(({ end, rounds }) => rounds < mostRounds && leavesMore(end));
      // After a commit only the session's own trigger decides, whatever started the compaction.
      const asked = open.map((one) => ({ ...one, force: one.force && one.end.kind === 'elsewhere' }));
      const due = await stillDue(pool, ids.tenant, asked);
      const paid = await paidInVain(
        pool,
        ids.tenant,
        ended.filter(({ end }) => end.kind === 'failed'),
      );
      const results = ended.map((one) => ({
        ...resultOf(one, due.has(one.session)),
        unsettled: paid.get(one.session) ?? null,
      }));
      await recordItems(pool, ids, begun, results);
      return {
        again: asked.flatMap(({ session, force, rounds }) => {
          const found = due.get(session);
          return found === undefined ? [] : [{ session, ...found, force, rounds }];
        }),
        report: report ? await loadBackfill(pool, ids) : null,
        spent: limited ? await spentBy(pool, ids) : null,
      };
    });
}

/** The job compacts a session at most this often: a session that needs more is very large, or other callers also compact it. */
const mostRounds = 50;

function leavesMore({ kind }: End): boolean {
  return kind === 'committed' || kind === 'elsewhere';
}

function resultOf(
  { session, incarnation, at, end }: EndedCompaction,
  again: boolean,
): Omit<ItemResult, 'unsettled'> {
  const step = end.kind === 'committed' ? end.step : null;
  const error = end.kind === 'failed' ? { type: end.type, message: end.message } : null;
  const state = again ? 'running' : step ? 'compacted' : error ? 'failed' : 'unchanged';
  return { session, incarnation, at, state, step, error };
}

/** Returns the money spent on model answers that reached the database although their compaction failed. */
async function paidInVain(
  pool: Pool,
  tenant: string,
  failed: readonly EndedCompaction[],
): Promise<Map<string, { generation: number; cost: number }>> {
  const paid = new Map<string, { generation: number; cost: number }>();
  if (failed.length === 0) return paid;
  const sessions = failed.map(({ session }) => session);
  const towards = await paidTowards(pool, tenant, sessions);
  const rows = new Map((await readSessions(pool, tenant, sessions)).map((row) => [row.session, row]));
  for (const { session, generation } of failed) {
    const found = towards.find((one) => one.session === session && one.generation === generation + 1);
    const row = rows.get(session);
    const prices = row && policyOf(row.policy).prices;
    if (!found || !prices || prices.currency === null) continue;
    const { inputTokens, outputTokens } = found;
    const cost = (prices.summarizerInput * inputTokens + prices.summarizerOutput * outputTokens) / 1_000_000;
    paid.set(session, { generation: generation + 1, cost });
  }
  return paid;
}
