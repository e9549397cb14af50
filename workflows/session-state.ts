import type { CompactionOutcome } from '../src/contract/compactions.js';
import type { SessionStart, SessionStatus, TurnSignal } from '../src/contract/workflows.js';

export interface SessionInput extends SessionStart {
  /** Set by continue-as-new. */
  carried?: Carried;
}

export interface ReceivedTurn extends TurnSignal {
  /** Unix milliseconds. Set for turns that carry their messages. */
  receivedAt?: number;
}

/** The state that one run hands to the next: small, versioned with the input, without texts. */
export interface Carried {
  inbox: ReceivedTurn[];
  mustMeasure: boolean;
  closing: boolean;
  /** The value of the last measurement. Absent in states handed over by an earlier version. */
  paused?: boolean;
  /** The latest turn ids, oldest first. They identify repeated signals, which are dropped. */
  seen: string[];
  generation: number | null;
  /**
   * Incarnation of the session that this state describes. Absent until it is known, and in states handed over by an earlier
   * version.
   */
  incarnation?: string;
  tokens: number | null;
  /**
   * `generation` is the one at which something was last written ahead, or null if that was cancelled. `throughSeq` is the last
   * message of what was written, or null if there was nothing to write.
   */
  ahead?: { generation: number | null; throughSeq: number | null };
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
