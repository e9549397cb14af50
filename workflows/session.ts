import {
  allHandlersFinished,
  CancellationScope,
  condition,
  continueAsNew,
  setHandler,
} from '@temporalio/workflow';
import type { CompactAnswer } from '../src/contract/workflows.js';
import {
  checkCompactRequest,
  closeSignal,
  closeUpdate,
  compactUpdate,
  configureSignal,
  configureUpdate,
  pauseSignal,
  pauseUpdate,
  refusal,
  resumeSignal,
  resumeUpdate,
  retrySignal,
  statusQuery,
  turnSignal,
} from './messages.js';
import { sessionWorkflowId } from '../src/temporal/names.js';
import { SessionCompactions } from './session-compaction.js';
import { SessionRun } from './session-run.js';
import type { SessionInput } from './session-state.js';
import { assertOwnId } from './own-id.js';
import { isOutage } from './turn-inbox.js';

/** Handles one agent session: records turns, measures when something may be due, and runs one compaction at a time. */
export async function session(input: SessionInput): Promise<void> {
  assertOwnId(() => sessionWorkflowId(input));
  const run = new SessionRun(input);
  const compactions = new SessionCompactions(run);
  const { waits } = run;
  listen(run);
  run.showPage();
  waits.startIdle();
  while (true) {
    await condition(() => isWoken(run));
    if (waits.isCacheCold && !run.hasWork) {
      if (waits.takeCold()) await attempt(run, () => compactions.compact('idle', []));
      continue;
    }
    if (waits.isRetryDue) {
      waits.endRetry();
      run.state.mustMeasure = true;
    }
    if (run.hasWork && !(run.mustHandOver && run.mayHandOver))
      await attempt(run, () => work(run, compactions));
    else if (run.mustHandOver) await handOver(run, input);
    else if ((run.state.closing || waits.isIdle) && (await hasEnded(run))) return;
  }
}

function listen(run: SessionRun): void {
  const { state, callers, waits } = run;
  const configure = () => run.configure();
  const close = () => void (state.closing = true);
  const notClosing = () => {
    if (state.closing) throw refusal('the session is closing', 'append a turn to open it again');
  };
  // A handler of a signal that fails would fail the workflow. Instead, the failure appears on the session's page in the Temporal UI.
  const noteFailure = (error: unknown) => run.noteFailure(error);
  setHandler(turnSignal, (turn) => run.receive(turn));
  setHandler(configureSignal, configure);
  setHandler(configureUpdate, configure);
  setHandler(closeSignal, close);
  setHandler(closeUpdate, close);
  setHandler(pauseSignal, () => run.pause(true).catch(noteFailure));
  setHandler(resumeSignal, () => run.pause(false).catch(noteFailure));
  setHandler(pauseUpdate, () => run.pause(true), { validator: notClosing });
  setHandler(resumeUpdate, () => run.pause(false), { validator: notClosing });
  setHandler(retrySignal, () => {
    waits.heard();
    callers.addToNext({ settle: () => undefined, resummarize: false });
  });
  setHandler(
    compactUpdate,
    async (request) => {
      waits.heard();
      return new Promise<CompactAnswer>((resolve, reject) => {
        const settle = (answer: CompactAnswer, error?: unknown) =>
          error === undefined ? resolve(answer) : reject(error);
        callers.joinOrAdd({ settle, resummarize: request?.resummarize === true }, request?.after);
      });
    },
    { validator: checkCompactRequest },
  );
  setHandler(statusQuery, () => run.status());
}

function isWoken(run: SessionRun): boolean {
  const { state, waits } = run;
  return (
    run.hasWork || state.closing || waits.isRetryDue || waits.isCacheCold || waits.isIdle || run.mustHandOver
  );
}

/**
 * Runs a task whose failure the session survives: the failure appears on the page, and waiting callers are told. Throws if the
 * workflow is cancelled.
 */
async function attempt(run: SessionRun, task: () => Promise<void>): Promise<void> {
  try {
    await task();
  } catch (error) {
    if (CancellationScope.current().consideredCancelled) throw error;
    run.noteFailure(error);
    run.callers.refuseWaiting(error);
    // The measurement that was due has been lost, and perhaps no further signal requests it.
    if (isOutage(error)) run.waits.retryMeasuring();
  } finally {
    run.phase = 'idle';
  }
}

/** Stores and checks all turns, measures if a turn may have made a compaction due, and compacts if it is due or requested. */
async function work(run: SessionRun, compactions: SessionCompactions): Promise<void> {
  const { state, inbox, callers } = run;
  const must = state.mustMeasure;
  state.mustMeasure = false;
  const due = (await inbox.drain()) || must;
  if (!due && callers.count === 0) return;
  const measured = await run.measure();
  if (measured.paused === true) callers.refuseWaiting(refusal('the session is paused', 'resume it first'));
  else if (callers.asked !== null)
    await compactions.compact(callers.asked, callers.takeWaiting(), measured.planned);
  else if (measured.due) await compactions.compact('trigger', [], measured.planned);
  else if (measured.eager === true) await compactions.writeAhead(measured.generation, measured.planned);
}

/** Continues as a new run once no message is being handled, unless work that cannot be carried over has arrived. */
async function handOver(run: SessionRun, input: SessionInput): Promise<void> {
  await condition(allHandlersFinished);
  if (!run.mayHandOver) return;
  const { state, waits } = run;
  const { idleAfterMs } = waits;
  const carried = { ...state, mustMeasure: state.mustMeasure || waits.isAwaited };
  await continueAsNew<typeof session>({ ...input, v: 1, idleAfterMs, carried });
}

/** Returns false if messages arrived that keep the session running. */
async function hasEnded(run: SessionRun): Promise<boolean> {
  if (!run.state.closing && !run.waits.hasBeenQuiet()) return false;
  await condition(allHandlersFinished);
  return !run.hasWork;
}
