import { failure, invalidAt, talked, type Case } from './case.js';

const noJob = { type: 'Store.BackfillNotFound' };

export const backfills: Case[] = [
  {
    name: 'a backfill is estimated, started once, and reports every session',
    async run(client) {
      for (const name of ['old/1', 'old/2', 'old/3']) await talked(client, name);
      const request = { job: 'all of the old', select: { prefix: 'old/' }, mode: 'all' as const };
      const estimate = await client.estimateBackfill({ select: request.select, mode: request.mode });
      await client.startBackfill(request);
      const again = await client.startBackfill(request);
      const done = await ended(client, request.job);
      const page = await client.backfillItems({ job: request.job, limit: 2 });
      return [
        estimate,
        again.job,
        { ...done, cost: null },
        page,
        await client.backfillItems({ job: request.job, limit: 2, after: page.next ?? '' }),
        await client.backfillItems({ job: request.job, state: 'failed' }),
        (await client.backfills()).map(({ job }) => job),
      ];
    },
    expected: [
      { selected: 3 },
      'all of the old',
      { state: 'completed', counts: { selected: 3, compacted: 3, failed: 0 }, selecting: false },
      { items: [{ session: 'old/1', state: 'compacted' }, { session: 'old/2' }], next: 'old/2' },
      { items: [{ session: 'old/3' }], next: null },
      { items: [], next: null },
      ['all of the old'],
    ],
  },
  {
    name: 'an invalid backfill is refused with the path',
    async run(client) {
      return [
        await failure(client.startBackfill({ job: '' })),
        await failure(client.startBackfill({ job: 'x', concurrency: 501 })),
        await failure(client.startBackfill({ job: 'x', select: { idleSince: 'yesterday' } })),
        await failure(client.estimateBackfill({ mode: 'some' as 'all' })),
        await failure(client.backfill({ job: 'nobody' })),
        await failure(client.backfillItems({ job: 'nobody' })),
        await failure(client.pauseBackfill({ job: 'nobody' })),
        await failure(client.resumeBackfill({ job: 'nobody' })),
        await failure(client.cancelBackfill({ job: 'nobody' })),
        await failure(client.resizeBackfill({ job: 'nobody', concurrency: 2 })),
        await failure(client.retryBackfill({ job: 'nobody' })),
      ];
    },
    expected: [
      invalidAt('job'),
      invalidAt('concurrency'),
      invalidAt('select.idleSince'),
      invalidAt('mode'),
      ...Array.from({ length: 7 }, () => noJob),
    ],
  },
];

async function ended(
  client: Parameters<Case['run']>[0],
  job: string,
): Promise<Awaited<ReturnType<typeof client.backfill>>> {
  for (;;) {
    const report = await client.backfill({ job });
    if (report.endedAt !== null) return report;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
