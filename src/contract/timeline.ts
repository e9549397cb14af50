export interface Timeline {
  session: string;
  /** Context tokens now and at most; those at which the next measurement is due, null for none. */
  tokens: number;
  budget: number;
  measureAt: number | null;
  turns: TimelineTurn[];
  compactions: TimelineCompaction[];
}

export interface TimelineTurn {
  /** From 1. */
  turn: number;
  turnId: string;
  /** When it was stored. */
  at: string;
  /** When its first message was said; null where nobody told. */
  saidAt: string | null;
  fromSeq: number;
  throughSeq: number;
  /** Of the turn's messages. */
  tokens: number;
  /** Tokens of all messages up to here: what the context would be without compactions. */
  logTokens: number;
  /** Context tokens after this turn. */
  contextTokens: number;
}

export interface TimelineCompaction {
  generation: number;
  at: string;
  /** The turn behind which it was committed; 0 before the first. */
  turn: number;
  reason: string;
  method: string;
  tokensBefore: number;
  tokensAfter: number;
  evicted: number;
  /** Chunks, and those of them that the fallback served. */
  chunks: number;
  chunksByRule: number;
  part: number | null;
}
