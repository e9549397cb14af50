/** The servers of a pair: one PostgreSQL with a database for each side, and a Temporal server for each side. */
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { defaultCacheDir } from '../../src/runtime/cache-dir.js';
import { startPostgres } from '../../src/runtime/postgres.js';
import { startTemporal } from '../../src/runtime/temporal.js';
import { searchAttributeTypes } from '../../src/temporal/names.js';
import { leashServers } from '../../test/support/leash.js';

export interface PairServers {
  dataDir: string;
  postgres: { pid: number; createDatabase(name: string): Promise<string> };
  temporals: Record<string, { pid: number; address: string }>;
  stop(): Promise<void>;
}

export async function startPairServers(
  sides: readonly string[],
  log: (line: string) => void,
): Promise<PairServers> {
  const dataDir = leashServers(mkdtempSync(path.join(os.tmpdir(), 'palimpsest-pair-')));
  // The account that PostgreSQL runs under must be able to enter it.
  chmodSync(dataDir, 0o755);
  const folders = [dataDir];
  const stops: (() => Promise<void>)[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(stops.map((each) => each()));
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  };
  try {
    // Exact times of commits, without a look that would take part in the measurement.
    const settings = { track_commit_timestamp: 'on' };
    const postgres = await startPostgres({ dataDir, log, settings });
    stops.push(() => postgres.stop());
    const temporals: PairServers['temporals'] = {};
    for (const side of sides) {
      // Not below the other folder, which may be removed before this one's server is stopped.
      const folder = leashServers(mkdtempSync(path.join(os.tmpdir(), `palimpsest-pair-${side}-`)));
      folders.push(folder);
      const server = await startTemporal({
        ...{ dataDir: folder, log, cacheDir: defaultCacheDir(), ui: false },
        searchAttributes: searchAttributeTypes,
      });
      stops.push(() => server.stop());
      temporals[side] = server;
    }
    const createDatabase = async (name: string): Promise<string> => {
      const client = new pg.Client({ connectionString: postgres.url });
      await client.connect();
      await client.query(`create database ${name}`);
      await client.end();
      return Object.assign(new URL(postgres.url), { pathname: `/${name}` }).toString();
    };
    return { dataDir, temporals, postgres: { pid: postgres.pid, createDatabase }, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}
