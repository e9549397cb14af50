import { z } from 'zod';
import { LONGEST_PATTERN, problemOfPattern, problemOfPatterns } from '../conversation/pattern.js';
import { invalid } from '../errors.js';
import { tokenizerNames } from '../tokens/counter.js';
import { complain } from './issues.js';
import { list } from './list.js';
import { reduceSchema } from './reduce-schema.js';
import { milliseconds, modelName, positive, summarySchema, tokens } from './summary-schema.js';

const share = z.number().gt(0).max(1);

const clause = z
  .strictObject({
    tokens: tokens.optional().describe('Number of tokens in overhead + context.'),
    messages: positive.optional().describe('Number of messages in the context.'),
    fraction: share
      .optional()
      .describe(
        'Share of the window. The size in overhead + context is min(fraction · window, 0.9 · (window − reservedOutputTokens)) tokens.',
      ),
  })
  .refine((given) => Object.values(given).some((value) => value !== undefined), {
    error: 'names no size',
    params: { hint: 'Give at least one of tokens, messages, fraction.' },
  });

const economicClause = z.strictObject({
  economic: z
    .literal(true)
    .describe(
      'Starts a compaction at the cost-optimal size, which is computed from `prices` and the mean number of tokens per turn. It is at most the size of `{fraction: 0.85}`.',
    ),
});

const idleClause = z.strictObject({
  idle: milliseconds
    .min(1_000)
    .describe(
      "Milliseconds without a turn after which the provider's cache counts as cold. The session is then compacted if a compaction and a read of the shorter context cost less than a read of the present one.",
    ),
});

