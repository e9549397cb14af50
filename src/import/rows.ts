/** Sessions from a query of another PostgreSQL database, read a few rows at a time. */
import pg from 'pg';
import Cursor from 'pg-cursor';
import { openDocument } from '../formats/documents.js';
import { parseExact } from '../conversation/json.js';
import type { Json } from '../conversation/message.js';
import { invalid, isFailure, PalimpsestError } from '../errors.js';
import { asFailure } from '../store/connection/transaction.js';
import { defaultLongestSession, type ImportRecord, type ReadOptions } from './records.js';
import { Remembered, type Source } from './sources.js';

/** Rows in one answer; a single row if rows are large, because an answer is in memory as a whole. */
const rowsAtOnce = 50;
const largeAnswer = 4_000_000;

/**
 * Each row is a session (columns `id` or `session_id`, and `messages`: json, jsonb or text) or a message (`message`
 * instead). In the latter case the rows of a session must be adjacent and in order. The query runs in a read-only
 * transaction.
 */
export function querySource(databaseUrl: string, query: string): Source {
  return {
    name: 'query',
    async *records(options, read) {
      const client = new pg.Client({ connectionString: databaseUrl, application_name: 'palimpsest import' });
      // The next read reports the lost connection. Without a listener the process would end.
      client.on('error', () => undefined);
      try {
        await client.connect();
        await client.query('begin read only');
        const cursor = client.query(new Cursor<Row>(query, [], { types: textOnly }));
        yield* fromRows(cursor, options, read);
      } catch (error) {
        throw unreadable(error);
      } finally {
        await client.end().catch(() => undefined);
      }
    },
  };
}

function unreadable(error: unknown): unknown {
  if (isFailure(error)) return error;
  const failure = asFailure(error);
  if (isFailure(failure, 'Store.Unavailable'))
    return new PalimpsestError(failure.type, `The database of the query is unavailable: ${failure.message}`, {
      path: '--from',
      hint: 'Check the address and repeat the import: it continues where it stopped.',
      cause: error,
    });
  if (typeof (error as { code?: unknown }).code !== 'string') return error;
  return new PalimpsestError('Input.Invalid', `The query failed: ${(error as Error).message}`, {
    path: '--query',
    hint: 'Give one statement that only reads, with the columns id and messages, or id and message.',
    cause: error,
  });
}

/** Keeps json and jsonb as text, so that nothing is lost. */
const textOnly = { getTypeParser: () => (value: unknown) => value } as unknown as pg.CustomTypesConfig;

type Row = Record<string, string | null>;

async function* fromRows(
  cursor: Cursor<Row>,
  options: ReadOptions,
  read: (bytes: number) => void,
): AsyncGenerator<ImportRecord> {
  const gathered = new Gathered(options);
  let line = 0;
  for (let atOnce = rowsAtOnce; ;) {
    const rows = await cursor.read(atOnce);
    if (rows.length === 0) break;
    let size = 0;
    for (const row of rows) {
      line++;
      const { id, body, isWhole } = columnsOf(row);
      size += body?.length ?? 0;
      if (id === null || body === null) {
        const missing = `${id === null ? 'the id' : isWhole ? 'messages' : 'message'} is null.`;
        yield { id: id ?? `row ${line}`, line, error: invalid(`Row ${line}: ${missing}`) };
      } else if (isWhole) yield opened(id, line, body, options);
      else yield* gathered.add(id, line, body);
    }
    read(size);
    atOnce = size > largeAnswer ? 1 : rowsAtOnce;
  }
  yield* gathered.end();
}

function columnsOf(row: Row): { id: string | null; body: string | null; isWhole: boolean } {
  const idColumn = ['id', 'session_id'].find((name) => name in row);
  const bodyColumn = ['messages', 'message'].find((name) => name in row);
  if (idColumn === undefined || bodyColumn === undefined)
    throw invalid(
      `The query returns the columns ${Object.keys(row).join(', ')}.`,
      '--query',
      'Return id and messages (one row per session), or id and message (one row per message, in order).',
    );
  return { id: row[idColumn] ?? null, body: row[bodyColumn] ?? null, isWhole: bodyColumn === 'messages' };
}

/** Gathers the rows of one session until the next one begins. */
class Gathered {
  private id: string | null = null;
  private line = 0;
  private size = 0;
  private messages: string[] = [];
  private readonly earlier = new Remembered<true>();

  constructor(private readonly options: ReadOptions) {}

  *add(id: string, line: number, body: string): Generator<ImportRecord> {
    if (id !== this.id) {
      yield* this.end();
      if (this.earlier.get(id))
        throw invalid(
          `Row ${line}: rows of session ${id} are not adjacent.`,
          '--query',
          'Order the rows by session and position: order by session_id, position.',
        );
      this.earlier.set(id, true);
      Object.assign(this, { id, line });
    }
    this.size += body.length;
    if (this.size <= (this.options.longestSession ?? defaultLongestSession)) this.messages.push(body);
    else this.messages = [];
  }

  *end(): Generator<ImportRecord> {
    const { id, line, messages } = this;
    if (id !== null && messages.length > 0) yield opened(id, line, `[${messages.join(',')}]`, this.options);
    else if (id !== null)
      yield {
        id,
        line,
        error: invalid(
          `Row ${line}: the session is longer than the import allows.`,
          undefined,
          'Raise --max-session-mb.',
        ),
      };
    Object.assign(this, { id: null, size: 0, messages: [] });
  }
}

/** The id of the row is the session's id, whatever id the document has. */
function opened(id: string, line: number, text: string, options: ReadOptions): ImportRecord {
  const { format, longestSession = defaultLongestSession } = options;
  try {
    if (text.length > longestSession)
      throw invalid('The session is longer than the import allows.', undefined, 'Raise --max-session-mb.');
    const value: Json = parseExact(text);
    const found = openDocument(value, 'document', format);
    return { id, place: id, line, size: text.length, format: found.format, items: found.items };
  } catch (error) {
    if (!isFailure(error)) throw error;
    const { message, type, path, hint } = error;
    return { id, line, error: new PalimpsestError(type, `Row ${line}: ${message}`, { path, hint }) };
  }
}
