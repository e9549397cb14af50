import type { CommandGroup } from '../command/command.js';
import type { PlanFlags } from '../compare/plan.js';
import type { DevFlags } from '../play/dev.js';

const collect = (value: string, before: string[] = []): string[] => [...before, value];

export function addServerCommands(group: CommandGroup): void {
  group
    .addLong<{ role?: string[] }>(
      {
        name: 'worker',
        withoutApi: true,
        summary: 'serve the task queues until SIGTERM',
        description:
          'Runs workflows, steps on PostgreSQL, model calls and backfills, or a selection of these, until SIGTERM; then lets steps ' +
          'finish within the grace time. The schema must be migrated.',
        examples: [
          ['palimpsest worker', 'all roles in one process'],
          ['palimpsest worker --role model', 'only model calls, with separate limits'],
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
        withoutApi: true,
        summary: 'serve the HTTP API until SIGTERM',
        description:
          'Serves the HTTP API. On another address than loopback, every request needs a token (`palimpsest token create`). On ' +
          'loopback, callers without a token are the tenant `default`, unless tokens are configured or required.',
        examples: [
          ['palimpsest api --port 8080', 'on this machine'],
          ['palimpsest api --host 0.0.0.0', 'for other machines, with tokens of the database'],
        ],
      },
      async (_, flags) => (await import('../servers/serve.js')).serveApi(flags, flags),
    )
    .option('--host <address>', 'address to listen on (default: 127.0.0.1)')
    .option('--port <number>', 'port; 0 picks a free one (default: 7280)');
  group
    .addLong<{ host?: string; port?: string; upstream?: string[] }>(
      {
        name: 'gateway',
        withoutApi: true,
        summary: 'serve the gateway to model providers until SIGTERM',
        description:
          'Serves an HTTP gateway in front of model providers (OpenAI chat completions and Responses, Anthropic messages). A request ' +
          'with the header x-palimpsest-session is stored, and its messages are replaced by the context; every other request passes ' +
          'unchanged. A client sets the base URL of its SDK to the gateway.',
        examples: [
          ['palimpsest gateway --upstream openai=https://api.openai.com', 'baseURL http://127.0.0.1:7281/v1'],
          [
            'palimpsest gateway --upstream openai=https://api.openai.com --upstream anthropic=https://api.anthropic.com',
            'base URLs http://127.0.0.1:7281/openai/v1 and http://127.0.0.1:7281/anthropic',
          ],
        ],
        notes: 'Settings come from the environment and the configuration file (gateway.*).',
      },
      async (_, flags) => (await import('../servers/serve.js')).serveGateway(flags, flags),
    )
    .option('--upstream <name=url>', 'a provider that may be reached; repeat for several', collect)
    .option('--host <address>', 'address to listen on (default: 127.0.0.1)')
    .option('--port <number>', 'port; 0 picks a free one (default: 7281)');
  group
    .addLong<{ session?: string; http?: string }>(
      {
        name: 'mcp',
        summary: 'serve the recovery tools over MCP',
        description:
          'Serves search_history, get_tool_response and expand_history as tools of the Model Context Protocol: on standard input and ' +
          'output, or with --http on this machine. With --session the tools read this session; else every call names one.',
        examples: [
          ['palimpsest mcp --session ticket-4711', 'as the command of an MCP client'],
          [
            'palimpsest mcp --http 7282 --url https://palimpsest.internal',
            'over HTTP, with the sessions of an API',
          ],
        ],
      },
      async (_, flags) => (await import('../servers/serve.js')).serveMcp(flags, flags),
    )
    .option('--session <id>', 'the session that the tools read (default: PALIMPSEST_MCP_SESSION)')
    .option('--http <port>', 'serve streamable HTTP on 127.0.0.1 at this port; 0 picks a free one');
  group
    .add(
      {
        name: 'migrate',
        withoutApi: true,
        summary: 'update the schema of the database',
        description:
          'Applies missing migrations under a lock, so that concurrent calls wait for each other. Refuses a database that a newer ' +
          'version has migrated. With --roles, makes the database roles palimpsest_migrator, palimpsest_app, ' +
          'palimpsest_maintenance and palimpsest_eraser and gives the schema to the first. A role can log in once ' +
          'PALIMPSEST_MIGRATOR_PASSWORD, PALIMPSEST_APP_PASSWORD, PALIMPSEST_MAINTENANCE_PASSWORD or ' +
          'PALIMPSEST_ERASER_PASSWORD has set its password.',
        examples: [
          ['palimpsest migrate', 'before the first worker, and with each new version'],
          ['palimpsest migrate --database-url postgres://palimpsest@db/palimpsest', 'another database'],
          ['palimpsest migrate --roles', 'as a superuser, before the processes use the roles'],
        ],
      },
      async (run, _, flags) => (await import('../servers/serve.js')).migrateSchema(run, flags),
    )
    .option('--roles', 'make the database roles, or update their rights');
}

const transcripts =
  'FILE is a file with one or more sessions in any format that import reads (JSON or JSONL, also as .gz), a folder, or - for standard input.';

export function addDevCommands(group: CommandGroup): void {
  group
    .addLong<DevFlags>(
      {
        name: 'dev',
        withoutApi: true,
        arguments: '[files...]',
        summary: 'start everything and play transcripts',
        description:
          'Starts PostgreSQL, Temporal, a worker and the API on this machine, plays transcripts turn by turn ' +
          '(the bundled one by default), and keeps running until Ctrl-C. Without --url and without configured ' +
          'servers, the other commands use these servers. The API takes the port PALIMPSEST_API_PORT (7280). PostgreSQL, ' +
          'Temporal and its UI take free ports, which the data folder keeps; they cannot be set.',
        examples: [
          ['palimpsest dev', 'play the bundled session, then open the Temporal UI'],
          ['palimpsest dev --no-play', 'only start everything'],
          ['palimpsest dev day.jsonl --window 32000 --once', 'play your own sessions, then exit'],
        ],
        notes: transcripts,
      },
      async (files, flags) => (await import('../play/dev.js')).dev(files, flags),
    )
    .option('--no-play', 'only start everything: play no transcript')
    .option('--once', 'exit when the sessions are done (implied by --json)')
    .option('--settle', 'wait for every compaction before the next turn')
    .option('--out <file|folder>', 'write the compacted context; to a folder, also calls and tokens')
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
    .option('--policy <json|file>', 'all other policy settings');

  group
    .addLong<PlanFlags>(
      {
        name: 'plan',
        arguments: '<files...>',
        summary: 'compare policies on recorded sessions',
        description:
          'Shows for recorded sessions where each policy would cut, what it would cost and what would stay. Changes nothing, ' +
          'calls no model and needs no server.',
        examples: [
          [
            'palimpsest plan session.jsonl --window 128000',
            'compare the default, economic, and every preset',
          ],
          [
            `palimpsest plan days.jsonl.gz --session s-17 --policy 'small={"trigger":{"tokens":20000}}' --cuts small`,
            'compare your own policy, and show the messages around each cut',
          ],
          [
            'palimpsest plan session.jsonl --prices input=3,summarizerInput=0.3 --svg sizes.svg',
            'show costs in money and draw a chart',
          ],
        ],
        notes: transcripts,
      },
      async (files, flags) => (await import('../compare/plan.js')).plan(files, flags),
    )
    .option('--preset <names>', 'presets to compare, separated by commas; none for no preset (default: all)')
    .option('--policy <[name=]json|file>', 'another policy to compare; repeat for several', collect)
    .option('--window <tokens>', "the agent model's context window, for every policy")
    .option(
      '--trigger <spec>',
      'another policy, named `flags`, with this trigger; syntax as for dev',
      collect,
    )
    .option('--keep <spec>', 'what stays verbatim under `flags`; syntax as for dev')
    .option('--prices <spec>', 'prices per million tokens: 3 (input), input=3,output=15, or JSON')
    .option('--session <id>', 'use only this session')
    .option('--cuts <policy>', 'show the messages around every cut of this policy')
    .option('--svg <file>', 'draw the context size over the turns, one line per policy (one session)');
}

export function addHealthCommands(group: CommandGroup): void {
  group
    .add<{ model: boolean }>(
      {
        name: 'doctor',
        summary: 'check servers, schema, queues and model',
        description:
          'Checks PostgreSQL and its migrations, Temporal, its search attributes and settings, whether workers poll each ' +
          'task queue, the model endpoint (one request of a few tokens), and with --url the API. Each line says ok, warn or ' +
          'fail with the next step. Exits with 1 if a check fails.',
        examples: [
          ['palimpsest doctor', 'before and after a deployment'],
          ['palimpsest doctor --no-model --json', 'as a free probe'],
        ],
      },
      async (run, _, { model }) => (await import('../health/doctor.js')).doctor(run, { model }),
    )
    .option('--no-model', 'do not call the model endpoint');
  group.add(
    {
      name: 'verify',
      arguments: '[session...]',
      summary: 'check every original and every context',
      description:
        'Replays the named sessions, or all sessions of the tenant, and checks every message and archive part against its hash; ' +
        "then reads each context and checks it by its provider's rules. Exits with 1 if a session is damaged, " +
        'and names its first mismatch, or if a context is invalid. Repairs nothing; reading a context may store reductions, ' +
        'as every read does if the context would not fit otherwise.',
      examples: [
        ['palimpsest verify', 'after a restore from a backup'],
        ['palimpsest verify ticket-4711 --json', 'one session, for a script'],
      ],
    },
    async (run, args) => (await import('../health/verify.js')).verify(run, args),
  );
}
