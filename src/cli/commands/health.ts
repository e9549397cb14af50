import type { CommandGroup } from '../command/command.js';

export function addHealthCommands(group: CommandGroup): void {
  group
    .add<{ model: boolean }>(
      {
        name: 'doctor',
        summary: 'is everything reachable, migrated and served?',
        description:
          'Checks PostgreSQL and its migrations, Temporal, its search attributes and settings, whether workers poll each ' +
          'task queue, the model endpoint (one request of a few tokens), and with --url the API. Each line is ok, warn or ' +
          'fail with the next step. Exit code 1 where something fails.',
        examples: [
          ['palimpsest doctor', 'before and after a deployment'],
          ['palimpsest doctor --no-model --json', 'as a probe that costs nothing'],
        ],
      },
      async (run, _, { model }) => (await import('../health/doctor.js')).doctor(run, { model }),
    )
    .option('--no-model', 'do not ask the model endpoint');
  group.add(
    {
      name: 'verify',
      arguments: '[session...]',
      summary: 'check every original and every context',
      description:
        'Replays the named sessions, or all of the tenant, and checks every message and archive part against its hash; ' +
        "then reads the context of each and checks it by its provider's rules. Exit code 1 where something is damaged, " +
        'with the first mismatch of each session, or invalid. Repairs nothing; reading a context may store reductions, ' +
        'as every read does that would not fit otherwise.',
      examples: [
        ['palimpsest verify', 'after a restore from a backup'],
        ['palimpsest verify ticket-4711 --json', 'one session, for a script'],
      ],
    },
    async (run, args) => (await import('../health/verify.js')).verify(run, args),
  );
}
