import { PalimpsestError } from '../errors.js';
import type { PolicyInput } from '../policy/schema.js';
import type { TokenizerName } from '../tokens/counter.js';
import type { sessions } from './schema.js';
import { checkId } from './text.js';

export interface SessionIds {
  tenant: string;
  session: string;
}

type Columns = typeof sessions.$inferSelect;

/** A session as stored; `policy` as it was given, without defaults. */
export type SessionRow = Omit<Columns, 'tenantId' | 'sessionId' | 'policy'> &
  SessionIds & { policy: PolicyInput };

/** Refuses ids that Postgres would refuse or change: a read with such an id could find another session. */
export function checkIds({ tenant, session }: SessionIds): void {
  checkId(tenant, 'tenant');
  checkId(session, 'session');
}

export function notFound({ tenant, session }: SessionIds): never {
  throw new PalimpsestError('Store.SessionNotFound', `tenant ${tenant} has no session ${session}`, {
    hint: 'A session exists from its first appended turn on.',
  });
}

/** The row as the driver or `row_to_json` gives it. */
export interface SessionRecord {
  tenant_id: string;
  session_id: string;
  policy: string;
  policy_version: number;
  tokenizer: TokenizerName;
  budget: number;
  next_seq: number;
  system_through_seq: number;
  generation: number;
  through_seq: number;
  live_tokens: number;
  live_messages: number;
  measure_at_tokens: number | null;
  measure_at_messages: number | null;
  exhausted: SessionRow['exhausted'];
  failures: number;
  retry_at: string | Date | null;
  last_error: SessionRow['lastError'];
  closed_at: string | Date | null;
  created_at: string | Date;
  updated_at: string | Date;
}

export function toSession(record: SessionRecord): SessionRow {
  const moment = (at: string | Date | null) => (at === null ? null : new Date(at));
  return {
    tenant: record.tenant_id,
    session: record.session_id,
    policy: JSON.parse(record.policy),
    policyVersion: record.policy_version,
    tokenizer: record.tokenizer,
    budget: record.budget,
    nextSeq: record.next_seq,
    systemThroughSeq: record.system_through_seq,
    generation: record.generation,
    throughSeq: record.through_seq,
    liveTokens: record.live_tokens,
    liveMessages: record.live_messages,
    measureAtTokens: record.measure_at_tokens,
    measureAtMessages: record.measure_at_messages,
    exhausted: record.exhausted,
    failures: record.failures,
    retryAt: moment(record.retry_at),
    lastError: record.last_error,
    closedAt: moment(record.closed_at),
    createdAt: new Date(record.created_at),
    updatedAt: new Date(record.updated_at),
  };
}
