import type { DeploymentPolicy } from '../policy/layers.js';
import type { FormatName } from '../conversation/format-names.js';
import type { PolicyInput } from '../policy/schema.js';
import type { ReadOptions } from './records.js';

export interface ImportOptions extends ReadOptions {
  tenant: string;
  /** Prefix for each session's own id. */
  prefix?: string;
  /** Policy of new sessions. */
  policy?: PolicyInput;
  deployment?: DeploymentPolicy;
  /** Concurrent sessions. @default 4 */
  concurrency?: number;
  /** Read and check everything, but store nothing. */
  dryRun?: boolean;
  /** Also store sessions whose messages already came under another id. */
  keepDuplicates?: boolean;
  /** Leave the sessions open: more turns will come, and unanswered calls may still be answered. */
  keepOpen?: boolean;
  signal?: AbortSignal;
  /** Called for each session. The import waits for it. */
  onReport?: (report: ImportReport) => void | Promise<void>;
  /** Called with the number of bytes read since the last call. */
  onRead?: (bytes: number) => void;
}

/**
 * `stored`: the session is new. `extended`: its beginning was stored already. `present`: all its messages were stored already.
 * `duplicate`: the same messages came under another id earlier in this run. `refused`: the session was skipped, see `error`.
 */
export type ImportStatus = 'stored' | 'extended' | 'present' | 'duplicate' | 'refused';
export type ImportTotals = Record<ImportStatus, number> & { messages: number; added: number };

/**
 * The report on one session. Hashes identify messages that are stored already, so that an import can be repeated at
 * any time.
 */
export interface ImportReport {
  source: string;
  /** Line (of a query: row) where the session begins. */
  line: number;
  session: string;
  status: ImportStatus;
  format: FormatName | null;
  /** Number of messages of the session, and number of messages that this run stored. */
  messages: number;
  added: number;
  /** The id under which the same messages came before. */
  duplicateOf?: string;
  /**
   * Set if the newest user message is larger than the budget: no context can be made without
   * `reduce.newestUserMessage`.
   */
  newestUser?: { tokens: number; budget: number };
  error?: { type: string; message: string; path?: string; hint?: string };
}
