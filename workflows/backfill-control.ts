import { condition, setHandler } from '@temporalio/workflow';
import type { BackfillState, ResizeRequest, RetryRequest } from '../src/contract/backfills.js';
import {
  cancelSignal,
  cancelUpdate,
  checkResizeRequest,
  checkRetryRequest,
  pauseSignal,
  pauseUpdate,
  refusal,
  resizeUpdate,
  resumeSignal,
  resumeUpdate,
  retryUpdate,
} from './messages.js';

/** The early end of a job: no further compaction starts. */
export interface Cut {
  state: Extract<BackfillState, 'cancelled' | 'stopped'>;
  reason: string;
}

/** A caller that waits for the job to run again. */
export interface Retry {
  request: RetryRequest;
  settle: (error?: unknown) => void;
}

/**
 * Lets operators control a running job. A message takes effect on arrival and is answered when its change is stored. Only the
 * workflow's main loop stores changes, so that they stay in order.
 */
export class Control {
  cut: Cut | null = null;
  /** The job's end is stored; only a retry resumes it. */
  ended = false;
  readonly retries: Retry[] = [];
  /** The settings with which this run opened the job. */
  private taken = { paused: false, concurrency: 1 };
  /** Settings from messages, which override them; messages may arrive before the job is opened. */
  private readonly said: Partial<Control['taken']> = {};
  /** Number of changes so far, and number of stored changes. */
  private changes = 0;
  private saved = 0;

  constructor() {
    const refuseEnded = () => {
      if (this.ended) throw refusal('the job has ended', 'retry it, or start another one');
    };
    const refuseCut = () => {
      refuseEnded();
      if (this.cut) throw refusal(`the job is ${this.cut.state}`, 'retry it when it has ended');
    };
    const pause = (paused: boolean) => this.changing(() => void (this.said.paused = paused));
    const cancel = () => this.changing(() => this.cutShort('cancelled', 'cancelled by an operator'));
    setHandler(pauseSignal, () => void pause(true));
    setHandler(resumeSignal, () => void pause(false));
    setHandler(cancelSignal, () => void cancel());
    setHandler(pauseUpdate, () => pause(true), { validator: refuseCut });
    setHandler(resumeUpdate, () => pause(false), { validator: refuseCut });
    setHandler(cancelUpdate, cancel, { validator: refuseEnded });
    setHandler(
      resizeUpdate,
      ({ concurrency }) => this.changing(() => void (this.said.concurrency = concurrency)),
      {
        validator: (request: ResizeRequest) => {
          refuseCut();
          checkResizeRequest(request);
        },
      },
    );
    setHandler(
      retryUpdate,
      (request) =>
        new Promise<void>((resolve, reject) => {
          const settle = (error?: unknown) => (error === undefined ? resolve() : reject(error));
          this.retries.push({ request: request ?? {}, settle });
        }),
      { validator: checkRetryRequest },
    );
  }

  get paused(): boolean {
    return this.said.paused ?? this.taken.paused;
  }

  get concurrency(): number {
    return this.said.concurrency ?? this.taken.concurrency;
  }

  takeUp({ paused, concurrency, cut }: Control['taken'] & { cut: Cut | null }): void {
    this.taken = { paused, concurrency };
    this.cut ??= cut;
  }

  /** Resumes the job, whatever stopped it. */
  wake(): void {
    this.cut = null;
    this.ended = false;
    this.said.paused = false;
  }

  get unsaved(): boolean {
    return this.saved < this.changes;
  }

  /** True if no compaction may start. */
  get held(): boolean {
    return this.paused || this.cut !== null || this.ended;
  }

  get state(): Exclude<BackfillState, 'completed'> {
    return this.cut?.state ?? (this.paused ? 'paused' : 'running');
  }

  cutShort(state: Cut['state'], reason: string): void {
    if (this.ended || this.cut) return;
    this.cut = { state, reason };
    this.changes++;
  }

  async save(write: () => Promise<void>): Promise<void> {
    const upTo = this.changes;
    if (!this.ended) await write();
    this.saved = upTo;
  }

  private async changing(change: () => void): Promise<void> {
    if (!this.ended) change();
    const mine = ++this.changes;
    await condition(() => this.saved >= mine);
  }
}
