import type { BackfillItemState, BackfillRequest, BackfillSelection } from '../../contract/backfills.js';
import type { FormatName } from '../../conversation/format-names.js';
import { argument, type CommandGroup, numberArgument } from '../command/command.js';
import type { Run } from '../command/run.js';
import { moment, oneOf, positive, wholeNumber } from '../terminal/numbers.js';

const states = ['pending', 'running', 'compacted', 'unchanged', 'failed', 'skipped'] as const;

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
      'A backfill is a job: a workflow that goes through the sessions of the tenant that match, compacts a bounded ' +
      'number at once, behind all live traffic, and keeps the outcome of each.',
    examples: [
      ['palimpsest backfill estimate --idle-since 30d', 'what would it do and cost?'],
      ['palimpsest backfill start spring --idle-since 30d --spend-limit 20 --watch', 'start it and look on'],
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
        'Starts a job, or answers the one of this name that was started with the same request. Without conditions it ' +
        'takes every session of the tenant; with --mode due those over their own trigger.',
      examples: [
        [
          'palimpsest backfill start spring --idle-since 30d --concurrency 32 --watch',
          'sessions quiet for a month',
        ],
        [
          'palimpsest backfill start tickets --prefix ticket- --mode all --dry-run',
          'only say what it would do',
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
    .option('--concurrency <number>', 'compactions at once, 1 to 500 (default: 16)')
    .option(
      '--spend-limit <money>',
      "money for model calls at most, in the currency of the policies' prices; then it stops",
    )
    .option('--dry-run', 'estimate instead: nothing is started')
    .option('--watch', 'show progress until it has ended; Ctrl-C ends the watching, not the job');
}

function addEstimate(group: CommandGroup): void {
  const command = group.add<SelectFlags>(
    {
      name: 'estimate',
      summary: 'what a job would do, tokens and money',
      description:
        'Works out from sizes alone how many sessions match, how many would be compacted, and what the model calls ' +
        'would take. Changes nothing, asks no model.',
      examples: [
        ['palimpsest backfill estimate', 'every session over its trigger'],
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
    .option('--prefix <text>', 'only sessions whose id begins with this')
    .option('--format <name>', 'only sessions of this format')
    .option('--idle-since <moment>', 'only sessions without a turn since: 2026-01-31, 30d, 12h')
    .option('--min-tokens <tokens>', 'only sessions with at least so many context tokens')
    .option(
      '--mode <mode>',
      'due: over their own trigger; all: every one that can become smaller (default: due)',
    );
}

function requestOf(flags: SelectFlags): Omit<BackfillRequest, 'job'> {
  const { prefix, format, idleSince, minTokens, mode, concurrency, spendLimit } = flags;
  const select: BackfillSelection = {
    ...(prefix === undefined ? {} : { prefix }),
    // The server names the formats where this is none.
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
        summary: 'how far a job is',
        description:
          'Shows the sessions of a job by outcome, failures by type, tokens, model calls and money so far. With --watch ' +
          'a progress bar until it has ended; then it exits with 1 where sessions failed.',
        examples: [
          ['palimpsest backfill status spring --watch', 'look on'],
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
    .option('--watch', 'show progress until it has ended; Ctrl-C ends the watching, not the job');
}

function addList(group: CommandGroup): void {
  group.add(
    {
      name: 'list',
      summary: 'the jobs of the tenant',
      description: 'Lists every backfill of the tenant, newest first, with its state and counts.',
      examples: [
        ['palimpsest backfill list', 'all jobs'],
        [
          `palimpsest backfill list --json | jq -r 'select(.state == "running").job'`,
          'names of those that run',
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
        summary: 'the outcome of each session',
        description:
          'Lists the sessions of a job in the order of their ids, each with its outcome or typed failure.',
        examples: [
          ['palimpsest backfill items spring --state failed', 'what went wrong, and where'],
          ['palimpsest backfill items spring --all --json > outcomes.jsonl', 'the whole report'],
        ],
      },
      async (run, args, flags) => {
        const state =
          flags.state === undefined ? undefined : oneOf<BackfillItemState>(flags.state, '--state', states);
        const limit = flags.limit === undefined ? 100 : wholeNumber(flags.limit, '--limit', { least: 1 });
        const { listItems } = await import('../pages/backfill-page.js');
        const request = { job: argument(args, 0, 'job'), state, after: flags.after };
        await listItems(run, request, flags.all ? Infinity : limit);
      },
    )
    .option('--state <state>', `only sessions in this state: ${states.join(', ')}`)
    .option('--after <id>', 'begin behind this session')
    .option('--limit <number>', 'sessions at most (default: 100)')
    .option('--all', 'every session, however many');
}

/** Commands that change a running job; each prints the job as it is then. */
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
    'begin nothing more until resume',
    'Compactions in flight end; nothing more begins until `resume`.',
    [
      ['palimpsest backfill pause spring', 'over the busy hours'],
      ['palimpsest backfill resume spring', 'and on again'],
    ],
  );
  control('resume', 'go on after a pause', 'Goes on where `pause` stopped the job.', [
    ['palimpsest backfill resume spring', 'after `pause`'],
    ['palimpsest backfill status spring --watch', 'and look on'],
  ]);
  addResize(group);
  control(
    'cancel',
    'end a job',
    'Compactions in flight end; every other session is skipped. `retry` takes them up again.',
    [
      ['palimpsest backfill cancel spring', 'for good'],
      ['palimpsest backfill retry spring', 'or not'],
    ],
  );
  addRetry(group);
}

function addResize(group: CommandGroup): void {
  group.add(
    {
      name: 'resize',
      arguments: '<job> <number>',
      summary: 'another number of compactions at once',
      description: 'From now on so many compactions run at once, 1 to 500.',
      examples: [
        ['palimpsest backfill resize spring 64', 'faster'],
        ['palimpsest backfill resize spring 4', 'gently'],
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
        summary: 'the failed sessions once more',
        description:
          'Takes up the failed sessions of a job that has ended; after a cancellation or a spend limit the skipped ones ' +
          'as well. What a model has written already is not paid again.',
        examples: [
          ['palimpsest backfill retry spring --watch', 'after the endpoint was back'],
          ['palimpsest backfill retry spring --spend-limit 50', 'with more money'],
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
    .option('--spend-limit <money>', 'a new limit for the whole job, what was spent included')
    .option('--watch', 'show progress until it has ended');
}
