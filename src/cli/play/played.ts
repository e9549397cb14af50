import type { CompactionOutcome } from '../../contract/workflows.js';
import type { ChatMessage } from '../../conversation/message.js';
import type { MessageWarning } from '../../conversation/validate.js';

/** What happens while a session is played, for whoever shows it. */
export interface PlayEvents {
  /** Some turns are stored already, from an earlier start. */
  resumed?(storedTurns: number, turns: number): void;
  /** A turn was appended and its context read. */
  turn?(turn: PlayedTurn): void;
  compacted?(outcome: CompactionOutcome): void;
  /** The session waits for a compaction before it goes on; told again and again while it does. */
  waiting?(generation: number, seconds: number): void;
  /** Something a person should know; the session goes on. */
  notice?(text: string): void;
}

export interface PlayedTurn {
  /** From 1. */
  turn: number;
  turns: number;
  /** Messages of the log. */
  messages: number;
  window: number;
  budget: number;
  /** Tokens of the context that a model would be sent now; null where it cannot fit. */
  tokens: number | null;
  /** Messages that stand in the context in a shortened form. */
  shortened: number;
  /** Generation being prepared; null when none is. */
  compacting: number | null;
}

export interface PlayedSession {
  session: string;
  messages: number;
  window: number;
  budget: number;
  /** Of the final context. */
  tokens: number;
  compactions: CompactionOutcome[];
  replay: { messages: number; identical: boolean };
  context: ChatMessage[];
  warnings: MessageWarning[];
}
