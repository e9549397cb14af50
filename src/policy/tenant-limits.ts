/**
 * Limits that the operator sets for tenants and that no tenant can change. Declared once: the section `limits` of the
 * configuration has the defaults of all tenants, the table `tenant_limits` the fields that differ for one tenant.
 */
import { z } from 'zod';
import { PalimpsestError, restated } from '../errors.js';
import type { Policy } from './defaults.js';
import type { PolicyInput } from './schema.js';
import { milliseconds, positive } from './summary-schema.js';

const whole = z.int().min(0);
const money = z.number().min(0);

/** A model's name; one that ends with `*` stands for all names with this beginning. */
const modelPattern = z
  .string()
  .regex(/^(?:[^*\s]+\*?|\*)$/, 'must be a name of a model, or its beginning with `*`');

export const tenantLimitsSchema = z.strictObject({
  spendPerDay: money
    .optional()
    .describe(
      'maximum cost in USD of the model calls of one day (UTC), by `limits.prices`. A model without a price is not called',
    ),
  spendPerMonth: money
    .optional()
    .describe('maximum cost in USD of the model calls of one month (UTC), as `limits.spendPerDay`'),
  modelTokensPerDay: whole
    .optional()
    .describe('maximum tokens (prompt and answer) of the model calls of one day (UTC)'),
  modelTokensPerMonth: whole
    .optional()
    .describe('maximum tokens (prompt and answer) of the model calls of one month (UTC)'),
  tokensPerMinute: positive
    .optional()
    .describe('maximum tokens (prompt and answer) of model calls per minute; further calls wait'),
  requestsPerMinute: positive
    .optional()
    .describe('maximum number of model calls per minute; further calls wait'),
  concurrency: positive
    .optional()
    .describe(
      'maximum number of model calls in flight, of all sessions together, and of `summary.concurrency`; further calls wait',
    ),
  models: z
    .array(modelPattern)
    .min(1)
    .max(100)
    .optional()
    .describe('models that may be called for summaries: names, or beginnings that end with `*`'),
  prices: z
    .record(modelPattern, z.strictObject({ input: money, output: money }))
    .optional()
    .describe(
      'prices in USD per million tokens, by model: `{"gpt-4o*": {"input": 2.5, "output": 10}}`; the longest name that fits counts',
    ),
  policyCharacters: whole
    .optional()
    .describe(
      "maximum length of a policy's texts together: `summary.prompt`, `summary.sections`, `summary.acknowledgment`, `pins` and `overhead`",
    ),
  patterns: whole
    .optional()
    .describe('maximum number of regular expressions of a policy (`pins` and `redact.patterns`)'),
  patternCharacters: positive.optional().describe('maximum length of one regular expression of a policy'),
  digestRetentionMs: milliseconds
    .min(60_000)
    .optional()
    .describe('maximum of `retention.digests`, in milliseconds'),
  storedBytes: whole
    .optional()
    .describe(
      'maximum total size of the stored messages, archived ones included, in bytes of their JSON; further appends are refused',
    ),
  sessions: whole
    .optional()
    .describe('maximum number of sessions that are not closed; a further session is refused'),
});

export type TenantLimits = z.infer<typeof tenantLimitsSchema>;
export type LimitName = keyof TenantLimits;

/** The limits of one tenant that differ from the defaults. null: the tenant has no such limit. */
export type TenantOverrides = { [Name in LimitName]?: TenantLimits[Name] | null };

export const tenantOverridesSchema = z.strictObject(
  Object.fromEntries(
    Object.entries(tenantLimitsSchema.shape).map(([name, field]) => [name, field.nullable()]),
  ),
) as unknown as z.ZodType<TenantOverrides>;

/** The limits in force; undefined if there are none. */
export function limitsInForce(
  defaults: TenantLimits | undefined,
  overrides: TenantOverrides | null,
): TenantLimits | undefined {
  const given = Object.entries({ ...defaults, ...overrides }).filter(
    ([, value]) => value !== null && value !== undefined,
  );
  return given.length === 0 ? undefined : Object.fromEntries(given);
}

export const beyondLimitType = 'Tenant.BeyondLimit' as const;

