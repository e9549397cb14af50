import type { FormatName } from '../conversation/format-names.js';

export interface Forked {
  session: string;
  /** Messages taken over, and the generation the fork begins with. */
  messages: number;
  generation: number;
  /** True when this very fork was made before; nothing was written now. */
  repeated: boolean;
}

export interface ForkRequest {
  /** Last message that the fork takes over. */
  throughSeq: number;
  /** Id of the new session. */
  to: string;
}

/** One session of a list, as its row has it: nothing of it is worked out, so that a page costs one statement. */
export interface ListedSession {
  session: string;
  format: FormatName;
  messages: number;
  turns: number;
  /** Context tokens and their budget. */
  tokens: number;
  budget: number;
  generation: number;
  exhausted: boolean;
  paused: boolean;
  lastError: { type: string; message: string } | null;
  closedAt: string | null;
  createdAt: string;
  updatedAt: string;
}
