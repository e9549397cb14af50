import {
  WithStartWorkflowOperation,
  WorkflowIdConflictPolicy,
  WorkflowNotFoundError,
  type Client,
  type Connection,
} from '@temporalio/client';
import type { Workflow } from '@temporalio/common';
import type {
  CompactAnswer,
  CompactRequest,
  SessionStart,
  SessionStatus,
  TurnSignal,
} from '../contract/workflows.js';
import { reasonOf, typed, unlessGone } from './calls.js';
import { livePriority, searchAttributes, sessionWorkflowId, taskQueues } from './names.js';
import type { SessionIds } from '../contract/ids.js';

/** Answers take milliseconds, or longer if a worker must replay a history first. */
const callTimeoutMs = 10_000;

/** An agent waits for its append; if the signal takes longer, the next due turn or the sweep repeats it. */
const signalTimeoutMs = 2_000;

/** Receives warnings about problems that fail no call; loggers such as pino implement it. */
export interface Warnings {
  warn(facts: object, message: string): void;
}

/** Client of the session workflows: starts them on demand, signals them, and queries them. */
export class SessionWorkflows {
  constructor(
    private readonly client: Client,
    private readonly queuePrefix: string,
    private readonly log?: Warnings,
  ) {}

  async close(): Promise<void> {
    await (this.client.connection as Connection).close();
  }

  /** Throws `Temporal.Unavailable` if the server does not answer for its namespace. */
  async reach(): Promise<void> {
    const { connection, options } = this.client;
    const { namespace } = options;
    await typed(() => this.soon(() => connection.workflowService.describeNamespace({ namespace })));
  }

  /**
   * Returns false if Temporal could not be signalled within two seconds, whatever the error: the turn is stored, and the sweep
   * finds waiting sessions.
   */
  async signalTurn(ids: SessionIds, turn: TurnSignal, idleAfterMs: number): Promise<boolean> {
    try {
      await this.signal(ids, turn, idleAfterMs);
      return true;
    } catch (error) {
      this.log?.warn(reasonOf(error), 'a stored turn could not be signalled');
      return false;
    }
  }

  /** Requests a measurement of the session. Throws `Temporal.Unavailable`. */
  async signalMeasure(ids: SessionIds, idleAfterMs: number): Promise<void> {
    await typed(() => this.signal(ids, null, idleAfterMs));
  }

  private async signal(ids: SessionIds, turn: TurnSignal | null, idleAfterMs: number): Promise<void> {
    const { workflow } = this.client;
    await this.client.withDeadline(Date.now() + signalTimeoutMs, () =>
      workflow.signalWithStart<Workflow, [TurnSignal | null]>('session', {
        ...this.startOptions(ids, idleAfterMs),
        signal: 'turn',
        signalArgs: [turn],
      }),
    );
  }

  /** Reports that the policy in PostgreSQL has changed. Throws `Temporal.Unavailable`. */
  async signalConfigured(ids: SessionIds, idleAfterMs: number): Promise<void> {
    const { workflow } = this.client;
    const options = { ...this.startOptions(ids, idleAfterMs), signal: 'configure' };
    await typed(() => this.soon(() => workflow.signalWithStart<Workflow>('session', options)));
  }

  async signalClose(ids: SessionIds): Promise<void> {
    const handle = this.client.workflow.getHandle(sessionWorkflowId(ids));
    await typed(() => unlessGone(() => this.soon(() => handle.signal('close'))));
  }

  /**
   * Resolves once the workflow has accepted the request, to a function that waits for the outcome until `signal` is aborted. Both
   * throw `Temporal.Unavailable`; the function also throws the compaction's failure.
   */
  requestCompaction(
    ids: SessionIds,
    idleAfterMs: number,
    request: CompactRequest,
  ): Promise<(signal: AbortSignal) => Promise<CompactAnswer>> {
    const startWorkflowOperation = new WithStartWorkflowOperation<Workflow>('session', {
      ...this.startOptions(ids, idleAfterMs),
      workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
    });
    const { workflow } = this.client;
    return typed(async () => {
      // The update is accepted within seconds and answered when the compaction is done.
      const update = await this.soon(() =>
        workflow.startUpdateWithStart<Workflow, CompactAnswer, [CompactRequest]>('compact', {
          waitForStage: 'ACCEPTED',
          startWorkflowOperation,
          args: [request],
        }),
      );
      return (signal) => typed(() => this.client.withAbortSignal(signal, () => update.result()));
    });
  }

  /** Returns `asleep` if the workflow is not running, and `unknown` if no worker answers for it or Temporal is unavailable. */
  async status(ids: SessionIds, withinMs = callTimeoutMs): Promise<SessionStatus | 'asleep' | 'unknown'> {
    const handle = this.client.workflow.getHandle(sessionWorkflowId(ids));
    try {
      return await this.soon(async () => {
        const { status } = await handle.describe();
        return status.name === 'RUNNING' ? handle.query<SessionStatus>('status') : 'asleep';
      }, withinMs);
    } catch (error) {
      return error instanceof WorkflowNotFoundError ? 'asleep' : 'unknown';
    }
  }

  private soon<T>(call: () => Promise<T>, withinMs = callTimeoutMs): Promise<T> {
    return this.client.withDeadline(Date.now() + Math.min(withinMs, callTimeoutMs), call);
  }

  private startOptions(ids: SessionIds, idleAfterMs: number) {
    const args: [SessionStart] = [{ v: 1, ...ids, idleAfterMs }];
    return {
      workflowId: sessionWorkflowId(ids),
      taskQueue: taskQueues(this.queuePrefix).workflow,
      args,
      staticSummary: `session ${ids.session} of ${ids.tenant}`.slice(0, 200),
      staticDetails:
        'One agent session. A turn that may make a compaction due signals it; when the context outgrows its policy it starts a compaction ' +
        '(child workflow `compaction/…`). The current details show its compactions; originals and summaries are in PostgreSQL.',
      typedSearchAttributes: [
        { key: searchAttributes.tenantId, value: ids.tenant },
        { key: searchAttributes.sessionId, value: ids.session },
      ],
      priority: livePriority(ids.tenant),
    };
  }
}
