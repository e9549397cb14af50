import {
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  setCurrentDetails,
  setHandler,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { OpenedBackfill } from '../activities/backfill.js';
import type { EndedCompaction, Start } from '../activities/recordOutcomes.js';
import type { BegunItem } from '../src/store/backfills/items.js';
import type { Backfill, BackfillState } from '../src/contract/backfills.js';
import type { BackfillStart } from '../src/contract/workflows.js';
import { searchAttributes } from '../src/temporal/names.js';
import { Control, type Cut } from './backfill-control.js';
import { backfillPage, doneOf } from './backfill-page.js';
import { Window, type Flight } from './backfill-window.js';
import { progressQuery } from './messages.js';
import { databaseActivities } from './options.js';
import { startTimer, type Timer } from './timer.js';

interface BackfillInput extends BackfillStart {
  /** Set by continue-as-new. */
  carried?: Carried;
}

/** What one run hands to the next: small, since cursor and outcomes are in Postgres. */
interface Carried {
  mode: 'due' | 'all';
  concurrency: number;
  spendLimit: number | null;
  /** Money so far, of compactions not yet written down too. */
  spent: number;
  paused: boolean;
  cut: Cut | null;
  /** The last session begun. */
  begunThrough: string | null;
  flights: Flight[];
  /** Sessions that need another compaction. */
  again: Start[];
  report: Backfill | null;
  /** Unix milliseconds of the report. */
  reportedAt: number;
}

/** What the workflow answers; the same is in Postgres. */
type BackfillResult = Omit<Backfill, 'request'>;

/** Outcomes are written down when so many have come together, or after so long. */
const batch = 16;
const batchMs = 1_000;

/** How often the page is made anew at most: each time the sums over all sessions are read. */
const pageEveryMs = 5_000;

/** Compacts many sessions of one tenant: page after page of them, at most `concurrency` at once. */
export function backfill(input: BackfillInput): Promise<BackfillResult> {
  const cancelled = CancellationScope.current().cancelRequested;
  // Cancelled in the Temporal UI it ends as by the update: in order, and with a report.
  return CancellationScope.nonCancellable(() => run(input, cancelled));
}

async function run(input: BackfillInput, cancelled: Promise<never>): Promise<BackfillResult> {
  const { tenant, job, pageSize = 500, maxHistoryEvents = Infinity } = input;
  const ids = { tenant, job };
  const { openBackfill, selectSessions, recordOutcomes, saveBackfill, retryBackfill, finishBackfill } =
    databaseActivities();
  const control = new Control();
  let { mode, spendLimit, spent }: Pick<Carried, 'mode' | 'spendLimit' | 'spent'> = {
    ...{ mode: 'due', spendLimit: null, spent: 0 },
    ...input.carried,
  };
  let {
    begunThrough = null,
    again = [],
    report = null,
    reportedAt = 0,
  }: Partial<Carried> = input.carried ?? {};
  /** Selected, in order, and not begun. */
  let ready: Start[] = [];
  let pages = 0;
  /** Sessions may be left beyond `ready`. */
  let more = true;
  let begun: BegunItem[] = [];
  let outcomes: EndedCompaction[] = [];
  let flush: Timer | null = null;
  /** Set while the page shows less than is written down: a job may wait a day for its last session. */
  let renew: Timer | null = null;
  let handingOver = false;
  let perSecond: number | null = null;
  let shown: BackfillState | null = null;

  const window = new Window(ids, onEnd, input.carried?.flights ?? []);
  setHandler(progressQuery, () => ({
    ...{ state: stateNow(), concurrency: control.concurrency, spent },
    ...{ running: window.flights.size, ready: ready.length + again.length },
  }));
  cancelled.catch(() => control.cutShort('cancelled', 'cancelled in Temporal'));
  if (input.carried) {
    control.takeUp(input.carried);
    renew = startTimer(pageEveryMs, 'until the page is renewed');
  } else await open();
  show();

  while (true) {
    fill();
    await condition(
      () =>
        control.retries.length > 0 ||
        control.unsaved ||
        mustRecord() ||
        mustHandOver() ||
        wantsPage() ||
        isDone(),
    );
    if (control.retries.length > 0) await retry();
    else if (control.unsaved) await save();
    else if (mustRecord()) await record();
    else if (mustHandOver()) await handOver();
    else if (wantsPage()) await nextPage();
    else {
      if (!control.ended) await finish();
      if (!(await isQuiet()) || !control.ended) continue;
      const { request: _request, ...result } = report!;
      return result;
    }
  }

  function onEnd(one: EndedCompaction): void {
    outcomes.push(one);
    flush ??= startTimer(batchMs, 'until outcomes are written down');
    spent += costOf(one);
    checkLimit();
    fill();
  }

  function checkLimit(): void {
    if (spendLimit !== null && spent >= spendLimit) control.cutShort('stopped', 'spend limit');
  }

  /** Those that need another compaction go first: they are too large still. */
  function fill(): void {
    while (!control.held && !handingOver && window.flights.size < control.concurrency) {
      const next = again.shift() ?? ready.shift();
      if (next === undefined) return;
      if (next.rounds === 0) {
        begun.push({ session: next.session, incarnation: next.incarnation, at: Date.now() });
        flush ??= startTimer(batchMs, 'until outcomes are written down');
        begunThrough = next.session;
      }
      window.begin(next);
    }
  }

  function mustRecord(): boolean {
    const nothingElse = window.flights.size === 0 && outcomes.length + begun.length > 0;
    const isTime = flush?.fired === true || renew?.fired === true;
    return nothingElse || isTime || outcomes.length >= Math.min(batch, control.concurrency);
  }

  function wantsPage(): boolean {
    return !control.held && !handingOver && ready.length === 0 && more;
  }

  /** At the end of each page, and where the history has grown long. */
  function mustHandOver(): boolean {
    const { continueAsNewSuggested, historyLength } = workflowInfo();
    const long = continueAsNewSuggested || historyLength > maxHistoryEvents;
    return handingOver || (wantsPage() && pages > 0) || (long && !isDone());
  }

  function isDone(): boolean {
    const nothingMore = control.cut !== null || (!more && ready.length + again.length === 0);
    return control.ended || (nothingMore && window.flights.size === 0 && outcomes.length === 0);
  }

  async function open(): Promise<void> {
    const opened = await openBackfill(ids);
    takeOver(opened);
    const { state, reason, concurrency } = opened;
    const cut = state === 'cancelled' || state === 'stopped' ? { state, reason: reason ?? '' } : null;
    control.takeUp({ paused: state === 'paused', concurrency, cut });
    if (opened.ended) await finish();
  }

  function takeOver(opened: OpenedBackfill): void {
    ({ mode, spendLimit, spent } = opened);
  }

  async function save(): Promise<void> {
    await control.save(() => {
      const { state, concurrency, cut } = control;
      return saveBackfill({ ...ids, state, concurrency, reason: cut?.reason ?? null });
    });
    show();
  }

  async function retry(): Promise<void> {
    // What has begun must not wait again.
    await record();
    for (const { request, settle } of control.retries.splice(0)) {
      try {
        takeOver(await retryBackfill({ ...ids, spendLimit: request.spendLimit ?? undefined }));
        control.wake();
        ready = [];
        [begunThrough, more] = [null, true];
        settle();
      } catch (error) {
        settle(error);
      }
    }
    show();
  }

  async function nextPage(): Promise<void> {
    const selected = await selectSessions({ ...ids, after: begunThrough, pageSize });
    if (selected.sessions.length > 0) pages++;
    more = selected.more;
    const start = { force: mode === 'all', rounds: 0 };
    ready = selected.sessions.map(({ session, generation, incarnation }) => ({
      ...{ session, generation: generation ?? 0, incarnation: incarnation ?? undefined, ...start },
    }));
  }

  async function record(): Promise<void> {
    const wanted = Date.now() - reportedAt >= pageEveryMs;
    const request = { ...ids, begun, ended: outcomes, report: wanted, limited: spendLimit !== null };
    begun = [];
    outcomes = [];
    if (flush?.fired) flush = null;
    if (renew?.fired) renew = null;
    const recorded = await recordOutcomes(request);
    again.push(...recorded.again);
    // What failed attempts have paid for is known there only; what ended meanwhile is not in it yet.
    if (recorded.spent !== null) spent = outcomes.reduce((sum, one) => sum + costOf(one), recorded.spent);
    checkLimit();
    if (recorded.report) show(recorded.report);
    else renew ??= startTimer(pageEveryMs, 'until the page is renewed');
  }

  async function finish(): Promise<void> {
    again = [];
    ready = [];
    const finished = await finishBackfill(ids);
    control.ended = true;
    show(finished);
  }

  /** Waits until every message is answered; false where one wants something done first. */
  async function isQuiet(): Promise<boolean> {
    const asked = () => control.retries.length > 0 || control.unsaved;
    await condition(() => allHandlersFinished() || asked());
    return !asked();
  }

  async function handOver(): Promise<void> {
    handingOver = true;
    await condition(() => window.starting === 0);
    if (outcomes.length + begun.length > 0) return record();
    if (!(await isQuiet()) || outcomes.length > 0) return;
    const { concurrency, paused, cut } = control;
    const carried: Carried = {
      ...{ mode, concurrency, spendLimit, spent, paused, cut, begunThrough, again, report, reportedAt },
      flights: [...window.flights.values()],
    };
    await continueAsNew<typeof backfill>({ ...input, v: 1, carried });
  }

  function stateNow(): BackfillState {
    return control.ended ? (report?.state ?? 'completed') : control.state;
  }

  function show(fresh?: Backfill): void {
    if (fresh) {
      const seconds = (Date.now() - reportedAt) / 1_000;
      if (report && reportedAt > 0) perSecond = Math.max(0, doneOf(fresh) - doneOf(report)) / seconds;
      reportedAt = Date.now();
      report = fresh;
    }
    const state = stateNow();
    if (state !== shown) upsertSearchAttributes([{ key: searchAttributes.phase, value: state }]);
    shown = state;
    if (!report) return;
    const { concurrency, cut } = control;
    const now = control.ended
      ? report
      : { ...report, state, concurrency, spendLimit, reason: cut?.reason ?? null };
    setCurrentDetails(backfillPage(now, control.ended ? null : perSecond));
  }
}

function costOf({ end }: EndedCompaction): number {
  return end.kind === 'committed' ? (end.step.cost ?? 0) : 0;
}
