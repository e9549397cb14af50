import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@temporalio/client';
import { NativeConnection } from '@temporalio/worker';
import {
  checkTemporalSettings,
  connectionOptions,
  connectTimeoutMs,
  type TemporalSettings,
  unreachable,
} from '../temporal/connection.js';
import { dataConverterOf } from '../temporal/payload-codec.js';

/** Connects a worker. Throws `Temporal.Unavailable` within seconds if the server does not answer for the namespace. */
export async function connectWorker(settings: TemporalSettings): Promise<NativeConnection> {
  checkTemporalSettings(settings);
  const connection = await openConnection(settings);
  try {
    await reachNamespace(connection, settings);
  } catch (error) {
    await connection.close();
    throw error;
  }
  return connection;
}

/** The SDK sets no limit to the time in which a connection opens. */
async function openConnection(settings: TemporalSettings): Promise<NativeConnection> {
  const opening = NativeConnection.connect(connectionOptions(settings));
  const late = new AbortController();
  const tooLate = sleep(connectTimeoutMs, undefined, { signal: late.signal }).then(() => {
    opening.then((connection) => connection.close()).catch(() => undefined);
    throw new Error(`it did not answer within ${connectTimeoutMs / 1_000} s`);
  });
  try {
    return await Promise.race([opening, tooLate]);
  } catch (error) {
    throw unreachable(settings, error);
  } finally {
    late.abort();
  }
}

export function clientOf(connection: NativeConnection, settings: TemporalSettings): Client {
  const { namespace = 'default' } = settings;
  return new Client({ connection, namespace, dataConverter: dataConverterOf(settings) });
}

/** Throws `Temporal.Unavailable` if the server does not answer for the namespace within seconds. */
export async function reachNamespace(
  connection: NativeConnection,
  settings: TemporalSettings,
): Promise<void> {
  const { namespace = 'default' } = settings;
  try {
    await connection.withDeadline(Date.now() + connectTimeoutMs, () =>
      connection.workflowService.describeNamespace({ namespace }),
    );
  } catch (error) {
    throw unreachable(settings, error);
  }
}
