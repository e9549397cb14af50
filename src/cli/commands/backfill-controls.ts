import { argument, type CommandGroup, numberArgument } from '../command/command.js';
import { positive } from '../terminal/numbers.js';

/** What changes a running job; each answers what it is then. */
export function addBackfillControls(group: CommandGroup): void {
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
