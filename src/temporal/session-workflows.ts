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

/** Answered in milliseconds; longer where a worker replays a history first. */
const callTimeoutMs = 5_000;

/** An agent is waiting for its append; a turn that could not be signalled in time is signalled with the next. */
const signalTimeoutMs = 2_000;

/** Told of what went wrong without failing a call; loggers of pino and others are that. */
export interface Warnings {
  warn(facts: object, message: string): void;
}

/** The session workflows as their callers see them: started on demand, told, asked. */
export class SessionWorkflows {
  constructor(
    private readonly client: Client,
    private readonly queuePrefix: string,
    private readonly log?: Warnings,
  ) {}

  async close(): Promise<void> {
    await (this.client.connection as Connection).close();
  }

  /** Throws `Temporal.Unavailable` where the server does not answer for its namespace. */
  async reach(): Promise<void> {
    const { connection, options } = this.client;
    const { namespace } = options;
    await typed(() => this.soon(() => connection.workflowService.describeNamespace({ namespace })));
  }

  /**
   * False when Temporal could not be told within two seconds, whatever was thrown: the turn is stored, and the sweep finds
   * a session that waits.
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

  /** The session is to be measured. Throws `Temporal.Unavailable`. */
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

  /** The policy in PostgreSQL has changed. Throws `Temporal.Unavailable`. */
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
   * Waits for the outcome, until `signal` is aborted, or answers null once the workflow has accepted the request. Throws
   * what the compaction failed with, or `Temporal.Unavailable`.
   */
  compact(
    ids: SessionIds,
    idleAfterMs: number,
    request: CompactRequest = {},
    wait = true,
    signal?: AbortSignal,
  ): Promise<CompactAnswer> {
    const startWorkflowOperation = new WithStartWorkflowOperation<Workflow>('session', {
      ...this.startOptions(ids, idleAfterMs),
      workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
    });
    const { workflow } = this.client;
    return typed(async () => {
      // Accepted within seconds, answered when the compaction is done.
      const update = await this.soon(() =>
        workflow.startUpdateWithStart<Workflow, CompactAnswer, [CompactRequest]>('compact', {
          waitForStage: 'ACCEPTED',
          startWorkflowOperation,
          args: [request],
        }),
      );
      if (!wait) return null;
      return signal ? this.client.withAbortSignal(signal, () => update.result()) : update.result();
    });
  }

  /** `asleep` when the workflow is not running, `unknown` when no worker answers for it, or Temporal does not. */
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
