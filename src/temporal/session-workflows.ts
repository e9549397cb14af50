import {
  isGrpcServiceError,
  QueryRejectedError,
  ServiceError,
  WithStartWorkflowOperation,
  WorkflowIdConflictPolicy,
  WorkflowNotFoundError,
  WorkflowUpdateRPCTimeoutOrCancelledError,
  type Client,
  type Connection,
} from '@temporalio/client';
import type { CompactAnswer, CompactRequest, SessionStatus, TurnSignal } from '../../workflows/messages.js';
import type { session as sessionWorkflow, SessionInput } from '../../workflows/session.js';
import { PalimpsestError } from '../errors.js';
import { failureOf, toPalimpsestError } from './failures.js';
import { livePriority, searchAttributes, sessionWorkflowId, taskQueues, type SessionIds } from './names.js';

/** Answered in milliseconds; longer where a worker replays a history first. */
const callTimeoutMs = 5_000;
/** An agent is waiting for its append; a turn that could not be signalled in time is signalled with the next. */
const signalTimeoutMs = 2_000;

/** The session workflows as their callers see them: started on demand, told, asked. */
export class SessionWorkflows {
  constructor(
    private readonly client: Client,
    private readonly queuePrefix: string,
  ) {}

  async close(): Promise<void> {
    await (this.client.connection as Connection).close();
  }

  /** Throws `Temporal.Unavailable` where the server does not answer for its namespace. */
  async reach(): Promise<void> {
    const { connection, options } = this.client;
    const { namespace } = options;
    try {
      await this.soon(() => connection.workflowService.describeNamespace({ namespace }));
    } catch (error) {
      if (!isGrpcServiceError(error)) throw error;
      throw new PalimpsestError('Temporal.Unavailable', `Temporal does not answer: ${error.details}`, {
        hint: 'Check TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE. Turns are stored meanwhile.',
        cause: error,
      });
    }
  }

  /** False when Temporal could not be told within two seconds. */
  async signalTurn(ids: SessionIds, turn: TurnSignal, idleAfterMs: number): Promise<boolean> {
    const { workflow } = this.client;
    try {
      await this.client.withDeadline(Date.now() + signalTimeoutMs, () =>
        workflow.signalWithStart<typeof sessionWorkflow, [TurnSignal]>('session', {
          ...this.startOptions(ids, idleAfterMs),
          signal: 'turn',
          signalArgs: [turn],
        }),
      );
      return true;
    } catch (error) {
      if (error instanceof ServiceError) return false;
      throw error;
    }
  }

  /** The policy in PostgreSQL has changed. Throws `Temporal.Unavailable`. */
  async signalConfigured(ids: SessionIds, idleAfterMs: number): Promise<void> {
    const { workflow } = this.client;
    const options = { ...this.startOptions(ids, idleAfterMs), signal: 'configure' };
    await typed(() => this.soon(() => workflow.signalWithStart<typeof sessionWorkflow>('session', options)));
  }

  async signalClose(ids: SessionIds): Promise<void> {
    const handle = this.client.workflow.getHandle(sessionWorkflowId(ids));
    await typed(() => unlessGone(() => this.soon(() => handle.signal('close'))));
  }

  /**
   * Waits for the outcome, or answers null once the workflow has accepted the request. Throws what the compaction failed
   * with, or `Temporal.Unavailable`.
   */
  compact(
    ids: SessionIds,
    idleAfterMs: number,
    request: CompactRequest = {},
    wait = true,
  ): Promise<CompactAnswer> {
    const startWorkflowOperation = new WithStartWorkflowOperation<typeof sessionWorkflow>('session', {
      ...this.startOptions(ids, idleAfterMs),
      workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
    });
    const { workflow } = this.client;
    return typed(async () => {
      // Accepted within seconds, answered when the compaction is done.
      const update = await this.soon(() =>
        workflow.startUpdateWithStart<typeof sessionWorkflow, CompactAnswer, [CompactRequest]>('compact', {
          waitForStage: 'ACCEPTED',
          startWorkflowOperation,
          args: [request],
        }),
      );
      return wait ? update.result() : null;
    });
  }

  /** `asleep` when the workflow is not running, `unknown` when no worker answers for it. */
  async status(ids: SessionIds, withinMs = callTimeoutMs): Promise<SessionStatus | 'asleep' | 'unknown'> {
    const handle = this.client.workflow.getHandle(sessionWorkflowId(ids));
    try {
      return await this.soon(async () => {
        const { status } = await handle.describe();
        return status.name === 'RUNNING' ? handle.query<SessionStatus>('status') : 'asleep';
      }, withinMs);
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return 'asleep';
      if (error instanceof ServiceError || error instanceof QueryRejectedError) return 'unknown';
      throw error;
    }
  }

  private soon<T>(call: () => Promise<T>, withinMs = callTimeoutMs): Promise<T> {
    return this.client.withDeadline(Date.now() + Math.min(withinMs, callTimeoutMs), call);
  }

  private startOptions(ids: SessionIds, idleAfterMs: number) {
    const args: [SessionInput] = [{ v: 1, ...ids, idleAfterMs }];
    return {
      workflowId: sessionWorkflowId(ids),
      taskQueue: taskQueues(this.queuePrefix).workflow,
      args,
      staticSummary: `session ${ids.session} of ${ids.tenant}`.slice(0, 200),
      staticDetails:
        'One agent session. Each turn signals it; when the context outgrows its policy it starts a compaction ' +
        '(child workflow `compaction/…`). Current details show its compactions; originals and summaries are in Postgres.',
      typedSearchAttributes: [
        { key: searchAttributes.tenantId, value: ids.tenant },
        { key: searchAttributes.sessionId, value: ids.session },
      ],
      priority: livePriority(ids.tenant),
    };
  }
}

/** A workflow that is not running has nothing in flight to finish. */
async function unlessGone(call: () => Promise<unknown>): Promise<void> {
  try {
    await call();
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error;
  }
}

/** Temporal's errors as ours: what a workflow failed with keeps its type, everything else is `Temporal.Unavailable`. */
export async function typed<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    const failure = toPalimpsestError(error);
    if (failure) throw failure;
    // Erased, or terminated by an operator, while somebody waited for its answer.
    if (failureOf(error)?.type === 'AcceptedUpdateCompletedWorkflow')
      throw new PalimpsestError('Temporal.Unavailable', 'The workflow was ended before it had answered.', {
        hint: 'Was the session erased, or its workflow terminated? Repeat the call: it says so, or starts anew.',
        cause: error,
      });
    const silent = error instanceof ServiceError || error instanceof WorkflowUpdateRPCTimeoutOrCancelledError;
    if (!silent) throw error;
    throw new PalimpsestError('Temporal.Unavailable', `Temporal does not answer: ${error.message}`, {
      hint: 'What was stored stays stored; repeat the call when the server is back.',
      cause: error,
    });
  }
}
