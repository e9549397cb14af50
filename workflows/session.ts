import {
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  isCancellation,
  log,
  setCurrentDetails,
  setHandler,
  sleep,
  upsertSearchAttributes,
  workflowInfo,
} from '@temporalio/workflow';
import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import type { Measurement } from '../activities/measure.js';
import { failureOf } from '../src/temporal/failures.js';
import { compactionWorkflowId, livePriority, searchAttributes } from '../src/temporal/names.js';
import type { SessionIds } from '../src/contract/ids.js';
import type { CompactionReason } from '../src/compaction/plan/plan-types.js';
import { executeCompaction } from './compaction-child.js';
import {
  checkCompactRequest,
  closeSignal,
  closeUpdate,
  compactUpdate,
  configureSignal,
  configureUpdate,
  isTurn,
  pauseSignal,
  pauseUpdate,
  refusal,
  resumeSignal,
  resumeUpdate,
  retrySignal,
  statusQuery,
  turnSignal,
} from './messages.js';
import type {
  CompactAnswer,
  CompactRequest,
  Phase,
  SessionStatus,
  TurnSignal,
} from '../src/contract/workflows.js';
import { databaseActivities } from './options.js';
import { sessionPage } from './session-page.js';
import { freshState, type Carried, type SessionInput } from './session-state.js';
import { startTimer, type Timer } from './timer.js';
import { isOutage, TurnInbox } from './turn-inbox.js';

/**
 * Well below what the server suggests (4,096): a signal that arrives in the very task that hands over fails it and makes
 * the worker replay the whole history (about 0.6 ms an event), while more signals arrive.
 */
const handOverAfterEvents = 1_000;
const shownCompactions = 20;

/** The first wait for a compaction of another parent, doubled up to the second; also the shortest before a retry. */
const lookAgainMs = 2_000;
const longestLookMs = 60_000;

/** Someone waiting for the outcome of a compaction. */
interface Caller {
  settle: (answer: CompactAnswer, error?: unknown) => void;
  resummarize: boolean;
}

