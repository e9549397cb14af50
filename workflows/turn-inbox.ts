import { ActivityFailure, condition, isCancellation, patched, sleep } from '@temporalio/workflow';
import { failureOf } from '../src/temporal/failures.js';
import type { SessionIds } from '../src/contract/ids.js';
import { isInline } from './messages.js';
import type { TurnSignal } from '../src/contract/workflows.js';
import { databaseActivities } from './options.js';
import type { Carried, ReceivedTurn } from './session-state.js';

const seenTurns = 512;
const keptRejections = 20;

/** Number of characters that are kept of a refused turn's id and reason, because a client may send any length. */
const shownCharacters = 500;
const appendAgainMs = 2_000;

/** The turns that were signalled and not yet handled; stores those that carry their messages. */
export class TurnInbox {
  private readonly activities = databaseActivities();

  constructor(
    private readonly ids: SessionIds,
    private readonly state: Pick<Carried, 'inbox' | 'seen' | 'rejectedTurns'>,
    private readonly appending: () => void,
    /** Called with the session that an inline turn was appended to. */
    private readonly met: (incarnation: string | undefined) => void,
  ) {}

  receive(turn: TurnSignal): void {
    const { inbox, seen } = this.state;
    // The store recognises a repeated inline turn; a repeated reference may set `due` again.
    if (seen.includes(turn.turnId) && turn.due === false) return;
    if (!isInline(turn)) seen.push(turn.turnId);
    if (seen.length > seenTurns) seen.shift();
    inbox.push(isInline(turn) ? { ...turn, receivedAt: Date.now() } : turn);
  }

  hasInline(): boolean {
    return this.state.inbox.some(isInline);
  }

  /** Drops turns that only refer to stored messages, because they count as handled. */
  forgetReferences(): void {
    this.state.inbox = this.state.inbox.filter(isInline);
  }

  /** Handles every turn; returns whether one of the turns may be due. */
  async drain(): Promise<boolean> {
    let due = false;
    for (let turn = this.state.inbox.shift(); turn; turn = this.state.inbox.shift()) {
      due = (isInline(turn) ? await this.append(turn) : turn.due !== false) || due;
    }
    return due;
  }

  /** Stores inline turns as they arrive while another task runs, because a context must not wait for a compaction. */
  async appendingMeanwhile<T>(task: Promise<T>): Promise<T> {
    let ended = false;
    const end = () => void (ended = true);
    task.then(end, end);
    while (true) {
      await condition(() => ended || this.hasInline());
      if (ended) return task;
      const turn = this.state.inbox.find(isInline)!;
      const due = await this.append(turn);
      this.state.inbox[this.state.inbox.indexOf(turn)] = { turnId: turn.turnId, due };
    }
  }

  private async append(turn: ReceivedTurn): Promise<boolean> {
    const { turnId, messages, mac, at, format, usage, receivedAt } = turn;
    this.appending();
    try {
      const appended: Earlier = await this.activities.appendTurn({
        ...this.ids,
        ...{ turnId, messages, mac, at, format, usage, receivedAt },
      });
      this.met(appended.incarnation);
      return appended.due;
    } catch (error) {
      if (isCancellation(error)) throw error;
      if (isOutage(error)) {
        // The messages exist only here, so they wait for the database as long as necessary.
        await sleep(appendAgainMs, { summary: 'before appending again' });
        return this.append(turn);
      }
      this.reject(turnId, error);
      return false;
    }
  }

  private reject(turnId: string, error: unknown): void {
    const { type, message } = failureOf(error) ?? { type: 'Unknown', message: String(error) };
    const { rejectedTurns } = this.state;
    rejectedTurns.push({
      turnId: String(turnId).slice(0, shownCharacters),
      type,
      message: message.slice(0, shownCharacters),
    });
    if (rejectedTurns.length > keptRejections) rejectedTurns.shift();
  }
}

/** The result of the activity; runs that began under an earlier version replay one without `incarnation`. */
type Earlier = { due: boolean; incarnation?: string };

/** True if a step's retries ran out because the database, or every worker, was down or busy for that long. */
export function isOutage(error: unknown): boolean {
  if (!(error instanceof ActivityFailure)) return false;
  const type = failureOf(error)?.type ?? 'Store.Unavailable';
  // A worker lacks the key of the payload: the messages wait until it has the key.
  if (type === 'Payload.Unreadable') return true;
  return type === 'Store.Unavailable' || (type === 'Store.Busy' && patched('a busy database is an outage'));
}
