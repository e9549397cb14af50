import type { CommandGroup } from '../command/command.js';

const collect = (value: string, before: string[] = []): string[] => [...before, value];

export function addServerCommands(group: CommandGroup): void {
  group
    .addLong<{ role?: string[] }>(
      {
        name: 'worker',
        summary: 'serve the task queues until SIGTERM',
        description:
          'Runs workflows, steps on PostgreSQL, model calls and backfills, or only some of these, until SIGTERM; then lets steps ' +
          'finish within the grace time. The schema must be migrated.',
        examples: [
          ['palimpsest worker', 'all roles in one process'],
          ['palimpsest worker --role model', 'model calls only, with limits of their own'],
        ],
        notes: 'Settings come from the environment and the configuration file (PALIMPSEST_CONFIG).',
      },
      async (_, flags) => (await import('../servers/serve.js')).serveWorker(flags, flags.role),
    )
    .option(
      '--role <role>',
      'workflow, database, model or backfill; repeat for several (default: all)',
      collect,
    );
  group
    .addLong<{ host?: string; port?: string }>(
      {
        name: 'api',
        summary: 'serve the HTTP API until SIGTERM',
        description:
          'Serves the HTTP API. Without tokens (PALIMPSEST_API_TOKENS) it listens on the loopback interface only and ' +
          'every caller is the tenant `default`.',
        examples: [
          ['palimpsest api --port 8080', 'on this machine'],
          ['PALIMPSEST_API_TOKENS=acme:s3cret palimpsest api --host 0.0.0.0', 'for others'],
        ],
      },
      async (_, flags) => (await import('../servers/serve.js')).serveApi(flags, flags),
    )
    .option('--host <address>', 'address to listen on (default: 127.0.0.1)')
    .option('--port <number>', 'port; 0 takes a free one (default: 7280)');
  group.add(
    {
      name: 'migrate',
      summary: 'bring the schema of the database up to date',
      description:
        'Applies what is missing, under a lock: several at once wait for one another. Refuses a database that a newer ' +
        'version has migrated.',
      examples: [
        ['palimpsest migrate', 'before the first worker, and with each new version'],
        ['palimpsest migrate --database-url postgres://palimpsest@db/palimpsest', 'somewhere else'],
      ],
    },
    async (run) => (await import('../servers/serve.js')).migrateSchema(run),
  );
}
