import { z } from 'zod';
import { formatNames } from '../../conversation/format-names.js';
import type {
  Backfill,
  BackfillEstimate,
  BackfillItem,
  BackfillItemList,
  BackfillRequest,
  BackfillSelection,
} from '../../contract/backfills.js';
import { component, moment } from './component.js';

export const itemState = z.enum(['pending', 'running', 'compacted', 'unchanged', 'failed', 'skipped']);

const selection = component<BackfillSelection>()(
  'BackfillSelection',
  z.strictObject({
    prefix: z.string().optional().describe('Session ids that begin with this.'),
    format: z.enum(formatNames).optional(),
    idleSince: z.string().optional().describe('No turn since this moment, ISO 8601.'),
    minTokens: z.number().optional().describe('Context tokens at least.'),
  }),
  { description: 'Which sessions: all conditions hold.', example: { prefix: 'import/', minTokens: 4_000 } },
);

const concurrency = z.int().min(1).max(500).describe('Compactions at once.');

const spendLimit = z
  .number()
  .gt(0)
  .describe("Money for model calls at most, in the currency of the policies' prices; then it stops.");

const asked = {
  select: selection.optional(),
  mode: z
    .enum(['due', 'all'])
    .optional()
    .describe(
      '`due`: sessions over their own trigger; `all`: every one that can become smaller. Default `due`.',
    ),
  concurrency: concurrency.optional().describe('Compactions at once. Default 16.'),
  spendLimit: spendLimit.optional(),
};

export const backfillBody = component<BackfillRequest>()(
  'BackfillRequest',
  z.strictObject({
    job: z.string().min(1).describe('Idempotency key: the same job started twice is one job.'),
    ...asked,
  }),
  { description: 'Compaction of old sessions.', example: { job: 'spring', select: { prefix: 'import/' } } },
);

export const estimateBody = component<Omit<BackfillRequest, 'job'>>()(
  'BackfillEstimateRequest',
  z.strictObject(asked),
  { description: 'The same without a job.', example: { select: { prefix: 'import/' } } },
);

export const resizeBody = component<{ concurrency: number }>()(
  'BackfillResizeRequest',
  z.strictObject({ concurrency }),
  { description: 'Another number of compactions at once, from now on.', example: { concurrency: 4 } },
);

export const retryBody = component<{ spendLimit?: number }>()(
  'BackfillRetryRequest',
  z.strictObject({ spendLimit: spendLimit.optional() }),
  { description: 'What failed, once more.', example: { spendLimit: 5 } },
);

const count = z.int();

const counts = {
  pending: count,
  running: count,
  compacted: count,
  unchanged: count,
  failed: count,
  skipped: count,
};

export const backfill = component<Backfill>()(
  'Backfill',
  z.object({
    job: z.string(),
    request: backfillBody.describe('As it was started.'),
    concurrency: z.int().describe('In force now.'),
    spendLimit: z.number().nullable(),
    state: z.enum(['running', 'paused', 'completed', 'cancelled', 'stopped']),
    reason: z.string().nullable().describe('Why it stopped, where it did not complete.'),
    counts: z
      .object({ ...counts, selected: count })
      .describe('Sessions by state; `selected` is their sum so far.'),
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
    perSecond: z.number().describe('Finished sessions per second since the start, pauses included.'),
  }),
  {
    description: 'A job and how far it is.',
    example: {
      ...{ job: 'spring', request: { job: 'spring' }, concurrency: 16, spendLimit: null },
      ...{ state: 'running', reason: null, selecting: true, failures: {} },
      counts: {
        pending: 84,
        running: 16,
        compacted: 400,
        unchanged: 0,
        failed: 0,
        skipped: 0,
        selected: 500,
      },
      ...{ tokensBefore: 2_400_000, tokensAfter: 700_000, modelCalls: 431, cost: null },
      ...{ modelInputTokens: 2_300_000, modelOutputTokens: 310_000, perSecond: 12.5 },
      ...{ createdAt: '2026-03-02T09:00:00.000Z', endedAt: null },
    },
  },
);

export const backfillList = component<{ backfills: Backfill[] }>()(
  'BackfillList',
  z.object({ backfills: z.array(backfill) }),
  { description: 'The jobs of the tenant.', example: { backfills: [] } },
);

export const backfillEstimate = component<BackfillEstimate>()(
  'BackfillEstimate',
  z.object({
    selected: z.int().describe('Sessions that match.'),
    due: z.int().describe('Sessions that would be compacted.'),
    tokensBefore: z.number(),
    tokensAfter: z.number(),
    modelCalls: z.int(),
    modelInputTokens: z.number(),
    modelOutputTokens: z.number(),
    cost: z.number().nullable().describe('Null where a policy has no prices.'),
    currency: z.string().nullable(),
  }),
  {
    description: 'What a backfill would do, from sizes alone.',
    example: {
      ...{
        selected: 10_000,
        due: 6_200,
        tokensBefore: 40_000_000,
        tokensAfter: 9_000_000,
        modelCalls: 7_100,
      },
      ...{ modelInputTokens: 36_000_000, modelOutputTokens: 5_000_000, cost: null, currency: null },
    },
  },
);

const backfillItem = component<BackfillItem>()(
  'BackfillItem',
  z.object({
    session: z.string(),
    state: itemState,
    attempts: z.int(),
    error: z.object({ type: z.string(), message: z.string() }).nullable(),
    generation: z.int().nullable(),
    tokensBefore: z.number().nullable(),
    tokensAfter: z.number().nullable(),
    cost: z.number().nullable(),
    startedAt: moment.nullable(),
    endedAt: moment.nullable(),
  }),
  {
    description: 'What became of one session.',
    example: {
      ...{ session: 'import/17', state: 'compacted', attempts: 1, error: null, generation: 1 },
      ...{ tokensBefore: 5_100, tokensAfter: 1_300, cost: null },
      ...{ startedAt: '2026-03-02T09:00:00.000Z', endedAt: '2026-03-02T09:00:02.000Z' },
    },
  },
);

export const backfillItemList = component<BackfillItemList>()(
  'BackfillItemList',
  z.object({
    items: z.array(backfillItem),
    next: z.string().nullable().describe('Give it as `after` to read on; null at the end.'),
  }),
  { description: 'Sessions of a job.', example: { items: [], next: null } },
);
