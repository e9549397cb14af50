import { readConfig } from '../config.js';
import { invalid } from '../errors.js';
import { migrate } from '../store/migrate.js';
import { runWorkerProcess } from '../worker-process.js';
import { onInterrupt } from './interrupt.js';
import { plural } from './report.js';

/** `palimpsest worker`: serves until SIGTERM, then lets steps finish within the grace time. */
export async function serve(): Promise<void> {
  const config = readConfig();
  const orchestrates = config.worker.roles.every((role) => role === 'workflow');
  const databaseUrl = orchestrates ? undefined : required(config.databaseUrl, 'DATABASE_URL');
  const address = required(config.temporal.address, 'TEMPORAL_ADDRESS');
  const { signal } = onInterrupt();
  await runWorkerProcess(config, { databaseUrl, temporal: { ...config.temporal, address }, signal });
}

/** `palimpsest migrate` */
export async function migrateSchema(): Promise<void> {
  const applied = await migrate(required(readConfig().databaseUrl, 'DATABASE_URL'));
  console.log(applied === 0 ? 'The schema is up to date.' : `${plural(applied, 'migration')} applied.`);
}

function required(value: string | undefined, variable: string): string {
  if (value !== undefined) return value;
  throw invalid(
    `${variable} is not set.`,
    variable,
    'This command needs running servers; `palimpsest dev` brings its own.',
  );
}
