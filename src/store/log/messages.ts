import type { Pool } from 'pg';
import type { ChatMessage, LoggedMessage } from '../../conversation/message.js';
import { parseBody } from '../../formats/native.js';
import { PalimpsestError } from '../../errors.js';
import { programName } from '../../runtime/program.js';
import type { SessionIds } from '../../contract/ids.js';
import { prepared } from '../connection/prepared.js';
import { read, type Query } from '../connection/transaction.js';
import type { Head } from '../../context/view/view.js';

/** Hash and size of one message, without its text. */
export interface Member {
  seq: number;
  /** SHA-256 of the stored body, in lower-case hex. */
  sha256: string;
  tokens: number;
  /** When the message was said, ISO 8601 in UTC; absent if unknown. */
  at?: string;
}

export interface StoredMessage extends Omit<Member, 'at'> {
  body: string;
  at: Date | null;
  /** SHA-256 of the body that was received: `sha256`, unless an erasure has replaced the body. */
  receivedSha256: string;
  /** Null unless this message was erased. */
  erasedAt: Date | null;
  erasedReason: string | null;
}

const pageMessages = 500;
const pageBytes = 4_000_000;

/** The originals of a range of the log, both ends included. Messages that the log lacks are left out. */
export async function readMessages(
  pool: Pool,
  ids: SessionIds,
  fromSeq: number,
  throughSeq: number,
): Promise<LoggedMessage[]> {
  const rows = await read<Parameters<typeof toLogged>[0]>(pool, ids, messagesStatement, [
    ids.tenant,
    ids.session,
    fromSeq,
    throughSeq,
  ]);
  return rows.map(toLogged);
}

const messagesStatement = prepared(
  'messages',
  `select seq, tokens, body, at, encode(received_sha256, 'hex') as "receivedSha256",
     erased_at as "erasedAt", erased_reason as "erasedReason" from palimpsest.messages
   where tenant_id = $1 and session_id = $2 and seq between $3 and $4 order by seq`,
);

export async function readMembers(
  pool: Pool,
  ids: SessionIds,
  fromSeq: number,
  throughSeq: number,
): Promise<Member[]> {
  const rows = await read<{ seq: number; sha256: string; tokens: number; at: Date | null }>(
    pool,
    ids,
    membersStatement,
    [ids.tenant, ids.session, fromSeq, throughSeq],
  );
  return rows.map(({ at, ...member }) => (at === null ? member : { ...member, at: at.toISOString() }));
}

const membersStatement = prepared(
  'members',
  `select seq, encode(sha256, 'hex') as sha256, tokens, at from palimpsest.messages
   where tenant_id = $1 and session_id = $2 and seq between $3 and $4 order by seq`,
);

/** Hash of every message as it was received, in order, in lower-case hex; empty if there is no such session. */
export async function readHashes(pool: Pool, ids: SessionIds): Promise<string[]> {
  const rows = await read<{ sha256: string }>(
    pool,
    ids,
    `select encode(coalesce(received_sha256, sha256), 'hex') as sha256 from palimpsest.messages
     where tenant_id = $1 and session_id = $2 order by seq`,
    [ids.tenant, ids.session],
  );
  return rows.map(({ sha256 }) => sha256);
}

/**
 * A range of the log in order, in pages of at most 500 messages and about 4 MB (a larger message is a page alone), so that
 * memory does not grow with the length of the log.
 */
export async function* messagePages(
  query: Query,
  ids: SessionIds,
  fromSeq: number,
  throughSeq: number,
): AsyncGenerator<StoredMessage[]> {
  for (let next = fromSeq; next <= throughSeq;) {
    const page = await query<StoredMessage & Record<string, unknown>>(
      // octet_length does not read compressed or out-of-line text, so the size of a page costs nothing.
      `select seq, tokens, encode(sha256, 'hex') as sha256, body, at,
         encode(coalesce(received_sha256, sha256), 'hex') as "receivedSha256",
         erased_at as "erasedAt", erased_reason as "erasedReason" from (
         select *, sum(octet_length(body)) over (order by seq) - octet_length(body) as before
         from (select seq, tokens, sha256, body, at, received_sha256, erased_at, erased_reason from palimpsest.messages
               where tenant_id = $1 and session_id = $2 and seq between $3 and $4 order by seq limit ${pageMessages}) first
       ) sized where before < ${pageBytes} order by seq`,
      [ids.tenant, ids.session, next, throughSeq],
    );
    const last = page.at(-1);
    if (!last) return;
    yield page;
    next = last.seq + 1;
  }
}

export function toLogged({
  seq,
  tokens,
  body,
  at,
  ...erasure
}: Pick<StoredMessage, 'seq' | 'tokens' | 'body' | 'at'> & Partial<StoredMessage>): LoggedMessage {
  try {
    return {
      ...{ seq, tokens, ...parseBody(body) },
      ...(at === null ? {} : { at: at.toISOString() }),
      ...erasedIn(erasure),
    };
  } catch {
    throw new PalimpsestError('Store.Corrupt', `the body of message ${seq} is not a stored message`, {
      hint: `Run \`${programName()} verify\`: it names what is damaged and must be restored from a backup.`,
      details: { seq },
    });
  }
}

function erasedIn({
  erasedAt,
  erasedReason,
  receivedSha256: sha256,
}: Partial<StoredMessage>): Pick<LoggedMessage, 'erased'> {
  if (!erasedAt || sha256 === undefined) return {};
  return {
    erased: { at: erasedAt.toISOString(), sha256, ...(erasedReason ? { reason: erasedReason } : {}) },
  };
}

export function headMessages(messages: string | null): ChatMessage[] {
  return messages === null ? [] : (JSON.parse(messages) as ChatMessage[]);
}

/** The head as it is stored; `messages` is a JSON array. */
export function toHead(messages: string | null, numbers: Omit<Head, 'messages'>): Head | null {
  return messages === null ? null : { messages: headMessages(messages), ...numbers };
}
