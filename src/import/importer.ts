/** Stores old sessions. What is stored already is recognised by its hashes, so an import can be run again at any time. */
import { createHash } from 'node:crypto';
import type { Pool } from 'pg';
import type { FormatName } from '../conversation/formats/format.js';
import type { ChatMessage } from '../conversation/message.js';
import { readNative } from '../conversation/native.js';
import { cutTurns } from '../conversation/turns.js';
import { serializeMessage } from '../conversation/validate.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import type { PolicyInput } from '../policy/schema.js';
import type { DeploymentPolicy } from '../policy-sources.js';
import { readHashes } from '../store/messages.js';
import { closeSession } from '../store/sessions.js';
import { appendTurn } from '../store/turns.js';
import { encodeIdPart } from '../temporal/names.js';
import type { ImportRecord, ReadOptions, ReadSession } from './records.js';
import type { Source } from './sources.js';

/**
 * `stored`: new. `extended`: its beginning was there. `present`: all of it was. `duplicate`: the same messages came under
 * another id before, in this run. `refused`: set aside, see `error`.
 */
export type ImportStatus = 'stored' | 'extended' | 'present' | 'duplicate' | 'refused';

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
  error?: { type: string; message: string; path?: string; hint?: string };
}

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
  onReport?: (report: ImportReport) => void;
  /** Bytes read since the last call. */
  onRead?: (bytes: number) => void;
}

export type ImportTotals = Record<ImportStatus, number> & { messages: number; added: number };

/**
 * Every session of every source: memory holds `concurrency` of them at once. What is malformed is reported and set aside;
 * what the database refuses for being away is thrown (`Store.Unavailable`), and the same import again goes on from there.
 */
export async function importSessions(
  pool: Pool,
  sources: Iterable<Source>,
  options: ImportOptions,
): Promise<ImportTotals> {
  const totals: ImportTotals = {
    stored: 0,
    extended: 0,
    present: 0,
    duplicate: 0,
    refused: 0,
    messages: 0,
    added: 0,
  };
  const seen = new Map<string, string>();
  const report = (one: ImportReport): void => {
    totals[one.status]++;
    totals.messages += one.messages;
    totals.added += one.added;
    options.onReport?.(one);
  };
  const running = new Set<Promise<void>>();
  let failure: unknown;
  for (const source of sources) {
    for await (const record of source.records(options, options.onRead ?? (() => undefined))) {
      options.signal?.throwIfAborted();
      while (running.size >= (options.concurrency ?? 4)) await Promise.race(running);
      if (failure !== undefined) throw failure;
      const task = importOne(pool, record, seen, options)
        .then((one) => report({ source: source.name, line: record.line, ...one }))
        .catch((error: unknown) => void (failure ??= error))
        .finally(() => running.delete(task));
      running.add(task);
    }
  }
  await Promise.all(running);
  if (failure !== undefined) throw failure;
  return totals;
}

type Outcome = Omit<ImportReport, 'source' | 'line'>;

async function importOne(
  pool: Pool,
  record: ImportRecord,
  seen: Map<string, string>,
  options: ImportOptions,
): Promise<Outcome> {
  const session = `${options.prefix ?? ''}${record.id}`;
  const format = 'error' in record ? null : record.format;
  try {
    if ('error' in record) throw record.error;
    encodeIdPart(session, 'session');
    return await storeSession(pool, session, record, seen, options);
  } catch (error) {
    if (!isFailure(error) || error.type === 'Store.Unavailable') throw error;
    const { type, message, path, hint } = error;
    return {
      session,
      status: 'refused',
      format,
      messages: 0,
      added: 0,
      error: { type, message, path, hint },
    };
  }
}

async function storeSession(
  pool: Pool,
  session: string,
  { format, items }: ReadSession,
  seen: Map<string, string>,
  options: ImportOptions,
): Promise<Outcome> {
  const messages = readNative(items, format);
  if (messages.length === 0) throw invalid('The session holds no message.', 'messages');
  const hashes = messages.map((message) => serializeMessage(message).sha256);
  const outcome = { session, format, messages: messages.length, added: 0 };
  const content = createHash('sha256').update(hashes.join()).digest('base64');
  const earlier = seen.get(content);
  if (earlier !== undefined && earlier !== session && !options.keepDuplicates)
    return { ...outcome, status: 'duplicate', duplicateOf: earlier };
  seen.set(content, session);
  const ids = { tenant: options.tenant, session };
  for (;;) {
    const stored = await readHashes(pool, ids);
    assertSameBeginning(session, stored, hashes);
    const added = messages.length - Math.min(stored.length, messages.length);
    const status = added === 0 ? 'present' : stored.length === 0 ? 'stored' : 'extended';
    if (options.dryRun || added === 0) return { ...outcome, status, added };
    try {
      await appendRest(pool, ids, messages, hashes, stored.length, format, options);
      if (!options.keepOpen) await closeSession(pool, ids);
      return { ...outcome, status, added };
    } catch (error) {
      // Somebody else appended to it meanwhile: compare again.
      if (!isFailure(error, 'Store.StaleAppend')) throw error;
    }
  }
}

function assertSameBeginning(session: string, stored: readonly string[], hashes: readonly string[]): void {
  const differs = stored.findIndex((hash, index) => index < hashes.length && hash !== hashes[index]);
  if (differs < 0) return;
  throw new PalimpsestError(
    'Input.Invalid',
    `session ${session} is stored with another message ${differs + 1}`,
    {
      path: `messages[${differs}]`,
      hint: 'Import it under another id: --prefix puts something before all ids.',
    },
  );
}

/** In the turns in which its platform would have appended it, from the first message on that is not stored. */
async function appendRest(
  pool: Pool,
  ids: { tenant: string; session: string },
  messages: readonly ChatMessage[],
  hashes: readonly string[],
  stored: number,
  format: FormatName,
  { policy, deployment, signal }: ImportOptions,
): Promise<void> {
  for (const { from, to } of cutTurns(messages)) {
    if (to <= stored) continue;
    signal?.throwIfAborted();
    const start = Math.max(from, stored);
    const content = createHash('sha256').update(hashes.slice(start, to).join()).digest('hex').slice(0, 24);
    await appendTurn(pool, {
      ...ids,
      turnId: `import-${start + 1}-${content}`,
      logged: messages.slice(start, to),
      format,
      expectedSeq: start,
      ...(policy === undefined ? {} : { policy }),
      ...(deployment === undefined ? {} : { deployment }),
    });
  }
}
