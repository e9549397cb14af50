import {
  type BackfillItemState,
  type BackfillRequest,
  type BackfillSelection,
  itemState,
} from '../../contract/backfills.js';
import type { FormatName } from '../../conversation/format-names.js';
import { argument, type CommandGroup, numberArgument } from '../command/command.js';
import type { Run } from '../command/run.js';
import { moment, oneOf, positive, wholeNumber } from '../terminal/numbers.js';

interface SelectFlags {
  prefix?: string;
  format?: string;
  idleSince?: string;
  minTokens?: string;
  mode?: string;
  concurrency?: string;
  spendLimit?: string;
}

export function addBackfillCommands(parent: CommandGroup): void {
  const group = parent.below({
    name: 'backfill',
    summary: 'compact many old sessions in the background',
    description:
      'A backfill is a job: a workflow that compacts the matching sessions of the tenant, a limited ' +
      'number at once and after all live work, and stores the outcome of each.',
    examples: [
      ['palimpsest backfill estimate --idle-since 30d', 'estimate its work and its cost'],
      [
        'palimpsest backfill start spring --idle-since 30d --spend-limit 20 --watch',
        'start it and show its progress',
      ],
    ],
  });
  addStart(group);
  addEstimate(group);
  addStatus(group);
  addList(group);
  addItems(group);
  addBackfillControls(group);
}

function addStart(group: CommandGroup): void {
  const command = group.add<SelectFlags & { watch?: boolean; dryRun?: boolean }>(
    {
      name: 'start',
      arguments: '<job>',
      summary: 'start a job',
      description:
        'Starts a job, or returns the job of this name that was started with the same request. Without conditions it ' +
        'selects every session of the tenant; with --mode due, it compacts those over their own trigger.',
      examples: [
        [
          'palimpsest backfill start spring --idle-since 30d --concurrency 32 --watch',
          'sessions without a turn for a month',
        ],
        [
          'palimpsest backfill start tickets --prefix ticket- --mode all --dry-run',
          'only show what it would do',
        ],
      ],
    },
    async (run, args, flags) => {
      const request = { job: argument(args, 0, 'job'), ...requestOf(flags) };
      if (flags.dryRun) return estimate(run, flags);
      const client = await run.client();
      const job = await client.startBackfill(request);
      const { showJob, watchJob } = await import('../pages/backfill-page.js');
      return flags.watch ? watchJob(run, job.job) : showJob(run, job);
    },
  );
  selection(command)
    .option('--concurrency <number>', 'maximum concurrent compactions, 1 to 500 (default: 16)')
    .option(
      '--spend-limit <money>',
      "maximum cost of the model calls, in the currency of the policies' prices; then the job stops",
    )
    .option('--dry-run', 'only estimate, start nothing')
    .option('--watch', 'show progress until the job ends; Ctrl-C stops watching, not the job');
}

function addEstimate(group: CommandGroup): void {
  const command = group.add<SelectFlags>(
    {
      name: 'estimate',
      summary: 'estimate the sessions, tokens and cost of a job',
      description:
        'Estimates from sizes alone how many sessions match, how many would be compacted, and what the model calls ' +
        'would cost. Changes nothing and calls no model.',
      examples: [
        ['palimpsest backfill estimate', 'every session over its threshold'],
        ['palimpsest backfill estimate --min-tokens 20000 --mode all --json', 'every large session'],
      ],
    },
    (run, _, flags) => estimate(run, flags),
  );
  selection(command);
}

type Declared = ReturnType<CommandGroup['add']>;

function selection(command: Declared): Declared {
  return command
    .option('--prefix <text>', 'only sessions whose id starts with this text')
    .option('--format <name>', 'only sessions of this format')
    .option('--idle-since <moment>', 'only sessions without a turn since this time: 2026-01-31, 30d, 12h')
    .option('--min-tokens <tokens>', 'only sessions with at least this many context tokens')
    .option(
      '--mode <mode>',
      'due: over their own trigger; all: every session that can become smaller (default: due)',
    );
}

