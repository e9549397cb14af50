import { NativeConnection } from '@temporalio/worker';
import {
  checkTemporalSettings,
  connectionOptions,
  connectTimeoutMs,
  type TemporalSettings,
  unreachable,
} from '../temporal/connection.js';

/** Opens the worker's own connection. Throws `Temporal.Unavailable`. */
export async function connectWorker(settings: TemporalSettings): Promise<NativeConnection> {
  checkTemporalSettings(settings);
  const options = connectionOptions(settings);
  try {
    return await NativeConnection.connect(options);
  } catch (error) {
    throw unreachable(settings, error);
  }
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
