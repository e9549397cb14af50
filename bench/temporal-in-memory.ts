import path from 'node:path';
import { Connection } from '@temporalio/client';
import { defaultCacheDir } from '../src/runtime/cache-dir.js';
import { findTemporal } from '../src/runtime/temporal-binary.js';
import { commandOf, endProcess, startDaemon } from '../src/runtime/process.js';
import { freePort } from '../src/runtime/ports.js';
import type { Servers } from './servers.js';

/** A second Temporal server with the settings of the first, but in memory, to measure the cost of the database file. */
export async function startTemporalInMemory({
  dataDir,
  temporalPid,
  alsoStop,
}: Servers): Promise<{ address: string; pid: number; stop(): Promise<void> }> {
  const port = await freePort();
  const { path: command } = await findTemporal({ cacheDir: defaultCacheDir(), log: () => {} });
  const { id } = await startDaemon({
    command,
    args: [...flagsWithoutFile(commandOf(temporalPid)), '--port', String(port)],
    logFile: path.join(dataDir, 'temporal-in-memory.log'),
  });
  const stop = () => endProcess(id, [{ signal: 'SIGKILL', ms: 5_000 }]);
  alsoStop(stop);
  const address = `127.0.0.1:${port}`;
  try {
    await untilItAnswers(address);
  } catch (error) {
    await stop();
    throw error;
  }
  return { address, pid: id.pid, stop };
}

function flagsWithoutFile(commandLine: string): string[] {
  const given = commandLine.slice(commandLine.indexOf(' server start-dev '));
  const flags = given.replaceAll(/ --(?:db-filename|sqlite-pragma|port) .*?(?= --|\s*$)/g, '');
  return flags.trim().split(/\s+/);
}

async function untilItAnswers(address: string): Promise<void> {
  for (const until = Date.now() + 20_000; ;) {
    try {
      const connection = await Connection.connect({ address, connectTimeout: 1_000 });
      await connection.workflowService
        .describeNamespace({ namespace: 'default' })
        .finally(() => connection.close());
      return;
    } catch (error) {
      if (Date.now() > until) throw error;
    }
  }
}
