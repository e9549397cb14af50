import type { Pool } from 'pg';
import { PalimpsestError } from '../src/errors.js';
import { upToDate } from '../src/store/sessions/configure.js';
import {
  insertPage,
  readPending,
  type PendingItem,
  type SelectedItem,
} from '../src/store/backfills/items.js';
import { type FullRequest, loadBackfillRow } from '../src/store/backfills/jobs.js';
import { readSelection, readSessions, type SelectedSession } from '../src/store/backfills/estimate.js';
import type { BackfillIds } from '../src/contract/ids.js';
import type { SessionRow } from '../src/store/sessions/session-row.js';
import { type Dependencies, runStep } from './run.js';
import { judge } from './measure.js';

export interface SelectInput extends BackfillIds {
  /** The last session that was started; null if there is none or if all waiting sessions should be considered again. */
  after: string | null;
  /** Sessions per page. */
  pageSize: number;
}

export interface Selected {
  /** Sessions to compact, ordered by id; may be empty although more follow. */
  sessions: PendingItem[];
  more: boolean;
}

/** One step skips pages without work for at most this long. */
const patienceMs = 20_000;

/**
 * Returns the next waiting sessions. If none waits, judges the next page of the selection by the sizes in its rows and stores
 * the result together with the cursor. A session that is not due is recorded as `unchanged` at once, without a workflow.
 */
export function selectSessions(dependencies: Dependencies) {
  const { pool } = dependencies;
  return ({ after, pageSize, ...ids }: SelectInput): Promise<Selected> =>
    runStep('select sessions', async () => {
      const until = Date.now() + patienceMs;
      for (;;) {
        const sessions = await readPending(pool, ids, after, pageSize);
        if (sessions.length === pageSize) return { sessions, more: true };
        const { request, cursor, selecting } = await loadBackfillRow(pool, ids);
        if (sessions.length > 0 || !selecting) return { sessions, more: selecting };
        const page = await readSelection(pool, ids.tenant, request.select, cursor, pageSize);
        const judged = await judgePage(dependencies, ids.tenant, request, page);
        await insertPage(pool, ids, cursor, judged, page.length < pageSize);
        if (Date.now() > until) return { sessions: [], more: true };
      }
    });
}

type Verdict = Pick<SelectedItem, 'state' | 'error'>;
const unchanged: Verdict = { state: 'unchanged', error: null };
const pending: Verdict = { state: 'pending', error: null };

async function judgePage(
  dependencies: Dependencies,
  tenant: string,
  request: FullRequest,
  page: readonly SelectedSession[],
): Promise<SelectedItem[]> {
  const possible = page.filter(({ candidate, empty }) => (request.mode === 'all' ? !empty : candidate));
  const rows = await readSessions(
    dependencies.pool,
    tenant,
    possible.map(({ session }) => session),
  );
  const verdicts = new Map<string, Verdict>();
  for (const row of rows) verdicts.set(row.session, await verdictOf(dependencies, request, row));
  return page.map(({ session, incarnation, tokens }) => ({
    ...{ session, incarnation, tokens },
    ...(verdicts.get(session) ?? unchanged),
  }));
}

async function verdictOf(
  { pool, model }: Dependencies,
  { mode, spendLimit }: Pick<FullRequest, 'mode' | 'spendLimit'>,
  row: SessionRow,
): Promise<Verdict> {
  try {
    const { policy, triggered, worthwhile } = await judge(pool, await upToDate(pool, row));
    if (!policy.enabled || (mode === 'due' && !(triggered && worthwhile))) return unchanged;
    if (row.pausedAt !== null) return refused('the session is paused: resume it, then retry the job');
    const asksModel = model.available && policy.summary.method === 'model';
    if (spendLimit !== undefined && asksModel && policy.prices.currency === null)
      return refused('a spend limit needs prices in the policy: the cost of the summary is not known');
    return pending;
  } catch (error) {
    if (!(error instanceof PalimpsestError) || error.type === 'Store.Unavailable') throw error;
    const { type, message } = error;
    return { state: 'failed', error: { type, message } };
  }
}

function refused(message: string): Verdict {
  return { state: 'failed', error: { type: 'Input.Invalid', message } };
}

/**
 * Returns which of these sessions should be compacted (again), with their current generation. Sessions that were erased and
 * created again are left out.
 */
export async function stillDue(
  pool: Pool,
  tenant: string,
  asked: readonly { session: string; incarnation?: string; force: boolean }[],
): Promise<Map<string, { generation: number; incarnation: string }>> {
  const due = new Map<string, { generation: number; incarnation: string }>();
  if (asked.length === 0) return due;
  const forced = new Set(asked.filter(({ force }) => force).map(({ session }) => session));
  const meant = new Map(asked.map(({ session, incarnation }) => [session, incarnation]));
  const rows = await readSessions(pool, tenant, [...meant.keys()]);
  for (const row of rows) {
    const { generation, incarnation, formerIncarnations } = row;
    if (![incarnation, ...formerIncarnations].includes(meant.get(row.session) ?? incarnation)) continue;
    const quiet =
      (row.measureAtTokens === null || row.liveTokens < row.measureAtTokens) &&
      (row.measureAtMessages === null || row.liveMessages < row.measureAtMessages);
    if (row.pausedAt !== null) continue;
    if (forced.has(row.session)) {
      if (row.throughSeq < row.nextSeq - 1) due.set(row.session, { generation, incarnation });
    } else if (!quiet) {
      const { triggered, worthwhile } = await judge(pool, await upToDate(pool, row));
      if (triggered && worthwhile) due.set(row.session, { generation, incarnation });
    }
  }
  return due;
}
