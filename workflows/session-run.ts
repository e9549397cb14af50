import {
  condition,
  getExternalWorkflowHandle,
  isCancellation,
  log,
  setCurrentDetails,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import type { MeasureInput, Measurement } from '../activities/measure.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { Phase, SessionStatus, TurnSignal } from '../src/contract/workflows.js';
import { failureOf } from '../src/temporal/failures.js';
import { aheadWorkflowId, searchAttributes } from '../src/temporal/names.js';
import { isInline, isTurn } from './messages.js';
import { databaseActivities } from './options.js';
import { hasFewerSteps } from './compaction-run.js';
import { Callers } from './session-callers.js';
import { sessionPage } from './session-page.js';
import { freshState, type Carried, type SessionInput } from './session-state.js';
import { SessionWaits } from './session-waits.js';
import { startTimer } from './timer.js';
import { TurnInbox } from './turn-inbox.js';

/**
 * Well below the server's suggestion (4,096). A worker replays the whole history (about 0.6 ms per event) for a session that it
 * does not keep in memory, and if a signal arrives during the task that hands over.
 */
const handOverAfterEvents = 250;
/** Of runs that earlier versions began. */
const handOverLaterAfterEvents = 1_000;

/** The result of an activity in a run that began under an earlier version, which lacks later fields. */
type Earlier<Answer> = Omit<Answer, 'coldAfterMs' | 'paused' | 'incarnation' | 'eager'> & Partial<Answer>;

/** One run of the workflow `session`: the carried state, and everything that ends with the run. */
export class SessionRun {
  readonly ids: SessionIds;
  readonly state: Carried;
  readonly inbox: TurnInbox;
  readonly callers = new Callers();
  readonly waits: SessionWaits;
  phase: Phase = 'idle';
  /** The compaction in flight. */
  running: SessionStatus['compaction'] = null;
  /** The session was erased and created again: this run's history belongs to the erased session. */
  private begunAnew = false;
  private pausing: Promise<void> = Promise.resolve();
  readonly fewerSteps = hasFewerSteps();
  private readonly maxHistoryEvents: number;

  constructor({ tenant, session, carried, idleAfterMs, maxHistoryEvents }: SessionInput) {
    this.ids = { tenant, session };
    this.state = carried ?? freshState();
    this.waits = new SessionWaits(idleAfterMs);
    this.maxHistoryEvents =
      maxHistoryEvents ?? (this.fewerSteps ? handOverAfterEvents : handOverLaterAfterEvents);
    this.inbox = new TurnInbox(
      this.ids,
      this.state,
      () => (this.phase = 'appending'),
      (incarnation) => this.meet(incarnation),
    );
  }

  /** Ids of the session with the incarnation that was learnt last; without one if none is known yet. */
  get metIds(): SessionIds {
    return { ...this.ids, incarnation: this.state.incarnation };
  }

  get hasWork(): boolean {
    return this.state.inbox.length > 0 || this.callers.count > 0 || this.state.mustMeasure;
  }

  get mustHandOver(): boolean {
    const { continueAsNewSuggested, historyLength } = workflowInfo();
    return this.begunAnew || continueAsNewSuggested || historyLength > this.maxHistoryEvents;
  }

  /** Whether nothing would be lost by handing over: waiting callers and inline turns cannot be carried to the next run. */
  get mayHandOver(): boolean {
    return this.callers.count === 0 && !this.inbox.hasInline();
  }

  /**
   * Accepts any signal from any client, because a handler that throws would block the session for good. A signal without a turn
   * requests a measurement.
   */
  receive(turn: TurnSignal | null | undefined): void {
    this.waits.heard();
    if (isTurn(turn)) this.inbox.receive(turn);
    else this.state.mustMeasure = true;
  }

  configure(): void {
    this.waits.heard();
    this.waits.endRetry();
    this.state.mustMeasure = true;
  }

  /** Requests run one after the other, so that the last request takes effect. */
  pause(paused: boolean): Promise<void> {
    const { setPaused } = databaseActivities();
    const done = this.pausing.then(() => setPaused({ ...this.metIds, paused })).then(() => this.configure());
    this.pausing = done.catch((error: unknown) => {
      // The measurement finds out which session has the id now.
      if (failureOf(error)?.type === 'Store.StaleGeneration') this.state.mustMeasure = true;
    });
    return done;
  }

  /** Measures; if a compaction is due, measures again after the debounce. Callers and `close` end the debounce early. */
  async measure(): Promise<Earlier<Measurement>> {
    const { measure } = databaseActivities();
    this.phase = 'measuring';
    let measured: Earlier<Measurement> = await measure(this.measuring(false));
    if (measured.due && measured.debounceMs > 0 && this.callers.count === 0) {
      this.phase = 'debouncing';
      const debounce = startTimer(measured.debounceMs, 'debounce');
      await this.inbox.appendingMeanwhile(
        condition(() => debounce.fired || this.callers.count > 0 || this.state.closing),
      );
      this.phase = 'measuring';
      measured = await measure(this.measuring(true));
    }
    this.take(measured);
    return measured;
  }

  private measuring(debounced: boolean): MeasureInput {
    if (!this.fewerSteps) return this.ids;
    const { ahead = null } = this.state;
    return { ...this.ids, plans: { asked: this.callers.asked, debounced, ahead } };
  }

  private take(measured: Earlier<Measurement>): void {
    const { due, generation, tokens, idleAfterMs, notBefore } = measured;
    const { incarnation, coldAfterMs = null, paused = false } = measured;
    this.meet(incarnation);
    this.state.generation = generation;
    this.state.tokens = tokens;
    this.waits.idleAfterMs = idleAfterMs;
    this.waits.retryAt(notBefore);
    if (paused !== (this.state.paused === true)) {
      this.state.paused = paused;
      upsertSearchAttributes([{ key: searchAttributes.phase, value: paused ? 'paused' : 'idle' }]);
      if (paused) this.stopWritingAhead();
    }
    this.waits.coldAfter(due ? null : coldAfterMs);
    if (!this.fewerSteps) upsertSearchAttributes([{ key: searchAttributes.tokensBefore, value: tokens }]);
    this.showPage();
  }

  /** Cancels the work in progress; it starts again after the pause. */
  private stopWritingAhead(): void {
    const { ahead } = this.state;
    if (ahead === undefined || ahead.generation === null) return;
    const child = getExternalWorkflowHandle(aheadWorkflowId(this.ids, ahead.generation));
    child.cancel().catch((error: unknown) => log.info('nothing to give up', { error: String(error) }));
    ahead.generation = null;
  }

  /** Forgets an erased session of the same id; the next run starts without its history. */
  private meet(incarnation: string | undefined): void {
    const { state } = this;
    if (incarnation === undefined || incarnation === state.incarnation) return;
    if (state.incarnation !== undefined) {
      this.begunAnew = true;
      const { inbox: _inbox, mustMeasure: _mustMeasure, ...fresh } = freshState();
      Object.assign(state, fresh);
      upsertSearchAttributes([
        { key: searchAttributes.generation, value: null },
        { key: searchAttributes.lastErrorType, value: null },
      ]);
    }
    state.incarnation = incarnation;
  }

  noteFailure(error: unknown): void {
    const unknown = { type: isCancellation(error) ? 'Cancelled' : 'Unknown', message: String(error) };
    const { type, message } = failureOf(error) ?? unknown;
    log.warn('session step failed', { type });
    this.state.lastError = { type, message, at: Date.now() };
    upsertSearchAttributes([{ key: searchAttributes.lastErrorType, value: type }]);
    this.showPage();
  }

  showPage(): void {
    const { generation, tokens, lastError, recent, paused } = this.state;
    setCurrentDetails(
      sessionPage({
        ...{ running: this.running, generation, tokens, lastError, recent },
        paused: paused === true,
      }),
    );
  }

  status(): SessionStatus {
    const { phase, state, callers, running } = this;
    const { generation, tokens, compactions, lastError, rejectedTurns } = state;
    return {
      phase,
      inbox: state.inbox.length + callers.count + Number(state.mustMeasure),
      unstored: state.inbox.filter(isInline).length + callers.count,
      compaction: running,
      ...{ generation, tokens, compactions, lastError, rejectedTurns, paused: state.paused === true },
    };
  }
}
