import type { Attempt } from './run.js';

/** A model call of this process. The attempts of one step share it. */
interface Call {
  answer: Promise<unknown>;
  stop: AbortController;
  /** Ends the call if no attempt takes it over. */
  expiry?: NodeJS.Timeout;
}

const calls = new Map<string, Call>();

/** Time for the next attempt to take over the call. The server starts it about a second after it gave up the earlier one. */
const adoptableMs = 5_000;

/**
 * Makes the call, or takes over the call of an earlier attempt of the same step. If a process stalls or loses its connection, the
 * server gives up the attempt, although the process may still get the answer. The call, or its outcome, then waits for the next
 * attempt, so that the answer is not paid again. `ask` gets a signal that outlasts such an attempt.
 */
export async function sharedCall<Answer>(
  { asker, signal, givenUp }: Attempt,
  key: string,
  ask: (signal: AbortSignal) => Promise<Answer>,
): Promise<Answer> {
  const id = `${asker.step}/${key}`;
  const call = calls.get(id) ?? begin(id, ask);
  clearTimeout(call.expiry);
  const end = (): void => {
    if (calls.get(id) === call) calls.delete(id);
    call.stop.abort(signal.reason);
  };
  const leave = (): void => {
    clearTimeout(call.expiry);
    if (givenUp()) call.expiry = setTimeout(end, adoptableMs).unref();
    else end();
  };
  signal.addEventListener('abort', leave, { once: true });
  if (signal.aborted) leave();
  try {
    return (await call.answer) as Answer;
  } finally {
    signal.removeEventListener('abort', leave);
    leave();
  }
}

function begin(id: string, ask: (signal: AbortSignal) => Promise<unknown>): Call {
  const stop = new AbortController();
  const call = { answer: ask(stop.signal), stop };
  calls.set(id, call);
  return call;
}
