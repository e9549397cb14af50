import type { DeploymentPolicy } from '../policy/layers.js';
import type { FormatName } from '../conversation/format-names.js';
import type { PolicyInput } from '../policy/schema.js';
import type { ReadOptions } from './records.js';

export interface ImportOptions extends ReadOptions {
  tenant: string;
  /** Before each session's own id. */
  prefix?: string;
  /** Of new sessions. */
  policy?: PolicyInput;
  deployment?: DeploymentPolicy;
  /** Sessions at once. @default 4 */
  concurrency?: number;
  /** Read and check everything, store nothing. */
  dryRun?: boolean;
  /** Store sessions that another id brought before. */
  keepDuplicates?: boolean;
  /** Leave the sessions open: more turns are to come, and unanswered calls may still be answered. */
  keepOpen?: boolean;
  signal?: AbortSignal;
  /** The import goes no faster than this. */
  onReport?: (report: ImportReport) => void | Promise<void>;
  /** Bytes read since the last call. */
  onRead?: (bytes: number) => void;
}

/**
 * `stored`: new. `extended`: its beginning was there. `present`: all of it was. `duplicate`: the same messages came under
 * another id before, in this run. `refused`: set aside, see `error`.
 */
export type ImportStatus = 'stored' | 'extended' | 'present' | 'duplicate' | 'refused';
export type ImportTotals = Record<ImportStatus, number> & { messages: number; added: number };

/** Stores old sessions. What is stored already is recognised by its hashes, so an import can be run again at any time. */
export interface ImportReport {
  source: string;
  /** Line (of a query: row) at which the session begins. */
  line: number;
  session: string;
  status: ImportStatus;
  format: FormatName | null;
  /** Messages of the session / stored now. */
  messages: number;
  added: number;
  /** The id under which the same came before. */
  duplicateOf?: string;
  /** Its newest user message is larger than its budget: no context can be made of it without `reduce.newestUserMessage`. */
  newestUser?: { tokens: number; budget: number };
  error?: { type: string; message: string; path?: string; hint?: string };
}
