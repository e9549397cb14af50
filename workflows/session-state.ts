import type {
  CompactionOutcome,
  SessionStart,
  SessionStatus,
  TurnSignal,
} from '../src/contract/workflows.js';

export interface SessionInput extends SessionStart {
  /** Set by continue-as-new. */
  carried?: Carried;
}

export interface ReceivedTurn extends TurnSignal {
  /** Unix milliseconds. Set for turns that carry their messages. */
  receivedAt?: number;
}

/** The state that one run hands to the next: small, versioned with the input, no text. */
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
  /**
   * The generation at which something was last written ahead, null where that was given up; and the last message of what
   * was written, null where there was nothing to write.
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
