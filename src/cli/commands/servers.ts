import type { CommandGroup } from '../command.js';

const collect = (value: string, before: string[] = []): string[] => [...before, value];

export function addServerCommands(group: CommandGroup): void {
  group
    .addLong<{ role?: string[] }>(
      {
        name: 'worker',
        summary: 'serve the task queues until SIGTERM',
        description:
          'Runs workflows, steps on PostgreSQL and model calls, or only some of these, until SIGTERM; then lets steps ' +
          'finish within the grace time. The schema must be migrated.',
        examples: [
          ['palimpsest worker', 'all three roles in one process'],
          ['palimpsest worker --role model', 'model calls only, with limits of their own'],
        ],
        notes: 'Settings come from the environment and the configuration file (PALIMPSEST_CONFIG).',
      },
      async (_, flags) => (await import('../serve.js')).serveWorker(flags, flags.role),
    )
    .option('--role <role>', 'workflow, database or model; repeat for several (default: all)', collect);
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
    async (run) => (await import('../serve.js')).migrateSchema(run),
  );
}