function requestOf(flags: SelectFlags): Omit<BackfillRequest, 'job'> {
  const { prefix, format, idleSince, minTokens, mode, concurrency, spendLimit } = flags;
  const select: BackfillSelection = {
    ...(prefix === undefined ? {} : { prefix }),
    // The server rejects an unknown format and names the known ones.
    ...(format === undefined ? {} : { format: format as FormatName }),
    ...(idleSince === undefined ? {} : { idleSince: moment(idleSince, '--idle-since') }),
    ...(minTokens === undefined ? {} : { minTokens: wholeNumber(minTokens, '--min-tokens') }),
  };
  return {
    ...(Object.keys(select).length === 0 ? {} : { select }),
    ...(mode === undefined ? {} : { mode: oneOf(mode, '--mode', ['due', 'all'] as const) }),
    ...(concurrency === undefined
      ? {}
      : { concurrency: wholeNumber(concurrency, '--concurrency', { least: 1, most: 500 }) }),
    ...(spendLimit === undefined ? {} : { spendLimit: positive(spendLimit, '--spend-limit') }),
  };
}

async function estimate(run: Run, flags: SelectFlags): Promise<void> {
  const request = requestOf(flags);
  const estimated = await (await run.client()).estimateBackfill(request);
  if (run.json) return run.out.value(estimated);
  await (await import('../pages/backfill-page.js')).showEstimate(run.out, estimated);
}

function addStatus(group: CommandGroup): void {
  group
    .add<{ watch?: boolean }>(
      {
        name: 'status',
        arguments: '<job>',
        summary: 'show the progress of a job',
        description:
          'Shows the sessions of a job by outcome, its failures by type, and its tokens, model calls and cost so far. With --watch, ' +
          'shows a progress bar until the job ends, and exits with 1 if sessions failed.',
        examples: [
          ['palimpsest backfill status spring --watch', 'watch the progress'],
          ['palimpsest backfill status spring --json | jq .counts', 'for a script'],
        ],
      },
      async (run, args, { watch }) => {
        const job = argument(args, 0, 'job');
        const { showJob, watchJob } = await import('../pages/backfill-page.js');
        if (watch) return watchJob(run, job);
        return showJob(run, await (await run.client()).backfill({ job }));
      },
    )
    .option('--watch', 'show progress until the job ends; Ctrl-C stops watching, not the job');
}

function addList(group: CommandGroup): void {
  group.add(
    {
      name: 'list',
      summary: 'list the jobs of the tenant',
      description: 'Lists every backfill of the tenant, newest first, with its state and counts.',
      examples: [
        ['palimpsest backfill list', 'all jobs'],
        [
          `palimpsest backfill list --json | jq -r 'select(.state == "running").job'`,
          'names of the running jobs',
        ],
      ],
    },
    async (run) => {
      const jobs = await (await run.client()).backfills();
      if (!run.json) return (await import('../pages/backfill-page.js')).showJobs(run.out, jobs);
      for (const job of jobs) await run.out.value(job);
    },
  );
}

function addItems(group: CommandGroup): void {
  group
    .add<{ state?: string; after?: string; limit?: string; all?: boolean }>(
      {
        name: 'items',
        arguments: '<job>',
        summary: 'list the outcome of each session',
        description: 'Lists the sessions of a job, ordered by id, with their outcomes or typed failures.',
        examples: [
          ['palimpsest backfill items spring --state failed', 'the failed sessions with their failures'],
          ['palimpsest backfill items spring --all --json > outcomes.jsonl', 'the whole report'],
        ],
      },
      async (run, args, flags) => {
        const state =
          flags.state === undefined
            ? undefined
            : oneOf<BackfillItemState>(flags.state, '--state', itemState.options);
        const limit = flags.limit === undefined ? 100 : wholeNumber(flags.limit, '--limit', { least: 1 });
        const { listItems } = await import('../pages/backfill-page.js');
        const request = { job: argument(args, 0, 'job'), state, after: flags.after };
        await listItems(run, request, flags.all ? Infinity : limit);
      },
    )
    .option('--state <state>', `only sessions in this state: ${itemState.options.join(', ')}`)
    .option('--after <id>', 'start after this session')
    .option('--limit <number>', 'maximum number of sessions (default: 100)')
    .option('--all', 'list every session');
}

