import { WithStartWorkflowOperation, WorkflowIdConflictPolicy, type Client } from '@temporalio/client';
import type { Workflow } from '@temporalio/common';
import type { BackfillIds } from '../contract/ids.js';
import type { BackfillStart } from '../contract/workflows.js';
import { typed, unlessGone } from './calls.js';
import { backfillPriority, backfillWorkflowId, searchAttributes, taskQueues } from './names.js';

/** Workflows start or answer within milliseconds; it takes longer if a worker must replay a history first. */
const callTimeoutMs = 10_000;

/** A message is answered after its change is written to PostgreSQL. */
const answerTimeoutMs = 30_000;

/** Client of the backfill workflows. PostgreSQL holds everything that the workflows report. */
export class BackfillWorkflows {
  constructor(
    private readonly client: Client,
    private readonly queuePrefix: string,
    /** Options of the workflow, for tests. */
    private readonly input: Pick<BackfillStart, 'pageSize' | 'maxHistoryEvents'> = {},
  ) {}

  /** Starts the job's workflow; does nothing if it is running. Throws `Temporal.Unavailable`. */
  async start(ids: BackfillIds): Promise<void> {
    const { workflow } = this.client;
    await typed(() => this.within(callTimeoutMs, () => workflow.start('backfill', this.startOptions(ids))));
  }

  /**
   * Starts the workflow of an unfinished job if none is running, because Temporal was unavailable when the job was stored or
   * because the workflow was terminated. A workflow that failed is not restarted, because it would fail again. Returns whether
   * it was started; throws `Temporal.Unavailable`.
   */
  async revive(ids: BackfillIds): Promise<boolean> {
    const handle = this.client.workflow.getHandle(backfillWorkflowId(ids));
    const status = await typed(() =>
      this.within(callTimeoutMs, () => unlessGone(async () => (await handle.describe()).status.name)),
    );
    if (status === 'RUNNING' || status === 'FAILED') return false;
    await this.start(ids);
    return true;
  }

  /**
   * Sends the workflow a message, starting it if necessary, and waits until the change is stored. Throws `Input.Invalid` if the
   * workflow refuses the message, or `Temporal.Unavailable`.
   */
  async tell(
    ids: BackfillIds,
    update: 'pause' | 'resume' | 'cancel' | 'resize' | 'retry',
    ...args: object[]
  ): Promise<void> {
    const { workflow } = this.client;
    const startWorkflowOperation = new WithStartWorkflowOperation<Workflow>(
      'backfill',
      this.startOptions(ids),
    );
    await typed(async () => {
      const told = await this.within(callTimeoutMs, () =>
        workflow.startUpdateWithStart<Workflow, void, object[]>(update, {
          waitForStage: 'ACCEPTED',
          startWorkflowOperation,
          args,
        }),
      );
      await this.within(answerTimeoutMs, () => told.result());
    });
  }

  private within<T>(ms: number, call: () => Promise<T>): Promise<T> {
    return this.client.withDeadline(Date.now() + ms, call);
  }

  private startOptions(ids: BackfillIds) {
    const { tenant, job } = ids;
    const args: [BackfillStart] = [{ v: 1, ...ids, ...this.input }];
    return {
      workflowId: backfillWorkflowId(ids),
      workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
      taskQueue: taskQueues(this.queuePrefix).backfill.workflow,
      args,
      staticSummary: `backfill ${job} of ${tenant}`.slice(0, 200),
      staticDetails:
        'Compacts many sessions (child workflows `compaction/…`), one page after another. The current details show ' +
        'its progress. Signals: `pause`, `resume`, `cancel`; the outcome of every session is in PostgreSQL.',
      typedSearchAttributes: [
        { key: searchAttributes.tenantId, value: tenant },
        { key: searchAttributes.backfillJob, value: job },
      ],
      priority: backfillPriority(tenant),
    };
  }
}
