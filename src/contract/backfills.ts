/** Requests and reports of backfills. Plain JSON, which is stored, sent over HTTP and shown by the CLI. */
import { z } from 'zod';
import { formatNames } from '../conversation/format-names.js';
import { component, failure, id, moment } from './schema.js';

export type BackfillState = Backfill['state'];
export type BackfillItemState = z.infer<typeof itemState>;
export const itemState = z.enum(['pending', 'running', 'compacted', 'unchanged', 'failed', 'skipped']);

export type BackfillSelection = z.infer<typeof selection>;
const selection = component(
  'BackfillSelection',
  z.strictObject({
    prefix: id().optional().describe('Prefix of the session ids.'),
    format: z.enum(formatNames).optional().describe('Format of the sessions.'),
    idleSince: z.iso
      .datetime({ offset: true, error: 'is not an ISO 8601 time with a time zone' })
      .optional()
      .describe(
        'Only sessions without a turn since this time, ISO 8601 with a time zone, such as 2026-01-31T00:00:00Z.',
      ),
    minTokens: z.int().min(0).optional().describe('Minimum number of context tokens.'),
  }),
  {
    description: 'The selection of sessions. All conditions must hold.',
    example: { prefix: 'import/', minTokens: 4_000 },
  },
);

const concurrency = z.int().min(1).max(500);

const spendLimit = z
  .number()
  .gt(0)
  .describe(
    "Limit on the cost of this job's model calls, in the currency of the policies' prices. The job stops at the limit.",
  );

const asked = {
  select: selection.optional().describe('The selection of sessions. Default: all sessions of the tenant.'),
  mode: z
    .enum(['due', 'all'])
    .optional()
    .describe(
      '`due`: sessions over their own threshold. `all`: all sessions that can become smaller. Default `due`.',
    ),
  concurrency: concurrency.optional().describe('Concurrent compactions, 1 to 500. Default 16.'),
  spendLimit: spendLimit.optional(),
};

export type BackfillRequest = z.infer<typeof backfillRequest>;
export const backfillRequest = component(
  'BackfillRequest',
  z.strictObject({
    job: id().describe('Idempotency key within the tenant. A job that is started twice runs once.'),
    ...asked,
  }),
  { description: 'Compaction of old sessions.', example: { job: 'spring', select: { prefix: 'import/' } } },
);

export type EstimateRequest = z.infer<typeof estimateRequest>;
export const estimateRequest = component('BackfillEstimateRequest', z.strictObject(asked), {
  description: 'A backfill request without a job.',
  example: { select: { prefix: 'import/' } },
});

export type ResizeRequest = z.infer<typeof resizeRequest>;
export const resizeRequest = component(
  'BackfillResizeRequest',
  z.strictObject({ concurrency: concurrency.describe('Concurrent compactions, 1 to 500.') }),
  { description: 'Changes the number of concurrent compactions.', example: { concurrency: 4 } },
);

export type RetryRequest = z.infer<typeof retryRequest>;
export const retryRequest = component(
  'BackfillRetryRequest',
  z.strictObject({ spendLimit: spendLimit.optional() }),
  { description: 'Retries failed sessions.', example: { spendLimit: 5 } },
);

const count = z.int();

