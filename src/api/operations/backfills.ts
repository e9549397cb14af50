import { z } from 'zod';
import type { PalimpsestClient } from '../../contract/client.js';
import { ofJob, operation } from './operation.js';
import {
  backfill,
  backfillBody,
  backfillEstimate,
  backfillItemList,
  backfillList,
  estimateBody,
  itemState,
  resizeBody,
  retryBody,
} from '../schemas/backfills.js';
import { idText, wholeInQuery } from '../schemas/component.js';

const tag = 'Backfills';
const reading = ['Store.BackfillNotFound'] as const;
const steering = [...reading, 'Temporal.Unavailable'] as const;

export const backfills = [
  operation({
    ...{ method: 'POST', path: '/v1/backfills', id: 'startBackfill', tag, lane: 'heavy' },
    summary: 'Compact old sessions',
    description: 'The same job with the same request is started once and answered as it stands.',
    body: backfillBody,
    answer: backfill,
    failures: ['Temporal.Unavailable'],
    handle: ({ client, body }) => client.startBackfill(body),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/backfills', id: 'backfills', tag, lane: 'heavy' },
    summary: 'The jobs of the tenant',
    answer: backfillList,
    handle: async ({ client }) => ({ backfills: await client.backfills() }),
  }),
  operation({
    ...{
      method: 'POST',
      path: '/v1/backfills/estimate',
      id: 'estimateBackfill',
      tag,
      lane: 'heavy',
      abandon: true,
    },
    summary: 'What a backfill would do and cost, without doing it',
    body: estimateBody,
    answer: backfillEstimate,
    handle: ({ client, body }) => client.estimateBackfill(body),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/backfills/{job}', id: 'backfill', tag, lane: 'heavy' },
    summary: 'How far a job is',
    params: ofJob,
    answer: backfill,
    failures: reading,
    handle: ({ client, params }) => client.backfill(params),
  }),
  operation({
    ...{ method: 'GET', path: '/v1/backfills/{job}/items', id: 'backfillItems', tag, lane: 'heavy' },
    summary: 'What became of each session',
    params: ofJob,
    query: z.strictObject({
      state: itemState.optional().describe('Only sessions in this state.'),
      after: idText.optional().describe('`next` of the page before.'),
      limit: wholeInQuery(1, 1_000).optional().describe('Sessions at most. Default 100.'),
    }),
    answer: backfillItemList,
    failures: reading,
    handle: ({ client, params, query }) => client.backfillItems({ ...params, ...query }),
  }),
  told('pause', 'pauseBackfill', 'Begin no further compaction until `resume`'),
  told('resume', 'resumeBackfill', 'Go on'),
  told('cancel', 'cancelBackfill', 'Begin nothing more; what is in flight ends as it ends'),
  operation({
    ...{ method: 'POST', path: '/v1/backfills/{job}/resize', id: 'resizeBackfill', tag, lane: 'heavy' },
    summary: 'Another number of compactions at once, from now on',
    params: ofJob,
    body: resizeBody,
    answer: backfill,
    failures: steering,
    handle: ({ client, params, body }) => client.resizeBackfill({ ...params, ...body }),
  }),
  operation({
    ...{ method: 'POST', path: '/v1/backfills/{job}/retry', id: 'retryBackfill', tag, lane: 'heavy' },
    summary: 'What failed once more; after a cancellation or a spend limit also what was skipped',
    params: ofJob,
    body: retryBody,
    answer: backfill,
    failures: steering,
    handle: ({ client, params, body }) => client.retryBackfill({ ...params, ...body }),
  }),
];

function told(
  word: 'pause' | 'resume' | 'cancel',
  id: keyof Pick<PalimpsestClient, 'pauseBackfill' | 'resumeBackfill' | 'cancelBackfill'>,
  summary: string,
) {
  return operation({
    ...{ method: 'POST', path: `/v1/backfills/{job}/${word}`, id, tag, summary },
    params: ofJob,
    answer: backfill,
    failures: steering,
    handle: ({ client, params }) => client[id](params),
  });
}
