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
          'Lists sessions in the order of their ids: messages, context tokens against their budget, generation, and ' +
          'what is wrong with them.',
        examples: [
          ['palimpsest sessions --prefix ticket- --limit 20', 'the first twenty whose id begins so'],
          [
            'palimpsest sessions --failed --all --json | jq -r .session',
            'ids of all whose latest attempt failed',
          ],
        ],
        notes:
          'state: failed (status says why) · full (cannot become smaller until something compactable arrives) · closed · ok',
      },
      async (run, _, flags) => {
        const limit = flags.limit === undefined ? 100 : wholeNumber(flags.limit, '--limit', { least: 1 });
        const { listSessions } = await import('../pages/session-list.js');
        const { prefix, failed, after } = flags;
        await listSessions(run, { prefix, failed, after }, flags.all ? Infinity : limit);
      },
    )
    .option('--prefix <text>', 'only ids that begin with this')
    .option('--failed', 'only sessions whose latest attempt failed')
    .option('--after <id>', 'begin behind this id')
    .option('--limit <number>', 'sessions at most (default: 100)')
    .option('--all', 'every session, however many');
}

function addStatus(group: CommandGroup): void {
  group
    .add<{ knobs?: boolean }>(
      {
        name: 'status',
        arguments: '<session>',
        summary: 'what a session weighs, its history, its policy',
        description:
          'Shows what its workflow is doing, how full the context is, when the next compaction is due, the last ' +
          'failure with what to do about it, recent compactions, and the knobs of the policy that somebody has set.',
        examples: [
          ['palimpsest status ticket-4711', 'on one screen'],
          ['palimpsest status ticket-4711 --knobs', 'every effective knob of the policy with its source'],
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
    .option('--knobs', 'every knob of the policy, not only those that somebody has set');
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
        summary: 'what the model is sent now',
        description:
          'Reads the context: for people one line a message (where it comes from, its tokens, how it begins), with ' +
          '--json the messages themselves. Reading may store reductions, as every read does that would not fit otherwise.',
        examples: [
          ['palimpsest context ticket-4711', 'what is in it'],
          ['palimpsest context ticket-4711 --json | jq .messages', 'ready to be sent'],
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
          // The client names the formats where this is none.
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
    .option('--budget <tokens>', 'context tokens at most (default: what the policy allows)')
    .option('--wait <time>', 'wait at most so long for a compaction in flight: 20, 500ms, 2m (default: 0)');
}

export function addTimelineCommand(group: CommandGroup): void {
  group
    .add<{ svg?: string }>(
      {
        name: 'timeline',
        arguments: '<session>',
        summary: "the context's size over the turns",
        description:
          'Draws context tokens over the turns with budget, threshold and each compaction (before → after, reason, ' +
          'method), in the terminal or as a chart. Reads PostgreSQL only.',
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