/** The failure of everything that would exceed a limit of the operator. */
export function beyondLimit(
  limit: LimitName,
  message: string,
  { path, hint, ...details }: { path?: string; hint: string; most?: number; asked?: number },
): PalimpsestError {
  return new PalimpsestError(beyondLimitType, message, {
    ...(path === undefined ? {} : { path }),
    hint,
    details: { limit, ...details },
  });
}

function fits(pattern: string, model: string): boolean {
  return pattern.endsWith('*') ? model.startsWith(pattern.slice(0, -1)) : pattern === model;
}

/** Why this model may not be called; null if it may. */
export function refusalOfModel(
  { models, prices, spendPerDay, spendPerMonth }: TenantLimits,
  model: string,
): PalimpsestError | null {
  if (models !== undefined && !models.some((pattern) => fits(pattern, model)))
    return beyondLimit('models', `The model ${model} is not one of the models of this tenant.`, {
      hint: `Name one of ${models.join(', ')}, or ask the operator for \`palimpsest limits set --models\`.`,
    });
  const limit = spendPerDay === undefined ? 'spendPerMonth' : 'spendPerDay';
  if ((spendPerDay ?? spendPerMonth) === undefined || priceOf(prices, model) !== null) return null;
  return beyondLimit(limit, `The cost of the model ${model} is limited, and its price is not known.`, {
    hint: 'Name a model with a price, or ask the operator to add this one to `limits.prices`.',
  });
}

/** Prices in USD per million tokens; null if none is known. */
export function priceOf(
  prices: TenantLimits['prices'],
  model: string,
): { input: number; output: number } | null {
  const [best] = Object.entries(prices ?? {})
    .filter(([pattern]) => fits(pattern, model))
    .sort(([a], [b]) => Number(a.endsWith('*')) - Number(b.endsWith('*')) || b.length - a.length);
  return best?.[1] ?? null;
}

type Pins = NonNullable<PolicyInput['pins']>;

const patternOf = (pin: Pins[number]): string[] =>
  typeof pin === 'object' && 'pattern' in pin ? [pin.pattern] : [];
const charactersOf = (pins: Pins): number =>
  pins.reduce((sum, pin) => sum + (typeof pin === 'string' ? pin.length : 0), 0);

/** A field of a policy that goes beyond a limit. */
interface Excess {
  limit: LimitName;
  path: string;
  what: string;
  most: number;
  asked: number;
}

function excessesOf(policy: PolicyInput, limits: TenantLimits): Excess[] {
  const { summary = {}, pins = [], redact, overhead = 0, retention } = policy;
  const texts = {
    'summary.prompt': summary.prompt?.length ?? 0,
    'summary.sections': JSON.stringify(summary.sections ?? '').length - 2,
    'summary.acknowledgment': summary.acknowledgment === false ? 0 : (summary.acknowledgment?.length ?? 0),
    pins: charactersOf(pins),
    overhead: typeof overhead === 'number' ? 0 : JSON.stringify(overhead).length,
  };
  const longest = Object.entries(texts).reduce((most, text) => (text[1] > most[1] ? text : most))[0];
  const pinned = pins.flatMap(patternOf);
  const redacted = redact ? (redact.patterns ?? []) : [];
  const lengthOf = (patterns: readonly string[]) => Math.max(0, ...patterns.map(({ length }) => length));
  const total = Object.values(texts).reduce((sum, length) => sum + length, 0);
  const wherePatterns = redacted.length > pinned.length ? 'redact.patterns' : 'pins';
  const measured: [LimitName, path: string, what: string, asked: number | undefined][] = [
    ['concurrency', 'summary.concurrency', 'model calls at once', summary.concurrency],
    ['digestRetentionMs', 'retention.digests', 'milliseconds', retention?.digests],
    ['policyCharacters', longest, 'characters of texts in the policy', total],
    ['patterns', wherePatterns, 'patterns', pinned.length + redacted.length],
    ['patternCharacters', 'pins', 'characters of a pattern', lengthOf(pinned)],
    ['patternCharacters', 'redact.patterns', 'characters of a pattern', lengthOf(redacted)],
  ];
  return measured.flatMap(([limit, path, what, asked]) => {
    const most = limits[limit];
    if (typeof most !== 'number' || asked === undefined || asked <= most) return [];
    return [{ limit, path, what, most, asked }];
  });
}

