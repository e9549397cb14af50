import { ApplicationFailure, workflowInfo } from '@temporalio/workflow';

/**
 * Fails the workflow if its id names another session or job than its arguments do. A client that may start workflows chooses both.
 * A workflow acts on its arguments, while permissions and operators go by its id.
 */
export function assertOwnId(idOf: (given: string) => string): void {
  const { workflowId } = workflowInfo();
  let expected: string;
  try {
    expected = idOf(workflowId);
  } catch (error) {
    throw refused(error instanceof Error ? error.message : String(error));
  }
  if (workflowId !== expected) throw refused(`the workflow ${workflowId} has the arguments of ${expected}`);
}

function refused(problem: string): ApplicationFailure {
  return ApplicationFailure.nonRetryable(
    `${problem} — start it under the id of its arguments`,
    'Input.Invalid',
  );
}
