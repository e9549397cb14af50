import { z } from 'zod';
import { LONGEST_PATTERN, problemOfPattern } from '../conversation/pattern.js';
import { invalid } from '../errors.js';
import { tokenizerNames } from '../tokens/counter.js';
import { complain } from './issues.js';
import { reduceSchema } from './reduce-schema.js';
import { milliseconds, positive, summarySchema, tokens } from './summary-schema.js';

const share = z.number().gt(0).max(1);

const clause = z
  .strictObject({
    tokens: tokens.optional().describe('Number of tokens in overhead + context.'),
    messages: positive.optional().describe('Number of messages in the context.'),
    fraction: share
      .optional()
      .describe('Share of the window: min(fraction · window, 0.9 · (window − reservedOutputTokens)) tokens.'),
  })
  .refine((given) => Object.values(given).some((value) => value !== undefined), {
    error: 'names no size',
    params: { hint: 'Give at least one of tokens, messages, fraction.' },
  });

const economicClause = z.strictObject({
  economic: z
    .literal(true)
    .describe(
      'Triggers at the cost-optimal size, computed from `prices` and the mean turn; at most the threshold of fraction 0.85.',
    ),
});

const idleClause = z.strictObject({
  idle: milliseconds
    .min(1_000)
    .describe(
      "Idle milliseconds after which the provider's cache is cold. The session is then compacted if reading the context again costs more than summarizing it.",
    ),
});

/** One clause, or a list of them. */
const triggerSchema = z.union([
  clause,
  economicClause,
  idleClause,
  z.array(z.union([clause, economicClause, idleClause])).max(20),
]);

/** A regular expression that matches in linear time. */
const patternSchema = z
  .string()
  .min(1)
  .max(LONGEST_PATTERN)
  .superRefine((pattern, context) => {
    const found = problemOfPattern(pattern);
    if (found) context.addIssue({ code: 'custom', message: found.problem, params: { hint: found.hint } });
  });

const pinSchema = z.union([
  z.string().min(1),
  z.strictObject({
    // The largest `seq` that the log can hold.
    seq: positive.max(2 ** 31 - 1).describe('Number of a message in the log, carried word for word.'),
  }),
  z.strictObject({
    pattern: patternSchema.describe(
      'Regular expression. Its matches in user and system messages are carried word for word.',
    ),
  }),
]);

/** `policy.keep`. */
const ceilingsSchema = z
  .strictObject({
    messages: positive.optional().describe('Number of newest messages.'),
    tokens: tokens.optional().describe('Number of tokens in the newest messages.'),
    fraction: z
      .number()
      .gt(0)
      .lt(1)
      .optional()
      .describe('Size of the newest messages as a share of the window.'),
  })
  .refine((given) => Object.values(given).some((value) => value !== undefined), {
    error: 'names no ceiling',
    params: { hint: 'Give at least one of messages, tokens, fraction, or omit keep for the default.' },
  });

/** Sizes that trigger once all given ones are reached. */
export type TriggerClause = z.infer<typeof clause>;
export type KeepCeilings = z.infer<typeof ceilingsSchema>;
export type Pin = z.infer<typeof pinSchema>;

const price = z.number().min(0);

/** `policy.prices`: money per million tokens. Omitted prices are derived from `input` by the ratios of current providers. */
export const pricesSchema = z.strictObject({
  currency: z.string().min(1).max(10).optional().describe('Name of the currency. Default `USD`.'),
  input: price
    .gt(0)
    .optional()
    .describe("Uncached input of the agent's model, per million tokens. Default 1, without a currency."),
  cachedInput: price.optional().describe('Input read from the cache. Default 0.1 · input.'),
  cacheWrite: price.optional().describe('Input written to the cache. Default 1.25 · input.'),
  output: price.optional().describe('Output. Default 5 · input.'),
  summarizerInput: price.optional().describe("Summarizer's input. Default `input`."),
  summarizerOutput: price.optional().describe("Summarizer's output. Default 5 · summarizerInput."),
});

/** `policy.spend`: maximum cost of summaries; beyond it the extractive summarizer is used. Requires `prices.input`. */
const spendSchema = z.strictObject({
  perCompaction: price.optional().describe('Maximum planned cost of one compaction. Default none.'),
  perSession: price.optional().describe('Maximum cost of all compactions of a session. Default none.'),
});

