import { ActivityFailure, condition, isCancellation, patched, sleep } from '@temporalio/workflow';
import { failureOf } from '../src/temporal/failures.js';
import type { SessionIds } from '../src/contract/ids.js';
import { isInline } from './messages.js';
import type { TurnSignal } from '../src/contract/workflows.js';
import { databaseActivities } from './options.js';
import type { Carried, ReceivedTurn } from './session-state.js';

const seenTurns = 512;
const keptRejections = 20;

/** Characters of a refused turn's id and reason that are kept: what a client sent may be of any length. */
const shownCharacters = 500;
const appendAgainMs = 2_000;

/** The turns that were signalled and not yet looked at; stores those that carry their messages. */
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
    // The store recognises a repeated inline turn; a repeated reference may say `due` anew.
    if (seen.includes(turn.turnId) && turn.due === false) return;
    if (!isInline(turn)) seen.push(turn.turnId);
    if (seen.length > seenTurns) seen.shift();
    inbox.push(isInline(turn) ? { ...turn, receivedAt: Date.now() } : turn);
  }

  hasInline(): boolean {
    return this.state.inbox.some(isInline);
  }

  /** Turns that only refer to stored messages count as looked at. */
  forgetReferences(): void {
    this.state.inbox = this.state.inbox.filter(isInline);
  }

  /** Looks at every turn; answers whether one of them may be due. */
  async drain(): Promise<boolean> {
    let due = false;
    for (let turn = this.state.inbox.shift(); turn; turn = this.state.inbox.shift()) {
      due = (isInline(turn) ? await this.append(turn) : turn.due !== false) || due;
    }
    return due;
  }

  /** Stores inline turns as they come while something else goes on: a context must not wait for a compaction. */
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
    const { turnId, messages, at, format, usage, receivedAt } = turn;
    this.appending();
    try {
      const appended: Earlier = await this.activities.appendTurn({
        ...this.ids,
        ...{ turnId, messages, at, format, usage, receivedAt },
      });
      this.met(appended.incarnation);
      return appended.due;
    } catch (error) {
      if (isCancellation(error)) throw error;
      if (isOutage(error)) {
        // The messages are nowhere but here: they wait for the database as long as it takes.
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

/** The answer of the activity; runs that began under an earlier version replay one without `incarnation`. */
type Earlier = { due: boolean; incarnation?: string };

/** True for a step whose retries ran out: the database, or every worker, was away or busy for that long. */
export function isOutage(error: unknown): boolean {
  if (!(error instanceof ActivityFailure)) return false;
  const type = failureOf(error)?.type ?? 'Store.Unavailable';
  return type === 'Store.Unavailable' || (type === 'Store.Busy' && patched('a busy database is an outage'));
}
