import path from 'node:path';
import type { Config } from '../../config/config.js';
import { PalimpsestError, type FailureType } from '../../errors.js';
import { openHome, type Home } from '../../runtime/home.js';
import { findProcess, isRunning } from '../../runtime/process.js';
import { startPostgres, type RunningPostgres } from '../../runtime/postgres.js';
import { describeTemporalSource } from '../../runtime/temporal-binary.js';
import { startTemporal, type RunningTemporal } from '../../runtime/temporal.js';
import type { Database } from '../../process/servers.js';
import { passwordsFor, type RolePasswords, urlsFor } from '../../store/connection/roles.js';
import type { TemporalSettings } from '../../temporal/connection.js';
import { searchAttributeTypes } from '../../temporal/names.js';
import { seconds } from '../terminal/numbers.js';

export interface Servers {
  database: Database;
  /** The connection for migrations, and the roles that they make in the embedded server. */
  owner: { url: string; roles?: RolePasswords };
  temporal: TemporalSettings;
  /** Web UI of the embedded Temporal server; null for an external server. */
  uiUrl: string | null;
  /** Calls `gone` once if an embedded server ends unexpectedly. */
  watch(gone: (error: PalimpsestError) => void): void;
  /** Stops the embedded servers, unless another process also uses them. */
  stop(): Promise<void>;
}

/** Milliseconds between two checks of the embedded servers. */
const lookEveryMs = 1_000;

/**
 * Opens PostgreSQL and Temporal: the servers that the environment names, otherwise embedded servers in the data folder. `say` gets
 * a line for each, and lines about slow steps. Named servers are not contacted here; the first connection shows whether they
 * answer.
 */
export async function openServers(config: Config, say: (line: string) => void): Promise<Servers> {
  const { databaseUrl, temporal } = config;
  const home =
    databaseUrl !== undefined && temporal.address !== undefined ? null : await openHome(config.dataDir);
  const beside = home?.others() ?? [];
  if (beside.length > 0) {
    say(
      `Beside      other processes of this folder (pid ${beside.join(', ')}): their workers share the sessions`,
    );
    say(
      '            A worker with other settings, such as no OPENAI_API_KEY, summarizes its part by them: start',
    );
    say('            each with the same settings, or this one with another PALIMPSEST_DATA');
  }
  const opened: Opened = {};
  let looking: NodeJS.Timeout | undefined;
  const stop = async (): Promise<void> => {
    clearInterval(looking);
    await home?.leave(async () => {
      await Promise.all([opened.temporal?.stop(), opened.postgres?.stop()]);
    });
  };
  try {
    const openings = await Promise.allSettled([
      openPostgres(config, home, opened, say),
      openTemporal(config, home, opened, say),
    ]);
    for (const opening of openings) if (opening.status === 'rejected') throw opening.reason;
    return {
      ...databaseOf(config, opened.postgres?.url ?? ''),
      temporal: { ...temporal, address: temporal.address ?? opened.temporal?.address ?? '' },
      uiUrl: opened.temporal?.uiUrl ?? null,
      watch: (gone) => {
        looking = watchServers(opened, config.dataDir, gone);
      },
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

function databaseOf(
  { databaseUrl, maintenanceUrl, eraserUrl, directUrl }: Config,
  embedded: string,
): Pick<Servers, 'database' | 'owner'> {
  if (databaseUrl !== undefined)
    return {
      database: { databaseUrl, maintenanceUrl, eraserUrl, directUrl },
      owner: { url: databaseUrl },
    };
  return { database: urlsFor(embedded), owner: { url: embedded, roles: passwordsFor(embedded) } };
}

interface Opened {
  postgres?: RunningPostgres;
  temporal?: RunningTemporal;
}

/** Without its server every call would wait or fail separately, so one clear error ends the job. */
function watchServers(
  { postgres, temporal }: Opened,
  dataDir: string,
  gone: (error: PalimpsestError) => void,
): NodeJS.Timeout {
  const watched: [name: string, type: FailureType, log: string, pid: number | undefined][] = [
    ['PostgreSQL', 'Store.Unavailable', 'postgres.log', postgres?.pid],
    ['Temporal server', 'Temporal.Unavailable', 'temporal.log', temporal?.pid],
  ];
  const live = watched.map(([name, type, log, pid]) => ({ name, type, log, pid, id: findProcess(pid ?? 0) }));
  const timer = setInterval(() => {
    const dead = live.find(({ pid, id }) => pid !== undefined && (id === null || !isRunning(id)));
    if (dead === undefined) return;
    clearInterval(timer);
    const hint = `Start again: the new run resumes where this one stopped. The log of the server: ${path.join(dataDir, dead.log)}`;
    gone(new PalimpsestError(dead.type, `The embedded ${dead.name} has ended.`, { hint }));
  }, lookEveryMs);
  return timer.unref();
}

async function openPostgres(
  config: Config,
  home: Home | null,
  opened: Opened,
  say: (line: string) => void,
): Promise<void> {
  if (config.databaseUrl !== undefined || home === null) {
    say(`PostgreSQL  ${withoutPassword(config.databaseUrl ?? '')} (DATABASE_URL)`);
    return;
  }
  const started = Date.now();
  opened.postgres = await startPostgres({ dataDir: home.dir, log: say });
  const { url, started: fresh } = opened.postgres;
  say(
    `PostgreSQL  ${withoutPassword(url)} (embedded, ${fresh ? `up in ${seconds(Date.now() - started)}` : 'already running'})`,
  );
}

async function openTemporal(
  config: Config,
  home: Home | null,
  opened: Opened,
  say: (line: string) => void,
): Promise<void> {
  const { address, namespace } = config.temporal;
  if (address !== undefined || home === null) {
    say(`Temporal    ${address}, namespace ${namespace} (TEMPORAL_ADDRESS)`);
    return;
  }
  const started = Date.now();
  const server = await startTemporal({
    dataDir: home.dir,
    cacheDir: config.cacheDir,
    log: say,
    searchAttributes: searchAttributeTypes,
  });
  opened.temporal = server;
  const how = server.started ? `, up in ${seconds(Date.now() - started)}` : '';
  say(`Temporal    ${server.address} (${describeTemporalSource(server.source)}${how})`);
  if (server.uiUrl !== null) say(`Temporal UI ${server.uiUrl}`);
}

function withoutPassword(text: string): string {
  if (!URL.canParse(text)) return text;
  const url = new URL(text);
  return `${url.hostname}:${url.port || '5432'}${url.pathname}`;
}