/**
 * Refuses a policy that a tenant gives if it goes beyond a limit. A field that goes no further than in `before` passes: the
 * limit was lowered after it was given. Throws `Tenant.BeyondLimit`.
 */
export function assertWithinLimits(
  given: PolicyInput,
  limits: TenantLimits | undefined,
  before: PolicyInput = {},
): void {
  if (limits === undefined) return;
  const earlier = excessesOf(before, limits);
  const stood = ({ limit, path, asked }: Excess) =>
    earlier.some((one) => one.limit === limit && one.path === path && one.asked >= asked);
  const found = excessesOf(given, limits).find((excess) => !stood(excess));
  if (found) {
    const { limit, path, what, most, asked } = found;
    throw beyondLimit(limit, `policy.${path} asks for ${asked} ${what}; this tenant may have ${most}.`, {
      ...{ path: `policy.${path}`, most, asked },
      hint: `Give at most ${most}, or ask the operator for \`palimpsest limits set\`.`,
    });
  }
  const model = given.summary?.model;
  const refused =
    model === undefined || model === before.summary?.model ? null : refusalOfModel(limits, model);
  if (refused) throw restated(refused, { path: 'policy.summary.model' });
}

const appliesTo = (limit: LimitName, given: string): string =>
  `the operator's limit \`${limit}\` applies; given: ${given}`;

/**
 * A policy that a tenant gave, without a summarizer that may not be called, and the reason. The model of the operator takes its
 * place.
 */
export function withoutForbiddenModel(
  given: PolicyInput,
  limits: TenantLimits | undefined,
): { given: PolicyInput; warning?: string } {
  const named = given.summary?.model;
  const refused = named === undefined || limits === undefined ? null : refusalOfModel(limits, named);
  if (refused === null) return { given };
  // The window belongs to the model.
  const { model: _model, contextWindow: _window, ...summary } = given.summary ?? {};
  const limit = refused.details?.['limit'] as LimitName;
  return { given: { ...given, summary }, warning: appliesTo(limit, String(named)) };
}

/**
 * The policy within the limits, with the reason for each field that they change. Redaction stays as it is even if it has more
 * patterns than the limit allows: without a pattern, a secret would reach the model.
 */
export function narrowed(
  policy: Policy,
  limits: TenantLimits | undefined,
): { policy: Policy; warnings: Record<string, string> } {
  if (limits === undefined) return { policy, warnings: {} };
  const warnings: Record<string, string> = {};
  const note = (path: string, limit: LimitName, given: string) => (warnings[path] = appliesTo(limit, given));
  const summary = { ...policy.summary };
  let { pins, retention } = policy;
  const { concurrency = Infinity, digestRetentionMs = Infinity, policyCharacters = Infinity } = limits;
  const { patterns = Infinity, patternCharacters = Infinity } = limits;
  if (summary.concurrency > concurrency) {
    note('summary.concurrency', 'concurrency', String(summary.concurrency));
    summary.concurrency = concurrency;
  }
  if (retention.digests > digestRetentionMs) {
    note('retention.digests', 'digestRetentionMs', String(retention.digests));
    retention = { digests: digestRetentionMs };
  }
  const lengthNow = () =>
    (summary.prompt?.length ?? 0) +
    (summary.sections === null ? 0 : JSON.stringify(summary.sections).length) +
    charactersOf(pins);
  for (const field of ['prompt', 'sections'] as const) {
    if (summary[field] === null || lengthNow() <= policyCharacters) continue;
    note(`summary.${field}`, 'policyCharacters', `${JSON.stringify(summary[field]).length} characters`);
    summary[field] = null;
  }
  const redacted = policy.redact?.patterns.length ?? 0;
  const kept = { patterns: redacted, characters: lengthNow() - charactersOf(pins) };
  const stays = pins.filter((pin) => {
    const [pattern] = patternOf(pin);
    if (pattern !== undefined) return pattern.length <= patternCharacters && ++kept.patterns <= patterns;
    return typeof pin !== 'string' || (kept.characters += pin.length) <= policyCharacters;
  });
  if (stays.length < pins.length) {
    const byText = pins.some((pin) => typeof pin === 'string' && !stays.includes(pin));
    note('pins', byText ? 'policyCharacters' : 'patterns', `${pins.length} pins`);
    pins = stays;
  }
  return { policy: { ...policy, summary, pins, retention }, warnings };
}