/** Prices per million tokens. `currency` is null if no price was given; the numbers are then ratios. */
export interface Prices {
  currency: string | null;
  input: number;
  cachedInput: number;
  cacheWrite: number;
  output: number;
  summarizerInput: number;
  summarizerOutput: number;
}

export function resolvePrices(given: z.infer<typeof pricesSchema> = {}): Prices {
  const input = given.input ?? 1;
  const summarizerInput = given.summarizerInput ?? input;
  return {
    currency: given.input === undefined ? null : (given.currency ?? 'USD'),
    input,
    cachedInput: given.cachedInput ?? 0.1 * input,
    cacheWrite: given.cacheWrite ?? 1.25 * input,
    output: given.output ?? 5 * input,
    summarizerInput,
    summarizerOutput: given.summarizerOutput ?? 5 * summarizerInput,
  };
}

export interface Spend {
  perCompaction: number | null;
  perSession: number | null;
}

/** Systems whose documented defaults a policy can name. `hybrid` is an alias of `smart-agent`. */
export const presetNames = ['adk', 'smart-agent', 'hybrid', 'langchain', 'deepagents', 'zrb'] as const;
export type PresetName = (typeof presetNames)[number];

/** `policy.retention`: how long data is kept. */
const retentionSchema = z.strictObject({
  digests: milliseconds
    .min(60_000)
    .max(100 * 365 * 24 * 3_600_000)
    .optional()
    .describe(
      'Milliseconds for which digests that no compaction refers to or uses are kept. Default 2,592,000,000 (30 days).',
    ),
});

/** `policy.memory`: notes and state in `journal` mode. */
const memorySchema = z.strictObject({
  share: z
    .number()
    .min(0.05)
    .max(0.7)
    .optional()
    .describe('Share of the budget that notes and state may take. Default 0.6.'),
  eager: z
    .boolean()
    .optional()
    .describe('Whether the next compaction of a live session is written ahead. Default true.'),
});

