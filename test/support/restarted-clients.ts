/** Clients as processes have them one after the other, over the library and over HTTP, and the log of their sessions. */
import type { PalimpsestClient } from '../../src/contract/client.js';
import type { Json } from '../../src/conversation/message.js';
import { HttpPalimpsest } from '../../src/http-client/client.js';
import { Palimpsest } from '../../src/library/palimpsest.js';
import { type ApiStack, startApiStack } from './api.js';
import { storedItems } from './sessions.js';

export interface RestartedClients extends ApiStack {
  /** A new client of the stack's tenant: by turns over HTTP and over the library. */
  connect(): Promise<PalimpsestClient>;
  /** The items that the session was given, in order. */
  replayed(session: string): Promise<Json[]>;
}

export async function startRestartedClients(): Promise<RestartedClients> {
  const served = await startApiStack();
  const { palimpsest, databaseUrl, temporal, queuePrefix } = served.stack;
  const connected: PalimpsestClient[] = [];
  return {
    ...served,
    async connect() {
      const client =
        connected.length % 2 === 0
          ? await HttpPalimpsest.connect({ url: served.api.address, token: served.token })
          : await Palimpsest.connect({ databaseUrl, temporal, queuePrefix, tenant: queuePrefix });
      connected.push(client);
      return client;
    },
    replayed: (session) => storedItems(palimpsest, session),
    async stop() {
      await Promise.all(connected.map((client) => client.close()));
      await served.stop();
    },
  };
}
