import type { ContextFormat } from '../../conversation/format-names.js';
import { argument, type CommandGroup } from '../command/command.js';
import { duration, wholeNumber } from '../terminal/numbers.js';

export function addSessionCommands(group: CommandGroup): void {
  addSessions(group);
  addStatus(group);
  addContext(group);
}

interface SessionsFlags {
  prefix?: string;
  failed?: boolean;
  after?: string;
  limit?: string;
  all?: boolean;
}

function addSessions(group: CommandGroup): void {
  group
    .add<SessionsFlags>(
      {
        name: 'sessions',
        summary: 'list the sessions of the tenant',
        description:
          'Lists sessions, ordered by id, with messages, context tokens, budget, generation and ' + 'state.',
        examples: [
          ['palimpsest sessions --prefix ticket- --limit 20', 'the first twenty with this prefix'],
          [
            'palimpsest sessions --failed --all --json | jq -r .session',
            'ids of all sessions whose latest attempt failed',
          ],
        ],
        notes:
          'state: failed (status says why) · full (no compaction until the context has grown) · closed · ok',
      },
      async (run, _, flags) => {
        const limit = flags.limit === undefined ? 100 : wholeNumber(flags.limit, '--limit', { least: 1 });
        const { listSessions } = await import('../pages/session-list.js');
        const { prefix, failed, after } = flags;
        await listSessions(run, { prefix, failed, after }, flags.all ? Infinity : limit);
      },
    )
    .option('--prefix <text>', 'only sessions whose id starts with this text')
    .option('--failed', 'only sessions whose latest attempt failed')
    .option('--after <id>', 'start after this id')
    .option('--limit <number>', 'maximum number of sessions (default: 100)')
    .option('--all', 'list every session');
}

function addStatus(group: CommandGroup): void {
  group
    .add<{ knobs?: boolean }>(
      {
        name: 'status',
        arguments: '<session>',
        summary: 'show the size, history and policy of a session',
        description:
          'Shows what its workflow is doing, how full the context is, when the next compaction is due, the latest ' +
          'failure and its remedy, recent compactions, and the policy settings that were given.',
        examples: [
          ['palimpsest status ticket-4711', 'the session on one screen'],
          ['palimpsest status ticket-4711 --knobs', 'every effective policy setting with its source'],
          [`palimpsest status ticket-4711 --json | jq '.tokens / .budget'`, 'how full it is'],
        ],
      },
      async (run, args, { knobs }) => {
        const session = argument(args, 0, 'session');
        const status = await (await run.client()).status({ session });
        if (run.json) return run.out.value(status);
        const { showStatus } = await import('../pages/session-page.js');
        await showStatus(run.out, status, knobs === true);
      },
    )
    .option('--knobs', 'show every policy setting, not only those that were given');
}

interface ContextFlags {
  format?: string;
  budget?: string;
  wait?: string;
}

function addContext(group: CommandGroup): void {
  group
    .add<ContextFlags>(
      {
        name: 'context',
        arguments: '<session>',
        summary: 'show the context that the model is sent now',
        description:
          'Reads the context: as one line per message (origin, tokens, first words), or with ' +
          '--json as the messages themselves. Reading may store reductions if the context would not fit otherwise.',
        examples: [
          ['palimpsest context ticket-4711', 'its content'],
          ['palimpsest context ticket-4711 --json | jq .messages', 'the messages, ready to send'],
          [
            'palimpsest context ticket-4711 --budget 8000 --format anthropic --wait 20s --json',
            "smaller, in another provider's format, after a compaction that is in flight",
          ],
        ],
      },
      async (run, args, flags) => {
        const session = argument(args, 0, 'session');
        const { format, budget, wait } = flags;
        const context = await (
          await run.client()
        ).context({
          session,
          // The client rejects an unknown format and names the known ones.
          ...(format === undefined ? {} : { format: format as ContextFormat }),
          ...(budget === undefined ? {} : { budget: wholeNumber(budget, '--budget', { least: 1 }) }),
          ...(wait === undefined ? {} : { waitMs: duration(wait, '--wait') }),
        });
        if (run.json) return run.out.value(context);
        const { showContext } = await import('../pages/context-page.js');
        await showContext(run.out, context);
      },
    )
    .option('--format <name>', "format of the messages (default: the session's own)")
    .option('--budget <tokens>', 'maximum context tokens (default: the budget of the policy)')
    .option('--wait <time>', 'maximum wait for a running compaction: 20, 500ms, 2m (default: 0)');
}

export function addTimelineCommand(group: CommandGroup): void {
  group
    .add<{ svg?: string }>(
      {
        name: 'timeline',
        arguments: '<session>',
        summary: "show the context's size over the turns",
        description:
          'Draws context tokens over the turns, with the budget, the size at which the session is measured next, and each ' +
          'compaction (before → after, reason, method), in the terminal or as a chart. Reads PostgreSQL only.',
        examples: [
          ['palimpsest timeline ticket-4711', 'in the terminal'],
          ['palimpsest timeline ticket-4711 --svg sizes.svg', 'as a file, readable on light and dark pages'],
        ],
      },
      async (run, args, { svg }) =>
        (await import('../pages/timeline.js')).showTimeline(run, argument(args, 0, 'session'), svg),
    )
    .option('--svg <file>', 'write a chart');
}
