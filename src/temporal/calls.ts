/** Converts the errors of Temporal's client into failures of this product. */
import { WorkflowFailedError, WorkflowNotFoundError, WorkflowUpdateFailedError } from '@temporalio/client';
import { CancelledFailure, TerminatedFailure, TimeoutFailure } from '@temporalio/common';
import { networkReason, PalimpsestError } from '../errors.js';
import { programName } from '../runtime/program.js';
import { causesOf, failureOf, toPalimpsestError } from './failures.js';

/** Status codes of gRPC, by number. */
const codeNames = [
  ...['OK', 'CANCELLED', 'UNKNOWN', 'INVALID_ARGUMENT', 'DEADLINE_EXCEEDED', 'NOT_FOUND', 'ALREADY_EXISTS'],
  ...['PERMISSION_DENIED', 'RESOURCE_EXHAUSTED', 'FAILED_PRECONDITION', 'ABORTED', 'OUT_OF_RANGE'],
  ...['UNIMPLEMENTED', 'INTERNAL', 'UNAVAILABLE', 'DATA_LOSS', 'UNAUTHENTICATED'],
];

const again = 'Stored data stays stored; repeat the call when the server is back.';
const noNamespace = () => `Check TEMPORAL_NAMESPACE; \`${programName()} doctor\` says what is missing.`;
const hints: Readonly<Record<string, () => string>> = {
  PERMISSION_DENIED: () => 'Check TEMPORAL_API_KEY and its permissions in TEMPORAL_NAMESPACE.',
  UNAUTHENTICATED: () => 'Check TEMPORAL_API_KEY.',
  NOT_FOUND: noNamespace,
  NamespaceNotFoundError: noNamespace,
  INVALID_ARGUMENT: () =>
    `Run \`${programName()} doctor\`: it says whether the search attributes are registered.`,
  RESOURCE_EXHAUSTED: () => 'Repeat the call later, or raise the limits of the namespace.',
};

/** Longer texts of a server are truncated. */
const mostCharacters = 300;

/** Resolves to the result of the call; null if there is no such workflow, or if it does not run. */
export async function unlessGone<T>(call: () => Promise<T>): Promise<T | null> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof WorkflowNotFoundError) return null;
    throw error;
  }
}

/**
 * Resolves to the result of the call. Throws a `PalimpsestError` for every error of Temporal or its SDK, except for a defect
 * inside a workflow.
 */
export async function typed<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    throw asTemporalFailure(error);
  }
}

/**
 * A workflow's failure keeps its type. Any other error of the SDK, and a workflow that was ended before it answered, becomes
 * `Temporal.Unavailable` with the code and message of its cause. A workflow's failure with a type unknown to this product is a
 * defect and is rethrown unchanged.
 */
function asTemporalFailure(error: unknown): unknown {
  if (error instanceof PalimpsestError) return error;
  const failure = toPalimpsestError(error);
  if (failure) return failure;
  const ended = whyEnded(error);
  if (ended)
    return new PalimpsestError('Temporal.Unavailable', ended, {
      hint: 'The session may have been erased, or its workflow ended in Temporal. Repeat the call: it reports the erasure, or starts the workflow again.',
      cause: error,
    });
  if (error instanceof WorkflowUpdateFailedError || error instanceof WorkflowFailedError) return error;
  const { code, message } = reasonOf(error);
  const reason = networkReason(error) ?? message;
  return new PalimpsestError('Temporal.Unavailable', `Temporal does not answer: ${reason}`, {
    hint: hints[code]?.() ?? again,
    details: { code },
    cause: error,
  });
}

/** Returns how the workflow that had to answer ended before its answer; null if that is not the reason of the error. */
function whyEnded(error: unknown): string | null {
  if (error instanceof WorkflowNotFoundError) return 'The workflow that had to answer has ended.';
  if (failureOf(error)?.type === 'AcceptedUpdateCompletedWorkflow')
    return 'The workflow was ended before it answered.';
  if (!(error instanceof WorkflowUpdateFailedError)) return null;
  for (const cause of causesOf(error)) {
    if (cause instanceof CancelledFailure)
      return 'The workflow that had to answer was cancelled in Temporal before it finished.';
    if (cause instanceof TerminatedFailure)
      return 'The workflow that had to answer was terminated in Temporal before it finished.';
    if (cause instanceof TimeoutFailure)
      return 'A step timed out before it finished. Check that a worker runs.';
  }
  return null;
}

/**
 * Returns the name of the gRPC code and its message. If the server did not answer, returns the name and the message of the
 * system's or the SDK's error.
 */
export function reasonOf(error: unknown): { code: string; message: string } {
  let last: Error | undefined;
  for (const cause of causesOf(error)) {
    const { code, details } = cause as { code?: unknown; details?: unknown };
    const name = typeof code === 'number' ? codeNames[code] : undefined;
    if (name !== undefined)
      return {
        code: name,
        message: shortened(typeof details === 'string' && details ? details : cause.message),
      };
    if (typeof code === 'string') return { code, message: shortened(cause.message) };
    last = cause;
  }
  if (last === undefined) return { code: 'UNKNOWN', message: shortened(String(error)) };
  return { code: last.name, message: shortened(last.message) };
}

function shortened(message: string): string {
  return message.length <= mostCharacters ? message : `${message.slice(0, mostCharacters)}…`;
}