/** A policy as written. Every field is optional; unknown fields are errors. */
export const policySchema = z.strictObject({
  preset: z
    .enum(presetNames)
    .optional()
    .describe(
      'Defaults of another system: `adk`, `smart-agent` (also `hybrid`), `langchain`, `deepagents`, `zrb`. Other fields override it; the preset of the highest layer that names one applies.',
    ),
  enabled: z
    .boolean()
    .optional()
    .describe('false turns automatic compaction off; the context is then the whole log. Default true.'),
  model: z
    .string()
    .min(1)
    .optional()
    .describe("The agent's model; determines the default window and tokenizer."),
  contextWindow: tokens
    .optional()
    .describe(
      "The agent's window in tokens. Default: the registry's for the model, else fallbackContextWindow.",
    ),
  fallbackContextWindow: tokens
    .optional()
    .describe('Window in tokens of an unknown model; `status` warns if it is used. Default 32,768.'),
  reservedOutputTokens: z
    .int()
    .min(0)
    .optional()
    .describe("Tokens reserved for the agent's answer. Default min(4,096, window / 8)."),
  overhead: z
    .union([
      z.int().min(0),
      z.array(z.string()),
      z.strictObject({
        system: z.string().optional().describe('System prompt.'),
        tools: z
          .array(z.record(z.string(), z.unknown()))
          .optional()
          .describe('Tool definitions as sent to the model.'),
      }),
    ])
    .optional()
    .describe(
      'System prompt and tool definitions outside the log: their number of tokens, the texts to count, or `{system, tools}`. Default 0.',
    ),
  tokenizer: z
    .union([
      z.enum([...tokenizerNames, 'chars']),
      z.templateLiteral(['custom:', z.string().regex(/^[\w.-]{1,60}$/)]),
    ])
    .optional()
    .describe(
      "Counts tokens. `chars` counts characters, 3.3 per token for Anthropic's models and 4 otherwise; `custom:<name>` is a counter registered in the library. Default: the model's tokenizer; o200k_base without a model.",
    ),
  calibration: z
    .boolean()
    .optional()
    .describe('Whether usage reported with turns corrects the counts, per session and model. Default true.'),
  roles: z
    .enum(['auto', 'alternate', 'free'])
    .optional()
    .describe(
      'Whether user and assistant messages must alternate in the context. `auto`: if the provider of the model requires it. Default `auto`.',
    ),
  trigger: triggerSchema
    .optional()
    .describe(
      'Size of overhead + context that starts a compaction. All sizes of a clause must be reached; one clause of a list is enough. `{economic: true}` and `{idle: ms}` are clauses too. Default [{fraction: 0.85}].',
    ),
  target: z
    .number()
    .gt(0)
    .optional()
    .describe(
      'Size that a compaction must reach. A value up to 0.9 is a share of the smallest threshold without the overhead; a value above 1 is a number of tokens in overhead + context. Default 0.75, without a journal 0.6; with `{economic: true}` at most the size of the head and of what `keep` names.',
    ),
  keep: ceilingsSchema
    .optional()
    .describe(
      'Ceilings of the tail; the smallest one given applies. Default with a journal: the rest of the target; otherwise {messages: 6, fraction: 0.25}, or less if the target requires it.',
    ),
  reduce: reduceSchema.optional(),
  summary: summarySchema.optional(),
  pins: z
    .array(pinSchema)
    .max(1_000)
    .refine((pins) => pins.filter((pin) => typeof pin === 'object' && 'pattern' in pin).length <= 100, {
      error: 'holds more than 100 patterns',
      params: { hint: 'Join patterns with `|`, or pin texts instead.' },
    })
    .optional()
    .describe(
      'Texts that every head carries word for word: a text, the `{seq}` of a message, or a `{pattern}` in RE2 syntax matched in user and system messages (at most 100 patterns). Default none.',
    ),
  recovery: z
    .enum(['tools', 'none'])
    .optional()
    .describe(
      'Whether the agent has `recoveryTools`. With `none`, head and excerpts name no tool. A change applies from the next compaction. Default `tools`.',
    ),
  memory: memorySchema.optional().describe('Journal and state, in `journal` mode.'),
  prices: pricesSchema.optional(),
  spend: spendSchema.optional(),
  redact: z
    .union([
      z.literal(false),
      z.strictObject({
        secrets: z.boolean().optional().describe('Redacts keys and tokens of known forms. Default true.'),
        patterns: z
          .array(patternSchema)
          .max(100)
          .optional()
          .describe('Further regular expressions in RE2 syntax, at most 100 of 1,000 characters each.'),
      }),
    ])
    .optional()
    .describe(
      'Replaces secrets by `[REDACTED:kind:hash]` before summarizer, summary and exact values get them. The log keeps the original. Default false.',
    ),
  retention: retentionSchema.optional(),
  deadCallAfter: milliseconds
    .optional()
    .describe(
      'Milliseconds after which an unanswered tool call that a user message follows counts as dead. Default 600,000.',
    ),
  debounceMs: milliseconds
    .optional()
    .describe('Milliseconds without a new turn before a compaction starts. Default 0.'),
  idleAfter: milliseconds
    .min(1)
    .optional()
    .describe('Idle milliseconds after which the session workflow ends. Default 3,600,000.'),
});

export type PolicyInput = z.infer<typeof policySchema>;
export type Overhead = NonNullable<PolicyInput['overhead']>;

/**
 * Checks a policy. Throws `Input.Invalid` with the path of the field (`policy.trigger[0].fraction`) and a hint.
 * @example parsePolicy({ contextWindow: 32_000, trigger: { fraction: 0.8 } })
 */
export function parsePolicy(input: unknown): PolicyInput {
  const parsed = policySchema.safeParse(input);
  if (!parsed.success) throw complain(parsed.error, policySchema, input, 'policy');
  const policy = parsed.data;
  if (policy.enabled !== false && Array.isArray(policy.trigger) && policy.trigger.length === 0) {
    throw invalid(
      'An enabled policy needs at least one trigger.',
      'policy.trigger',
      'Omit trigger for [{fraction: 0.85}], or set enabled: false.',
    );
  }
  if (policy.target !== undefined && policy.target > 0.9 && policy.target <= 1) {
    throw invalid(
      `A target of ${policy.target} is too close to the threshold: the next turns would trigger again.`,
      'policy.target',
      'Give a share up to 0.9, or a number of tokens.',
    );
  }
  return policy;
}
