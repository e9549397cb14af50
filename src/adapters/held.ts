/** Reads the context of a session at any size, for the adapters that keep it at hand. */
import type { PalimpsestClient } from '../contract/client.js';
import { orSmallest } from '../contract/smallest-context.js';
import type { Synced, SyncRequest } from '../contract/sync.js';
import { isFailure } from '../errors.js';

/** A `sync` without its messages. */
export type HeldRequest = Omit<SyncRequest, 'messages' | 'budget'> & { session: string };

type SyncClient = Pick<PalimpsestClient, 'sync'>;

/** The context of a session, the smallest one if none fits its budget; null if there is no such session. */
export async function heldContext<Message, System>(
  client: SyncClient,
  request: HeldRequest,
): Promise<Synced<Message, System> | null> {
  try {
    return await orSmallest((shape) => client.sync<Message, System>({ ...request, ...shape, messages: [] }));
  } catch (error) {
    if (isFailure(error, 'Store.SessionNotFound')) return null;
    throw error;
  }
}

/** Other processes have added to the session since it was read. */
export const isEdited = (error: unknown): boolean => isFailure(error, 'Store.ListEdited');
