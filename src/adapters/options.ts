/** Options that the adapters of all frameworks share, and the recovery tools as frameworks run them. */
import type { PalimpsestClient } from '../contract/client.js';
import { callRecoveryTool, type RecoveryToolName } from '../contract/recovery-tools.js';
import type { SyncRequest } from '../contract/sync.js';
import { isFailure } from '../errors.js';

/** The methods that an adapter calls: those of `Palimpsest` or `HttpPalimpsest`. */
export type AdapterClient = Pick<PalimpsestClient, 'sync' | 'toolResponse' | 'search' | 'expand'>;

export interface AdapterOptions {
  client: AdapterClient;
  /** Policy of a new session, for instance `{ model: 'gpt-4o' }`. An existing session keeps its policy. */
  policy?: SyncRequest['policy'];
  /**
   * What to do if the framework's messages lack messages of the session, or have others in their place: after an edit, a
   * regenerated answer, or a return to an earlier checkpoint. `fork`: go on in a fork that ends where both part; the session
   * keeps its messages. `append`: append what the session does not have. `refuse`: fail with `Store.ListEdited`.
   * @default 'fork'
   */
  onEdit?: SyncRequest['onEdit'];
  /**
   * Whether the framework has only the new messages, and the session is its memory: the session's context is put before them.
   * @default false
   */
  memory?: boolean;
}

/** The request of a `sync`. A session of an agent without the recovery tools has a context that does not name them. */
export function syncRequest(
  { policy, onEdit = 'fork' }: AdapterOptions,
  hasRecoveryTools: boolean,
): Pick<SyncRequest, 'policy' | 'onEdit'> {
  if (hasRecoveryTools) return { onEdit, ...(policy === undefined ? {} : { policy }) };
  return { onEdit, policy: { recovery: 'none', ...policy } };
}

/** The context of a session; nothing if the session is new. */
export async function remembered<Message>(client: AdapterClient, session: string): Promise<Message[]> {
  try {
    const { context } = await client.sync<Message>({ session, messages: [] });
    return context.messages;
  } catch (error) {
    if (isFailure(error, 'Store.SessionNotFound')) return [];
    throw error;
  }
}

/** Answers a call of a recovery tool in the session, or in the fork that continues it. */
export async function recovered(
  client: AdapterClient,
  session: string,
  name: RecoveryToolName,
  input: unknown,
): Promise<string> {
  const { session: inUse } = await client.sync({ session, messages: [] });
  return callRecoveryTool(client, inUse, name, input);
}
