import { ofJob, operation } from './operation.js';
import { inQuery } from './query.js';
import {
  backfill,
  backfillEstimate,
  backfillItemList,
  backfillList,
  backfillRequest,
  estimateRequest,
  itemsRequest,
  resizeRequest,
  retryRequest,
} from '../../contract/backfills.js';

const tag = 'Backfills';
const reading = ['Store.BackfillNotFound'] as const;
const steering = [...reading, 'Temporal.Unavailable'] as const;

export const backfills = [
  operation({
    id: 'startBackfill',
    tag,
    lane: 'heavy',
    summary: 'Compact old sessions',
    description: 'A repeated request for the same job starts it once and returns its present state.',
    body: backfillRequest,
    answer: backfill,
    failures: ['Temporal.Unavailable'],
    handle: ({ client, body }) => client.startBackfill(body),
  }),
  operation({
    id: 'backfills',
    tag,
    lane: 'heavy',
    summary: "List the tenant's jobs",
    answer: backfillList,
    handle: async ({ client }) => ({ backfills: await client.backfills() }),
  }),
  operation({
    id: 'estimateBackfill',
    tag,
    lane: 'heavy',
    abandon: true,
    summary: 'Estimate the effect and cost of a backfill without running it',
    body: estimateRequest,
    answer: backfillEstimate,
    handle: ({ client, body }) => client.estimateBackfill(body),
  }),
  operation({
    id: 'backfill',
    tag,
    lane: 'heavy',
    summary: 'Get the progress of a job',
    params: ofJob,
    answer: backfill,
    failures: reading,
    handle: ({ client, params }) => client.backfill(params),
  }),
  operation({
    id: 'backfillItems',
    tag,
    lane: 'heavy',
    summary: 'List the outcome of each session',
    params: ofJob,
    query: inQuery(itemsRequest),
    answer: backfillItemList,
    failures: reading,
    handle: ({ client, params, query }) => client.backfillItems({ ...params, ...query }),
  }),
  told('pauseBackfill', 'Begin no further compaction until `resume`'),
  told('resumeBackfill', 'Continue the job'),
  told('cancelBackfill', 'Begin no further compaction; running ones continue'),
  operation({
    id: 'resizeBackfill',
    tag,
    lane: 'heavy',
    summary: 'Change the number of concurrent compactions',
    params: ofJob,
    body: resizeRequest,
    answer: backfill,
    failures: steering,
    handle: ({ client, params, body }) => client.resizeBackfill({ ...params, ...body }),
  }),
  operation({
    id: 'retryBackfill',
    tag,
    lane: 'heavy',
    summary: 'Retry failed sessions, and after a cancellation or a spend limit also skipped ones',
    params: ofJob,
    body: retryRequest,
    answer: backfill,
    failures: steering,
    handle: ({ client, params, body }) => client.retryBackfill({ ...params, ...body }),
  }),
];

function told(id: 'pauseBackfill' | 'resumeBackfill' | 'cancelBackfill', summary: string) {
  return operation({
    ...{ id, tag, summary },
    params: ofJob,
    answer: backfill,
    failures: steering,
    handle: ({ client, params }) => client[id](params),
  });
}
