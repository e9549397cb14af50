import type { CompactionOutcome } from '../activities/commit.js';
import type { SessionIds } from '../src/temporal/names.js';
import type { SessionStatus, TurnSignal } from './messages.js';

export interface SessionInput extends SessionIds {
  v: 1;
  /** Milliseconds without a message after which the workflow completes; signal-with-start revives it. */
  idleAfterMs: number;
  /** Set by continue-as-new. */
  carried?: Carried;
  /** Events after which the run hands over to the next. @default 1,000 */
  maxHistoryEvents?: number;
}

export interface ReceivedTurn extends TurnSignal {
  /** Unix milliseconds. Set for those that carry their messages. */
  receivedAt?: number;
}

/** What one run hands to the next: small, versioned with the input, no text. */
export interface Carried {
  inbox: ReceivedTurn[];
  mustMeasure: boolean;
  closing: boolean;
  /** As the last measurement saw it. Absent in what an earlier version handed over. */
  paused?: boolean;
  /** Latest turn ids, oldest first: duplicates of a signal are dropped. */
  seen: string[];
  generation: number | null;
  /** Of the session that this state is about. Absent before it was met, and in what an earlier version handed over. */
  incarnation?: string;
  tokens: number | null;
  compactions: number;
  recent: CompactionOutcome[];
  lastError: SessionStatus['lastError'];
  rejectedTurns: SessionStatus['rejectedTurns'];
}

export function freshState(): Carried {
  return {
    ...{ inbox: [], mustMeasure: false, closing: false, seen: [], generation: null, tokens: null },
    ...{ compactions: 0, recent: [], lastError: null, rejectedTurns: [] },
  };
}