const triggerSchema = z.union([
  clause,
  economicClause,
  idleClause,
  list(z.union([clause, economicClause, idleClause]), { max: 20 }),
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

/** Maximum patterns of `pins`, and of `redact.patterns`. */
const mostPatterns = 100;

const patternsIn = (pins: readonly unknown[]): string[] =>
  pins.flatMap((pin) => {
    const pattern: unknown =
      typeof pin === 'object' && pin !== null ? Reflect.get(pin, 'pattern') : undefined;
    return typeof pattern === 'string' ? [pattern] : [];
  });

const pinSchema = z.union([
  z.string().min(1),
  z.strictObject({
    // The largest `seq` that the log can hold.
    seq: positive
      .max(2 ** 31 - 1)
      .describe('Number (`seq`) of a message in the log. Every head carries the message word for word.'),
  }),
  z.strictObject({
    pattern: patternSchema.describe(
      'Regular expression. Every head carries its matches in user, system and developer messages word for word.',
    ),
  }),
]);

/** `policy.keep`. */
const ceilingsSchema = z
  .strictObject({
    messages: positive.optional().describe('Maximum number of messages in the tail.'),
    tokens: tokens.optional().describe('Maximum number of tokens in the tail.'),
    fraction: z
      .number()
      .gt(0)
      .lt(1)
      .optional()
      .describe('Maximum size of the tail as a share of the window.'),
  })
  .refine((given) => Object.values(given).some((value) => value !== undefined), {
    error: 'names no ceiling',
    params: { hint: 'Give at least one of messages, tokens, fraction, or omit keep for the default.' },
  });

/** The sizes of one trigger clause. It is met once all of them are reached. */
export type TriggerClause = z.infer<typeof clause>;
export type KeepCeilings = z.infer<typeof ceilingsSchema>;
export type Pin = z.infer<typeof pinSchema>;

/** A number above any real price, which keeps products and sums of prices finite and exact. */
const HIGHEST_PRICE = 1_000_000;
const price = z.number().min(0).max(HIGHEST_PRICE);
const money = z.number().min(0);

/** `policy.prices`: money per million tokens. Omitted prices are derived from `input` by the ratios of current providers. */
export const pricesSchema = z.strictObject({
  currency: z.string().min(1).max(10).optional().describe('Name of the currency. Default `USD`.'),
  input: price
    .gt(0)
    .optional()
    .describe(
      "Price of a million uncached input tokens of the agent's model. Default 1, without a currency.",
    ),
  cachedInput: price
    .optional()
    .describe('Price of a million input tokens read from the cache. Default 0.1 · input.'),
  cacheWrite: price
    .optional()
    .describe('Price of a million input tokens written to the cache. Default 1.25 · input.'),
  output: price
    .optional()
    .describe("Price of a million output tokens of the agent's model. Default 5 · input."),
  summarizerInput: price
    .optional()
    .describe('Price of a million input tokens of the summarizer. Default `input`.'),
  summarizerOutput: price
    .optional()
    .describe('Price of a million output tokens of the summarizer. Default 5 · summarizerInput.'),
});

/** `policy.spend`: maximum cost of summaries; beyond it the extractive summarizer is used. Requires `prices.input`. */
const spendSchema = z.strictObject({
  perCompaction: money
    .optional()
    .describe(
      'Maximum planned cost of one compaction. A compaction that would cost more uses the extractive summarizer. Requires `prices.input`. Default none.',
    ),
  perSession: money
    .optional()
    .describe(
      'Maximum cost of all compactions of a session together. Once it would be exceeded, the extractive summarizer is used. Requires `prices.input`. Default none.',
    ),
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
    .optional()
    .describe(
      'Milliseconds for which an unused digest is kept. A digest is unused if no committed compaction refers to it and no running one needs it. Default 2,592,000,000 (30 days).',
    ),
});

/** `policy.memory`: journal and state in `journal` mode. */
const memorySchema = z.strictObject({
  share: z
    .number()
    .min(0.05)
    .max(0.7)
    .optional()
    .describe('Maximum share of the budget for journal and state. Default 0.6.'),
  eager: z
    .boolean()
    .optional()
    .describe(
      'Whether the next compaction of a live session is written ahead: its model calls are then made before the trigger is met. Default true.',
    ),
});

/** Its type is `object`, because the tool types of the SDKs are interfaces, which have no index signature. */
const toolDefinition: z.ZodType<object> = z.record(z.string(), z.unknown());

/** A policy as written. Every field is optional; unknown fields are errors. */
export const policySchema = z.strictObject({
  preset: z
    .enum(presetNames)
    .optional()
    .describe(
      'Applies the defaults of another system; `hybrid` is the same as `smart-agent`. Other fields of the policy override the preset. If several layers name a preset, only that of the highest layer applies.',
    ),
  enabled: z
    .boolean()
    .optional()
    .describe(
      '`false` turns off automatic compaction and the reductions that make a context fit its budget. The context is then the newest head, if there is one, and all later messages, whatever their size. Default true.',
    ),
  model: modelName.optional().describe("The agent's model. It determines the default window and tokenizer."),
  contextWindow: tokens
    .optional()
    .describe(
      "The agent's window in tokens. Default: the registered window of the model, else `fallbackContextWindow`.",
    ),
  fallbackContextWindow: tokens
    .optional()
    .describe(
      'Window in tokens that is assumed for an unknown model; `status` warns if it is used. Default 32,768.',
    ),
  reservedOutputTokens: z
    .int()
    .min(0)
    .optional()
    .describe("Tokens reserved for the agent's answer. Default min(4,096, window / 8)."),
  overhead: z
    .union([
      z.int().min(0),
      list(z.string(), { max: 10_000 }),
      z.strictObject({
        system: z.string().optional().describe('System prompt.'),
        tools: list(toolDefinition, { max: 10_000 })
          .optional()
          .describe('Tool definitions as sent to the model.'),
      }),
    ])
    .optional()
    .describe(
      'System prompt and tool definitions that each request has in addition to the log, given as a number of tokens, as a list of texts to count, or as `{system, tools}`. Default 0.',
    ),
  tokenizer: z
    .union([
      z.enum([...tokenizerNames, 'chars']),
      z.templateLiteral(['custom:', z.string().regex(/^[\w.-]{1,60}$/)]),
    ])
    .optional()
    .describe(
      "Tokenizer that counts the tokens. `chars` counts characters instead: 3.3 per token for Anthropic's models, 4 otherwise. `custom:<name>` is a counter registered in the library. Default: the model's tokenizer; `o200k_base` without a model.",
    ),
  calibration: z
    .boolean()
    .optional()
    .describe(
      'Whether the usage that is reported with turns corrects the token counts, separately for each session and model. Default true.',
    ),
  roles: z
    .enum(['auto', 'alternate', 'free'])
    .optional()
    .describe(
      "Whether user and assistant messages must alternate in the context. With `auto` they alternate if the model's provider requires it. Default `auto`.",
    ),
  trigger: triggerSchema
    .optional()
    .describe(
      'Condition that starts a compaction: one clause, or a list of clauses of which one is enough. A clause with several sizes is met once all of them are reached. `{economic: true}` and `{idle: ms}` are clauses too. Default [{fraction: 0.85}].',
    ),
  target: z
    .number()
    .gt(0)
    .optional()
    .describe(
      'Size to which a compaction must reduce the context. A value up to 0.9 is a share: the context alone must shrink to this value · (smallest threshold − overhead) tokens. A value above 1 is a number of tokens in overhead + context; it must not exceed the size that the share 0.9 gives. Values above 0.9 and up to 1 are refused. Default 0.75, or 0.6 without a journal; with `{economic: true}` at most the size of system messages, head and the tail that `keep` allows.',
    ),
  keep: ceilingsSchema
    .optional()
    .describe(
      'Maximum size of the tail. If several sizes are given, the one that keeps the fewest messages applies. Default: with a journal, the part of the target that journal and state leave free; otherwise {messages: 6, fraction: 0.25}, or less if the target requires it.',
    ),
  reduce: reduceSchema.optional(),
  summary: summarySchema.optional(),
  pins: list(pinSchema, {
    max: 1_000,
    refuse(pins) {
      const patterns = patternsIn(pins);
      if (patterns.length <= mostPatterns) return problemOfPatterns(patterns);
      return {
        problem: `holds more than ${mostPatterns} patterns`,
        hint: 'Join patterns with `|`, or pin texts instead.',
      };
    },
  })
    .optional()
    .describe(
      'Texts that every head carries word for word. A pin is a text, the `{seq}` of a message, or a `{pattern}`, a regular expression that is matched in user, system and developer messages. At most 100 patterns, in the syntax of JavaScript without lookaround and back-references. Default none.',
    ),
  recovery: z
    .enum(['tools', 'none'])
    .optional()
    .describe(
      'Whether the agent has the `recoveryTools`. With `none`, head and excerpts name no tool. A change takes effect with the next compaction. Default `tools`.',
    ),
  memory: memorySchema.optional().describe('Settings of journal and state in `journal` mode.'),
  prices: pricesSchema.optional(),
  spend: spendSchema.optional(),
  redact: z
    .union([
      z.literal(false),
      z.strictObject({
        secrets: z
          .boolean()
          .optional()
          .describe(
            'Whether passwords, keys, tokens, card and account numbers in [known forms](redaction.md) are redacted. Default true.',
          ),
        patterns: list(patternSchema, {
          max: mostPatterns,
          refuse: (patterns) => problemOfPatterns(patterns.filter((pattern) => typeof pattern === 'string')),
        })
          .optional()
          .describe(
            'Further regular expressions to redact: at most 100, each of at most 1,000 characters. The syntax is that of JavaScript without lookaround and back-references.',
          ),
      }),
    ])
    .optional()
    .describe(
      'Replaces secrets with `[REDACTED:kind:hash]` in everything that goes to the summarizer, the head or an embeddings endpoint. The log keeps the originals. `false` switches this off. Default `{}`; `false` in sessions that began before it was the default.',
    ),
  retention: retentionSchema.optional(),
  deadCallAfter: milliseconds
    .optional()
    .describe(
      'Age in milliseconds from which a tool call without a result counts as abandoned and may be evicted, provided that a user or assistant message follows it. Default 600,000.',
    ),
  debounceMs: milliseconds
    .optional()
    .describe(
      'Milliseconds between the measurement that finds a compaction due and a second one, after which the compaction starts. Default 0.',
    ),
  idleAfter: milliseconds
    .min(1)
    .optional()
    .describe(
      'Milliseconds without a signal after which the session workflow ends. The next signal starts it again. Default 3,600,000.',
    ),
  signal: z
    .enum(['due', 'always'])
    .optional()
    .describe(
      'Which turns signal the session workflow. `due`: a turn that needs a measurement, and the first turn of a session. `always`: every turn, so that the workflow shows each one in the Temporal UI. Default `due`.',
    ),
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