/** Adds commands that change a running job; each prints the job afterwards. */
function addBackfillControls(group: CommandGroup): void {
  const control = (
    name: 'pause' | 'resume' | 'cancel',
    summary: string,
    description: string,
    examples: [string, string][],
  ) =>
    group.add({ name, arguments: '<job>', summary, description, examples }, async (run, args) => {
      const client = await run.client();
      const job = argument(args, 0, 'job');
      const calls = {
        pause: () => client.pauseBackfill({ job }),
        resume: () => client.resumeBackfill({ job }),
        cancel: () => client.cancelBackfill({ job }),
      };
      return (await import('../pages/backfill-page.js')).showJob(run, await calls[name]());
    });
  control(
    'pause',
    'start no compaction until resume',
    'Running compactions finish; no other starts until `resume`.',
    [
      ['palimpsest backfill pause spring', 'during busy hours'],
      ['palimpsest backfill resume spring', 'continue the job'],
    ],
  );
  control('resume', 'continue after a pause', 'Continues a job that `pause` stopped.', [
    ['palimpsest backfill resume spring', 'after `pause`'],
    ['palimpsest backfill status spring --watch', 'watch the progress'],
  ]);
  addResize(group);
  control(
    'cancel',
    'end a job',
    'Running compactions finish; every other session is skipped. `retry` queues the skipped sessions again.',
    [
      ['palimpsest backfill cancel spring', 'end the job'],
      ['palimpsest backfill retry spring', 'queue the skipped sessions again'],
    ],
  );
  addRetry(group);
}

function addResize(group: CommandGroup): void {
  group.add(
    {
      name: 'resize',
      arguments: '<job> <number>',
      summary: 'change the number of concurrent compactions',
      description: 'Sets the maximum number of concurrent compactions, 1 to 500.',
      examples: [
        ['palimpsest backfill resize spring 64', 'speed the job up'],
        ['palimpsest backfill resize spring 4', 'slow it down'],
      ],
    },
    async (run, args) => {
      const concurrency = numberArgument(args, 1, 'number', { least: 1, most: 500 });
      const job = await (await run.client()).resizeBackfill({ job: argument(args, 0, 'job'), concurrency });
      return (await import('../pages/backfill-page.js')).showJob(run, job);
    },
  );
}

function addRetry(group: CommandGroup): void {
  group
    .add<{ spendLimit?: string; watch?: boolean }>(
      {
        name: 'retry',
        arguments: '<job>',
        summary: 'retry the failed sessions',
        description:
          'Retries the failed sessions of a job that has ended; after a cancellation or a spend limit, also the skipped ' +
          'ones. Answers that a model already gave are not paid for again.',
        examples: [
          ['palimpsest backfill retry spring --watch', 'after an outage of the endpoint'],
          ['palimpsest backfill retry spring --spend-limit 50', 'with a higher limit'],
        ],
      },
      async (run, args, flags) => {
        const job = argument(args, 0, 'job');
        const spendLimit =
          flags.spendLimit === undefined ? undefined : positive(flags.spendLimit, '--spend-limit');
        const retried = await (await run.client()).retryBackfill({ job, spendLimit });
        const { showJob, watchJob } = await import('../pages/backfill-page.js');
        return flags.watch ? watchJob(run, job) : showJob(run, retried);
      },
    )
    .option('--spend-limit <money>', 'a new limit for the whole job, including the amount already spent')
    .option('--watch', 'show progress until the job ends');
}