/** One agent session: takes note of turns, measures when something may be due, and runs one compaction at a time. */
export async function session(input: SessionInput): Promise<void> {
  const ids: SessionIds = { tenant: input.tenant, session: input.session };
  const { measure, indexTexts, setPaused } = databaseActivities();
  const state: Carried = input.carried ?? freshState();
  let phase: Phase = 'idle';
  const inbox = new TurnInbox(ids, state, () => (phase = 'appending'), meet);
  /** The session was erased and begun anew: the history of this run is of the erased one. */
  let begunAnew = false;
  let running: SessionStatus['compaction'] = null;
  let idleAfterMs = input.idleAfterMs;
  /** Set after a failure, until the next attempt may be made. */
  let retry = null as Timer | null;
  /** Set while the context is large enough to be compacted once the provider's cache is cold. */
  let cold = null as { timer: Timer; afterMs: number } | null;
  let nextLookMs = lookAgainMs;
  let lastMessageAt = Date.now();
  /** Callers of `compact` that the next compaction answers. */
  const requests: Caller[] = [];
  /** Callers that the running compaction answers. */
  let joined: Caller[] = [];
  let pausing: Promise<void> = Promise.resolve();
  /** The running compaction evicts nothing, but writes anew what the fallback wrote. */
  let resummarizing = false;

  setHandler(turnSignal, (turn: TurnSignal | null | undefined) => {
    lastMessageAt = Date.now();
    // Anyone may signal anything, and a handler that throws holds the session up for good: no turn at all means measure.
    if (isTurn(turn)) inbox.receive(turn);
    else state.mustMeasure = true;
  });
  setHandler(configureSignal, configure);
  setHandler(configureUpdate, configure);
  setHandler(closeSignal, close);
  setHandler(closeUpdate, close);
  // A signal that fails would fail the workflow; who sent it sees the failure on the page.
  setHandler(pauseSignal, () => pause(true).catch(noteFailure));
  setHandler(resumeSignal, () => pause(false).catch(noteFailure));
  setHandler(pauseUpdate, () => pause(true), { validator: notClosing });
  setHandler(resumeUpdate, () => pause(false), { validator: notClosing });
  setHandler(retrySignal, () => {
    lastMessageAt = Date.now();
    requests.push({ settle: () => undefined, resummarize: false });
  });
  setHandler(
    compactUpdate,
    async (request: CompactRequest | null | undefined) => {
      lastMessageAt = Date.now();
      return new Promise<CompactAnswer>((resolve, reject) => {
        const settle = (answer: CompactAnswer, error?: unknown) =>
          error === undefined ? resolve(answer) : reject(error);
        const resummarize = request?.resummarize === true;
        // A compaction that is running answers those who ask meanwhile for what it does.
        (running && resummarize === resummarizing ? joined : requests).push({ settle, resummarize });
      });
    },
    { validator: checkCompactRequest },
  );
  setHandler(statusQuery, () => ({
    ...{
      phase,
      inbox: state.inbox.length + requests.length + Number(state.mustMeasure),
      compaction: running,
    },
    ...{ generation: state.generation, tokens: state.tokens, compactions: state.compactions },
    ...{ lastError: state.lastError, rejectedTurns: state.rejectedTurns, paused: state.paused === true },
  }));

  showPage();
  let idleTimer = startTimer(idleAfterMs, 'idle');
  while (true) {
    await condition(
      () =>
        hasWork() ||
        state.closing ||
        retry?.fired === true ||
        cold?.timer.fired === true ||
        isIdle() ||
        mustHandOver(),
    );
    if (cold?.timer.fired && !hasWork()) {
      await whenCold(cold.afterMs);
      continue;
    }
    if (retry?.fired) {
      retry = null;
      state.mustMeasure = true;
    }
    if (hasWork() && !(mustHandOver() && mayHandOver())) {
      await work();
      continue;
    }
    if (mustHandOver()) {
      await condition(allHandlersFinished);
      // Pending timers are not carried: the measurement knows how long is left.
      const carried = { ...state, mustMeasure: state.mustMeasure || retry !== null || cold !== null };
      if (mayHandOver()) await continueAsNew<typeof session>({ ...input, v: 1, idleAfterMs, carried });
      continue;
    }
    if (state.closing || isIdle()) {
      const quietFor = Date.now() - lastMessageAt;
      if (!state.closing && quietFor < idleAfterMs) {
        idleTimer = startTimer(idleAfterMs - quietFor, 'idle');
        continue;
      }
      await condition(allHandlersFinished);
      if (hasWork()) continue;
      return;
    }
  }

  function configure(): void {
    lastMessageAt = Date.now();
    state.mustMeasure = true;
    retry = null;
  }

  function close(): void {
    state.closing = true;
  }

  function notClosing(): void {
    if (state.closing) throw refusal('the session is closing', 'append a turn to open it again');
  }

  /** One after the other, so that the last one asked for is the one that holds. */
  function pause(paused: boolean): Promise<void> {
    const done = pausing
      .then(() => setPaused({ ...ids, incarnation: state.incarnation, paused }))
      .then(configure);
    pausing = done.catch((error: unknown) => {
      // Measuring finds out which session has the id now.
      if (failureOf(error)?.type === 'Store.StaleGeneration') state.mustMeasure = true;
    });
    return done;
  }

  function hasWork(): boolean {
    return state.inbox.length > 0 || requests.length > 0 || state.mustMeasure;
  }

  /** Not while a retry or a cold cache is to come. */
  function isIdle(): boolean {
    return idleTimer.fired && retry === null && cold === null;
  }

  /** The cache is cold: compact, unless a turn came after the timer was set. */
  async function whenCold(afterMs: number): Promise<void> {
    const quietFor = Date.now() - lastMessageAt;
    if (quietFor < afterMs) {
      cold = { timer: startTimer(afterMs - quietFor, 'until the cache is cold'), afterMs };
      return;
    }
    cold = null;
    await work(() => compact('idle', []));
  }

  function mustHandOver(): boolean {
    const { continueAsNewSuggested, historyLength } = workflowInfo();
    return (
      begunAnew || continueAsNewSuggested || historyLength > (input.maxHistoryEvents ?? handOverAfterEvents)
    );
  }

  /** What is left travels with the input, except callers, who wait here, and messages. */
  function mayHandOver(): boolean {
    return requests.length === 0 && !inbox.hasInline();
  }

  async function work(task: () => Promise<void> = step): Promise<void> {
    try {
      await task();
    } catch (error) {
      if (CancellationScope.current().consideredCancelled) throw error;
      noteFailure(error);
      for (const { settle } of requests.splice(0)) settle(null, error);
      // What was to be measured is forgotten by now, and perhaps nobody says it again.
      if (isOutage(error)) retry ??= startTimer(lookAgainMs, 'before measuring again');
    } finally {
      phase = 'idle';
    }
  }

  async function step(): Promise<void> {
    const must = state.mustMeasure;
    state.mustMeasure = false;
    const due = (await inbox.drain()) || must;
    if (!due && requests.length === 0) return;
    const measured = await measureNow();
    if (measured.paused === true) {
      const error = refusal('the session is paused', 'resume it first');
      for (const { settle } of requests.splice(0)) settle(null, error);
    } else if (requests.length > 0) {
      const asked = requests.splice(0);
      // By hand the fallback's part is read anew as well.
      await compact(asked.every(({ resummarize }) => resummarize) ? 'resummarize' : 'manual', asked);
    } else if (measured.due) await compact('trigger', []);
  }

  /** Forgets what it knows of a session that was erased; the next run starts without its history. */
  function meet(incarnation: string | undefined): void {
    if (incarnation === undefined || incarnation === state.incarnation) return;
    if (state.incarnation !== undefined) {
      begunAnew = true;
      const { inbox: _inbox, mustMeasure: _mustMeasure, ...fresh } = freshState();
      Object.assign(state, fresh);
      upsertSearchAttributes([
        { key: searchAttributes.generation, value: null },
        { key: searchAttributes.lastErrorType, value: null },
      ]);
    }
    state.incarnation = incarnation;
  }

  async function measureNow(): Promise<Earlier<Measurement>> {
    phase = 'measuring';
    let measured: Earlier<Measurement> = await measure(ids);
    if (measured.due && measured.debounceMs > 0 && requests.length === 0) {
      phase = 'debouncing';
      const debounce = startTimer(measured.debounceMs, 'debounce');
      // Who asks by hand, or closes, does not wait for it.
      await inbox.appendingMeanwhile(condition(() => debounce.fired || requests.length > 0 || state.closing));
      phase = 'measuring';
      measured = await measure(ids);
    }
    meet(measured.incarnation);
    state.generation = measured.generation;
    state.tokens = measured.tokens;
    idleAfterMs = measured.idleAfterMs;
    // The worker's clock set `notBefore`, the server's runs the timer: where they differ, this must not spin.
    if (measured.notBefore === null) retry = null;
    else
      retry ??= startTimer(Math.max(lookAgainMs, measured.notBefore - Date.now()), 'before the next attempt');
    const { coldAfterMs = null, paused = false } = measured;
    if (paused !== (state.paused === true)) {
      state.paused = paused;
      upsertSearchAttributes([{ key: searchAttributes.phase, value: paused ? 'paused' : 'idle' }]);
    }
    // A timer that runs already is kept: when it fires, it looks how long it has been quiet.
    if (coldAfterMs === null || measured.due) cold = null;
    else cold ??= { timer: startTimer(coldAfterMs, 'until the cache is cold'), afterMs: coldAfterMs };
    upsertSearchAttributes([{ key: searchAttributes.tokensBefore, value: measured.tokens }]);
    showPage();
    return measured;
  }

  async function compact(reason: CompactionReason, asked: Caller[]): Promise<void> {
    phase = 'compacting';
    const generation = (state.generation ?? 0) + 1;
    const workflowId = compactionWorkflowId(ids, generation);
    running = { generation, workflowId, startedAt: Date.now() };
    joined = [...asked];
    resummarizing = reason === 'resummarize';
    showPage();
    try {
      const live = livePriority(ids.tenant);
      const child = executeCompaction({ ...ids, incarnation: state.incarnation }, generation, reason, {
        tokens: state.tokens,
        priority: asked.length > 0 ? { ...live, priorityKey: 1 } : live,
      });
      const outcome = await inbox.appendingMeanwhile(child);
      nextLookMs = lookAgainMs;
      if (outcome) {
        state.generation = outcome.generation;
        state.tokens = outcome.tokensAfter;
        state.compactions++;
        if (state.lastError) upsertSearchAttributes([{ key: searchAttributes.lastErrorType, value: null }]);
        state.lastError = null;
        state.recent.push(outcome);
        if (state.recent.length > shownCompactions) state.recent.shift();
        upsertSearchAttributes([{ key: searchAttributes.generation, value: outcome.generation }]);
        // Nobody waits for it, and should this run end first, a search does what is missing.
        indexTexts({ ...ids, incarnation: state.incarnation }).catch((error: unknown) =>
          log.warn('indexing failed', { error: String(error) }),
        );
        // Turns that arrived meanwhile may have brought it over the trigger again; the exhausted mark ends the chain.
        state.mustMeasure = true;
      }
      // What found nothing to do by its trigger may find something by hand.
      if (outcome === null && asked.length === 0) requests.push(...joined);
      else for (const { settle } of joined) settle(outcome);
    } catch (error) {
      if (error instanceof WorkflowExecutionAlreadyStartedError) {
        // Started by another parent, for instance a terminated run of this session: its commit decides, then look again.
        await inbox.appendingMeanwhile(sleep(nextLookMs, { summary: `${workflowId} is running already` }));
        nextLookMs = Math.min(2 * nextLookMs, longestLookMs);
        requests.push(...joined);
        state.mustMeasure = true;
        return;
      }
      if (CancellationScope.current().consideredCancelled) throw error;
      noteFailure(error);
      // Cancelled by an operator: it counts as looked at, the next turn that is due starts anew.
      if (isCancellation(error)) inbox.forgetReferences();
      const type = failureOf(error)?.type;
      // Too little for its trigger: by hand less is enough, and nothing to gain is no failure.
      if (type === 'Summary.NotSmaller' && asked.length === 0) requests.push(...joined);
      else for (const { settle } of joined) settle(null, error);
      // A failed one counts as looked at; whoever commits first makes the other plan anew.
      if (type === 'Store.StaleGeneration') state.mustMeasure = true;
    } finally {
      running = null;
      joined = [];
      showPage();
    }
  }

  function noteFailure(error: unknown): void {
    const unknown = { type: isCancellation(error) ? 'Cancelled' : 'Unknown', message: String(error) };
    const { type, message } = failureOf(error) ?? unknown;
    log.warn('session step failed', { type });
    state.lastError = { type, message, at: Date.now() };
    upsertSearchAttributes([{ key: searchAttributes.lastErrorType, value: type }]);
    showPage();
  }

  function showPage(): void {
    const { generation, tokens, lastError, recent, paused } = state;
    setCurrentDetails(
      sessionPage({ running, generation, tokens, lastError, recent, paused: paused === true }),
    );
  }
}

/** What runs that began under an earlier version replay: later fields are missing. */
type Earlier<Answer> = Omit<Answer, 'coldAfterMs' | 'paused' | 'incarnation'> & Partial<Answer>;
