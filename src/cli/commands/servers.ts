import type { CommandGroup } from '../command/command.js';
import type { PlanFlags } from '../compare/plan.js';
import type { DevFlags } from '../play/dev.js';

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

const transcripts =
  'FILE holds one session or many, in any format that import reads: JSON, JSONL, .gz of these; a folder, or - for standard input.';

export function addDevCommands(group: CommandGroup): void {
  group
    .addLong<DevFlags>(
      {
        name: 'dev',
        arguments: '[files...]',
        summary: 'bring everything up and play transcripts',
        description:
          'Brings up PostgreSQL, Temporal, a worker and the API on this machine, plays transcripts turn by turn ' +
          '(the bundled one where none is named), and stays up until Ctrl-C. Without --url and without servers of their ' +
          'own, the other commands work on what runs here.',
        examples: [
          ['palimpsest dev', 'the bundled session, then look around in the Temporal UI'],
          ['palimpsest dev day.jsonl --window 32000 --once', 'your own sessions, and leave'],
        ],
        notes: transcripts,
      },
      async (files, flags) => (await import('../play/dev.js')).dev(files, flags),
    )
    .option('--once', 'leave when the job is done (--json does so, too)')
    .option('--settle', 'let every compaction commit before the next turn')
    .option('--out <file|folder>', 'write the compacted context; into a folder, with calls and tokens')
    .option('--window <tokens>', "the agent model's context window (default: 16000 for the bundled session)")
    .option(
      '--trigger <spec>',
      'when to compact: 0.85, 6000 (tokens), tokens=6000,messages=40, or JSON; repeat for OR',
      collect,
    )
    .option(
      '--keep <spec>',
      'what stays verbatim: 0.25, 2000 (tokens), 6 (messages), messages=6,fraction=0.25, or JSON',
    )
    .option('--policy <json|file>', 'every other knob of a policy');

  group
    .addLong<PlanFlags>(
      {
        name: 'plan',
        arguments: '<files...>',
        summary: 'compare policies on recorded sessions',
        description:
          'Shows for recorded sessions where each policy would cut, what it would cost and what stays. Changes nothing, ' +
          'asks no model, needs no server.',
        examples: [
          ['palimpsest plan session.jsonl --window 128000', 'the default, economic, and every preset'],
          [
            `palimpsest plan days.jsonl.gz --session s-17 --policy 'small={"trigger":{"tokens":20000}}' --cuts small`,
            'a policy of your own, with the messages around each cut',
          ],
          ['palimpsest plan session.jsonl --prices input=3,summarizerInput=0.3 --svg sizes.svg', 'in money'],
        ],
        notes: transcripts,
      },
      async (files, flags) => (await import('../compare/plan.js')).plan(files, flags),
    )
    .option('--preset <names>', 'presets to compare, separated by commas; none: no preset (default: all)')
    .option('--policy <[name=]json|file>', 'one more policy to compare; repeat for several', collect)
    .option('--window <tokens>', "the agent model's context window, for every policy")
    .option('--trigger <spec>', 'one more policy, `flags`, that triggers so; as for dev', collect)
    .option('--keep <spec>', 'what stays verbatim under `flags`; as for dev')
    .option('--prices <spec>', 'money per million tokens: 3 (input), input=3,output=15, or JSON')
    .option('--session <id>', 'only this one of the sessions')
    .option('--cuts <policy>', 'show the messages around every cut of this policy')
    .option('--svg <file>', 'draw the context size over the turns, a line a policy (one session)');
}

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