export type Backfill = z.infer<typeof backfill>;
export const backfill = component(
  'Backfill',
  z.object({
    job: z.string(),
    request: backfillRequest.describe('The request with its defaults filled in.'),
    concurrency: z.int().describe('The present value. `resize` changes it.'),
    spendLimit: z.number().nullable().describe('The present value. `retry` changes it.'),
    state: z.enum(['running', 'paused', 'completed', 'cancelled', 'stopped']),
    reason: z.string().nullable().describe('Why the job stopped, if it did not complete.'),
    counts: z
      .object({
        pending: count,
        running: count,
        compacted: count,
        unchanged: count.describe('Sessions that needed no change.'),
        failed: count,
        skipped: count.describe(
          'Sessions that were never tried, because the job was cancelled or its spend limit was reached.',
        ),
        selected: count,
      })
      .describe(
        'Sessions by state. `selected` is their sum so far. It may still grow while `selecting` is true.',
      ),
    selecting: z.boolean().describe('More sessions may follow.'),
    failures: z.record(z.string(), z.number()).describe('Failed sessions by failure type.'),
    tokensBefore: z.number(),
    tokensAfter: z.number(),
    modelCalls: z.int(),
    modelInputTokens: z.number(),
    modelOutputTokens: z.number(),
    cost: z.number().nullable(),
    createdAt: moment,
    endedAt: moment.nullable(),
    perSecond: z.number().describe('Finished sessions per second since the start, including pauses.'),
  }),
  {
    description: 'A job and its progress.',
    example: {
      ...{ job: 'spring', request: { job: 'spring' }, concurrency: 16, spendLimit: null },
      ...{ state: 'running', reason: null, selecting: true, failures: {} },
      counts: {
        ...{ pending: 84, running: 16, compacted: 400, unchanged: 0 },
        ...{ failed: 0, skipped: 0, selected: 500 },
      },
      ...{ tokensBefore: 2_400_000, tokensAfter: 700_000, modelCalls: 431, cost: null },
      ...{ modelInputTokens: 2_300_000, modelOutputTokens: 310_000, perSecond: 12.5 },
      ...{ createdAt: '2026-03-02T09:00:00.000Z', endedAt: null },
    },
  },
);

export const backfillList = component('BackfillList', z.object({ backfills: z.array(backfill) }), {
  description: 'The jobs of the tenant.',
  example: { backfills: [] },
});

export type BackfillEstimate = z.infer<typeof backfillEstimate>;
export const backfillEstimate = component(
  'BackfillEstimate',
  z.object({
    selected: z.int().describe('Sessions that match the selection.'),
    due: z.int().describe('Sessions that would be compacted.'),
    tokensBefore: z.number().describe('Context tokens of the due sessions.'),
    tokensAfter: z.number(),
    modelCalls: z.int(),
    modelInputTokens: z.number(),
    modelOutputTokens: z.number(),
    cost: z.number().nullable().describe('Null if a policy has no prices.'),
    currency: z.string().nullable(),
  }),
  {
    description: 'The estimated effect of a backfill. Tokens and cost are derived from sizes alone.',
    example: {
      ...{ selected: 10_000, due: 6_200, tokensBefore: 40_000_000, tokensAfter: 9_000_000 },
      ...{ modelCalls: 7_100, modelInputTokens: 36_000_000, modelOutputTokens: 5_000_000 },
      ...{ cost: null, currency: null },
    },
  },
);

export type BackfillItem = z.infer<typeof backfillItem>;
const backfillItem = component(
  'BackfillItem',
  z.object({
    session: z.string(),
    state: itemState,
    attempts: z.int(),
    error: failure.nullable(),
    generation: z.int().nullable(),
    tokensBefore: z.number().nullable(),
    tokensAfter: z.number().nullable(),
    cost: z.number().nullable(),
    startedAt: moment.nullable(),
    endedAt: moment.nullable(),
  }),
  {
    description: 'The outcome of one session.',
    example: {
      ...{ session: 'import/17', state: 'compacted', attempts: 1, error: null, generation: 1 },
      ...{ tokensBefore: 5_100, tokensAfter: 1_300, cost: null },
      ...{ startedAt: '2026-03-02T09:00:00.000Z', endedAt: '2026-03-02T09:00:02.000Z' },
    },
  },
);

export const itemsRequest = z.strictObject({
  state: itemState.optional().describe('Only sessions in this state.'),
  after: id().optional().describe('`next` of the page before.'),
  limit: z.int().min(1).max(1_000).optional().describe('Maximum number of sessions. Default 100.'),
});

export type BackfillItemRequest = z.infer<typeof itemsRequest> & { job: string };

export type BackfillItemList = z.infer<typeof backfillItemList>;
export const backfillItemList = component(
  'BackfillItemList',
  z.object({
    items: z.array(backfillItem),
    next: z.string().nullable().describe('Value of `after` for the next page; null at the end.'),
  }),
  { description: 'Sessions of a job.', example: { items: [], next: null } },
);

/** One committed compaction of a job. */
export type CommittedStep = Pick<Backfill, StepNumber> & { generation: number };
type StepNumber =
  'tokensBefore' | 'tokensAfter' | 'modelCalls' | 'modelInputTokens' | 'modelOutputTokens' | 'cost';
