import { z } from 'zod';
import { formatNames } from '../../conversation/format-names.js';
import { invalid } from '../../errors.js';
import { complain } from '../../policy/issues.js';
import type { BackfillRequest } from '../../contract/backfills.js';
import { checkId } from '../connection/values.js';

const maxConcurrency = 500;

const concurrencySchema = z
  .int()
  .min(1)
  .max(maxConcurrency)
  .describe('Compactions at once, 1 to 500. Default 16.');

const spendLimitSchema = z
  .number()
  .positive()
  .describe('Money for model calls of this job at most, in the currency of the policies’ prices.');

/** Which sessions: all conditions hold. */
const selectionSchema = z.strictObject({
  prefix: z.string().min(1).optional().describe('Session ids that begin with this.'),
  format: z.enum(formatNames).optional().describe('Sessions that are written in this format.'),
  idleSince: z.iso
    .datetime({ offset: true, error: 'is no moment of ISO 8601 with a time zone' })
    .optional()
    .describe('No turn since this moment, such as 2026-01-31T00:00:00Z.'),
  minTokens: z.int().min(0).optional().describe('Context tokens at least.'),
});

const fields = {
  select: selectionSchema.optional().describe('Which sessions. Default: all of the tenant.'),
  mode: z
    .enum(['due', 'all'])
    .optional()
    .describe(
      '`due`: sessions over their own trigger; `all`: every one that can become smaller. Default `due`.',
    ),
  concurrency: concurrencySchema.optional(),
  spendLimit: spendLimitSchema.optional(),
};

const estimateSchema = z.strictObject(fields);

const backfillSchema = z.strictObject({
  job: z.string().min(1).describe('Names the job within its tenant: the same name is the same job.'),
  ...fields,
});

/** A request with its defaults, as it is stored and compared. */
export type FullRequest = BackfillRequest &
  Required<Pick<BackfillRequest, 'select' | 'mode' | 'concurrency'>>;

/** Throws `Input.Invalid` with the path of the field. */
export function parseBackfill(input: unknown): FullRequest {
  const { job, ...rest } = checked(backfillSchema, input);
  checkId(job, 'job');
  return { job, ...withDefaults(rest) };
}

export function parseEstimate(input: unknown): Omit<FullRequest, 'job'> {
  return withDefaults(checked(estimateSchema, input));
}

export function checkConcurrency(concurrency: unknown): number {
  return checked(z.strictObject({ concurrency: concurrencySchema }), { concurrency }).concurrency;
}

/** The tenant's sessions are asked for by this: what Postgres would refuse is refused here, with its path. */
function withDefaults(given: z.infer<typeof estimateSchema>): Omit<FullRequest, 'job'> {
  const { select = {}, mode = 'due', concurrency = 16, spendLimit } = given;
  if (select.prefix !== undefined) checkId(select.prefix, 'select.prefix');
  if (select.idleSince !== undefined && Number.isNaN(Date.parse(select.idleSince)))
    throw invalid('select.idleSince is no moment', 'select.idleSince');
  return { select, mode, concurrency, ...(spendLimit === undefined ? {} : { spendLimit }) };
}

function checked<T>(schema: z.ZodType<T>, input: unknown): T {
  const parsed = schema.safeParse(input ?? {});
  if (parsed.success) return parsed.data;
  throw complain(parsed.error, schema, input, '');
}

/** A job that has spent its limit cannot go on without a higher one. */
export function checkSpendLimit(limit: number | null, spent: number): void {
  if (limit === null || spent < limit) return;
  throw invalid(
    `the job has spent ${spent} of its limit of ${limit}`,
    'spendLimit',
    `Give a spendLimit above ${spent}.`,
  );
}

/** Throws `Input.Invalid`. */
export function parseSpendLimit(spendLimit: unknown): number {
  return checked(z.strictObject({ spendLimit: spendLimitSchema }), { spendLimit }).spendLimit;
}
