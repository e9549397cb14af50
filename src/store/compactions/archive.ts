import { createHash } from 'node:crypto';
import { and, asc, eq, getTableColumns } from 'drizzle-orm';
import type { Pool } from 'pg';
import type { LoggedMessage } from '../../conversation/message.js';
import { invalid, PalimpsestError } from '../../errors.js';
import { messagePages, toLogged, type StoredMessage } from '../log/messages.js';
import { archiveParts } from '../schema/compactions.js';
import type { SessionIds } from '../../contract/ids.js';
import { prepared } from '../connection/prepared.js';
import { reading, readWith, type Query, type Transaction } from '../connection/transaction.js';
import type { ArchivePart } from '../../contract/archive.js';

/** Lists the archive parts of the session, oldest first. */
export async function listArchiveParts(pool: Pool, ids: SessionIds): Promise<ArchivePart[]> {
  const { tenantId, sessionId, ...columns } = getTableColumns(archiveParts);
  return readWith(pool, ids, (db) =>
    db
      .select(columns)
      .from(archiveParts)
      .where(and(eq(tenantId, ids.tenant), eq(sessionId, ids.session)))
      .orderBy(asc(archiveParts.part)),
  );
}

/**
 * Reads the originals of one part. Checks each against its hash, and all against the hash of the part. Throws
 * `Store.Corrupt`.
 */
export async function readArchivePart(pool: Pool, ids: SessionIds, part: number): Promise<LoggedMessage[]> {
  const parts = await listArchiveParts(pool, ids);
  const found = parts.find((candidate) => candidate.part === part);
  if (!found) throw noSuchPart(ids, part, parts);
  const messages: LoggedMessage[] = [];
  for await (const message of verifiedPart(reading(pool, ids), ids, found)) messages.push(message);
  return messages;
}

export function noSuchPart(
  { session }: SessionIds,
  part: number,
  parts: readonly { part: number }[],
): PalimpsestError {
  return invalid(
    `session ${session} has no archive part ${part}`,
    'part',
    parts.length === 0
      ? 'Nothing has been archived yet.'
      : `The session has ${parts.length}; the newest is ${parts.at(-1)?.part}.`,
  );
}

/**
 * Streams one part. Throws `Store.Corrupt` at a message that differs from the archived one, or at the end of the part if its
 * hash does not match.
 */
export async function* verifiedPart(
  query: Query,
  ids: SessionIds,
  { part, fromSeq, throughSeq, sha256 }: ArchivePart,
): AsyncGenerator<LoggedMessage> {
  const hash = createHash('sha256');
  for await (const message of verifiedRange(query, ids, fromSeq, throughSeq)) {
    hash.update(message.receivedSha256, 'hex');
    yield toLogged(message);
  }
  if (hash.digest('hex') !== sha256) {
    throw corrupt(ids, `archive part ${part} differs from what was archived: its hash does not match`, {
      part,
    });
  }
}

/** Streams a range of the log without gaps, and checks each body against its hash. Throws `Store.Corrupt`. */
export async function* verifiedRange(
  query: Query,
  ids: SessionIds,
  fromSeq: number,
  throughSeq: number,
): AsyncGenerator<StoredMessage> {
  let expected = fromSeq;
  for await (const page of messagePages(query, ids, fromSeq, throughSeq)) {
    for (const message of page) {
      if (message.seq !== expected) throw corrupt(ids, `message ${expected} is missing`, { seq: expected });
      if (createHash('sha256').update(message.body).digest('hex') !== message.sha256) {
        throw corrupt(ids, `message ${message.seq} differs from what was stored: its hash does not match`, {
          seq: message.seq,
        });
      }
      expected++;
      yield message;
    }
  }
  if (expected <= throughSeq) throw corrupt(ids, `message ${expected} is missing`, { seq: expected });
}

/** Writes the archive part of a compaction from the log itself. */
export async function insertArchivePart(
  { query }: Transaction,
  ids: SessionIds,
  {
    part,
    generation,
    fromSeq,
    throughSeq,
  }: { part: number; generation: number; fromSeq: number; throughSeq: number },
): Promise<void> {
  await query(archiveStatement, [ids.tenant, ids.session, part, generation, fromSeq, throughSeq]);
}

const archiveStatement = prepared(
  'archive',
  `insert into palimpsest.archive_parts
     (tenant_id, session_id, part, generation, from_seq, through_seq, messages, tokens, bytes, sha256)
   select $1, $2, $3, $4, $5, $6, count(*), sum(tokens), sum(octet_length(body)),
     sha256(string_agg(coalesce(received_sha256, sha256), ''::bytea order by seq))
   from palimpsest.messages where tenant_id = $1 and session_id = $2 and seq between $5 and $6`,
);

function corrupt(ids: SessionIds, what: string, details: { part?: number; seq?: number }): PalimpsestError {
  return new PalimpsestError('Store.Corrupt', `session ${ids.session} of ${ids.tenant}: ${what}`, {
    hint: 'Something other than Palimpsest changed the database, or its disk is failing. Restore the database from a backup.',
    details: { tenant: ids.tenant, session: ids.session, ...details },
  });
}
