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
    tokens: tokens.optional().describe('Tokens of overhead + context.'),
    messages: positive.optional().describe('Messages of the context.'),
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
      'The cost-optimal size, from `prices` and the mean turn; at most the threshold of fraction 0.85.',
    ),
});

const idleClause = z.strictObject({
  idle: milliseconds
    .min(1_000)
    .describe(
      "Quiet milliseconds after which the provider's cache is cold: compact then, where reading the context anew costs more than summarizing it.",
    ),
});

/** One clause, or a list of them. */
const triggerSchema = z.union([
  clause,
  economicClause,
  idleClause,
  z.array(z.union([clause, economicClause, idleClause])).max(20),
]);

/** A regular expression that can be matched in linear time. */
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
    // As far as the log can count.
    seq: positive.max(2 ** 31 - 1).describe('A message of the log, carried word for word.'),
  }),
  z.strictObject({
    pattern: patternSchema.describe('Matches in user and system messages are carried word for word.'),
  }),
]);

/** `policy.keep`. */
const ceilingsSchema = z
  .strictObject({
    messages: positive.optional().describe('Newest messages.'),
    tokens: tokens.optional().describe('Tokens of the newest messages.'),
    fraction: z.number().gt(0).lt(1).optional().describe('The same as a share of the window.'),
  })
  .refine((given) => Object.values(given).some((value) => value !== undefined), {
    error: 'names no ceiling',
    params: { hint: 'Give at least one of messages, tokens, fraction, or leave keep out for the default.' },
  });

/** A size that triggers; all that is given must be reached. */
export type TriggerClause = z.infer<typeof clause>;
export type KeepCeilings = z.infer<typeof ceilingsSchema>;
export type Pin = z.infer<typeof pinSchema>;

const price = z.number().min(0);

/** `policy.prices`: money per million tokens. What is left out follows from `input` by the relations of current providers. */
export const pricesSchema = z.strictObject({
  currency: z.string().min(1).max(10).optional().describe('Name of the money. Default `USD`.'),
  input: price
    .gt(0)
    .optional()
    .describe("Agent's model: uncached input, per million tokens. Default 1, without a currency."),
  cachedInput: price.optional().describe('Input read from the cache. Default 0.1 · input.'),
  cacheWrite: price.optional().describe('Input written to the cache. Default 1.25 · input.'),
  output: price.optional().describe('Output. Default 5 · input.'),
  summarizerInput: price.optional().describe("Summarizer's input. Default input."),
  summarizerOutput: price.optional().describe("Summarizer's output. Default 5 · summarizerInput."),
});

/**
 * `policy.spend`: most money for summaries; beyond it the extractive summarizer serves. Needs `prices.input`.
 * @internal A test holds the docs to its fields.
 */
export const spendSchema = z.strictObject({
  perCompaction: price
    .optional()
    .describe('Most money that one compaction may be planned to cost. Default none.'),
  perSession: price.optional().describe('Most money for all compactions of a session. Default none.'),
});

/** Prices per million tokens. `currency` null: nothing was given, and the numbers are relations only. */
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

/** Systems whose documented defaults can be taken over by name. `hybrid` is what `smart-agent` calls its own. */
export const presetNames = ['adk', 'smart-agent', 'hybrid', 'langchain', 'deepagents', 'zrb'] as const;
export type PresetName = (typeof presetNames)[number];

/** `policy.retention`: what is kept for how long. @internal A test holds the docs to its fields. */
export const retentionSchema = z.strictObject({
  digests: milliseconds
    .min(60_000)
    .max(100 * 365 * 24 * 3_600_000)
    .optional()
    .describe(
      'Milliseconds that digests live which no compaction refers to or is using. Default 2,592,000,000 (30 days).',
    ),
});

/** `policy.memory`: notes and state in `journal` mode. @internal A test holds the docs to its fields. */
export const memorySchema = z.strictObject({
  share: z
    .number()
    .min(0.05)
    .max(0.7)
    .optional()
    .describe('Share of the budget that notes and state may take. Default 0.6.'),
  eager: z
    .boolean()
    .optional()
    .describe(
      'Has the notes of the next compaction of a live session written ahead of its trigger. Default true.',
    ),
});

/** A policy as people write it. Every field may be left out; unknown fields are errors. */
export const policySchema = z.strictObject({
  preset: z
    .enum(presetNames)
    .optional()
    .describe(
      'Defaults of another system: `adk`, `smart-agent` (also `hybrid`), `langchain`, `deepagents`, `zrb`; other fields go before it; the highest layer that names one decides.',
    ),
  enabled: z
    .boolean()
    .optional()
    .describe('Off: no compaction by itself, the context is the log. Default true.'),
  model: z.string().min(1).optional().describe("The agent's model: its window and tokenizer are looked up."),
  contextWindow: tokens
    .optional()
    .describe("The agent's window, tokens. Default: registry by model, else the fallback."),
  fallbackContextWindow: tokens
    .optional()
    .describe('Window of an unknown model, tokens; status warns when it is used. Default 32,768.'),
  reservedOutputTokens: z
    .int()
    .min(0)
    .optional()
    .describe("Kept free for the agent's answer, tokens. Default min(4,096, window / 8)."),
  overhead: z
    .union([
      z.int().min(0),
      z.array(z.string()),
      z.strictObject({
        system: z.string().optional().describe('System prompt.'),
        tools: z.array(z.record(z.string(), z.unknown())).optional().describe('Tool definitions as sent.'),
      }),
    ])
    .optional()
    .describe(
      'System prompt and tool definitions outside the log: tokens, the texts to count, or `{system, tools}`. Default 0.',
    ),
  tokenizer: z
    .union([
      z.enum([...tokenizerNames, 'chars']),
      z.templateLiteral(['custom:', z.string().regex(/^[\w.-]{1,60}$/)]),
    ])
    .optional()
    .describe(
      "Who counts tokens. `chars`: characters, 3.3 a token for Anthropic's models and 4 otherwise; `custom:<name>`: a counter registered in the library. Default: the model's; o200k_base without a model.",
    ),
  calibration: z
    .boolean()
    .optional()
    .describe('Usage reported with turns corrects the counts, per session and model. Default true.'),
  roles: z
    .enum(['auto', 'alternate', 'free'])
    .optional()
    .describe(
      'Whether user and assistant must take turns in the context; `auto`: where the model is of a provider that asks for it. Default `auto`.',
    ),
  trigger: triggerSchema
    .optional()
    .describe(
      'When to compact: AND inside a clause, OR across; compared with overhead + context. Also `{economic: true}` and `{idle: ms}`. Default [{fraction: 0.85}].',
    ),
  target: z
    .number()
    .gt(0)
    .optional()
    .describe(
      'Size a compaction must reach. Up to 0.9: share of the smallest threshold without the overhead; above 1: tokens of overhead + context. Default 0.75, 0.6 without a journal; with `{economic: true}` at most head + what `keep` asks for.',
    ),
  keep: ceilingsSchema
    .optional()
    .describe(
      'What stays verbatim; the smallest ceiling given applies. Default with a journal: what it leaves of the target; otherwise {messages: 6, fraction: 0.25}, less where the target asks for less.',
    ),
  reduce: reduceSchema.optional(),
  summary: summarySchema.optional(),
  pins: z
    .array(pinSchema)
    .max(1_000)
    .refine((pins) => pins.filter((pin) => typeof pin === 'object' && 'pattern' in pin).length <= 100, {
      error: 'holds more than 100 patterns',
      params: { hint: 'Join patterns with `|`, or pin texts.' },
    })
    .optional()
    .describe(
      'Carried word for word in every head: texts, `{seq}` of messages, `{pattern}` matched in user and system messages, at most 100 in the syntax of RE2. Default none.',
    ),
  recovery: z
    .enum(['tools', 'none'])
    .optional()
    .describe(
      'Whether the agent has `recoveryTools`. `none`: head and excerpts name no tool; a change holds from the next compaction on. Default `tools`.',
    ),
  memory: memorySchema.optional().describe('What stands for the evicted in `journal` mode.'),
  prices: pricesSchema.optional(),
  spend: spendSchema.optional(),
  redact: z
    .union([
      z.literal(false),
      z.strictObject({
        secrets: z.boolean().optional().describe('Keys and tokens of known forms. Default true.'),
        patterns: z
          .array(patternSchema)
          .max(100)
          .optional()
          .describe(
            'Regular expressions of your own, at most 100 of 1,000 characters, in the syntax of RE2.',
          ),
      }),
    ])
    .optional()
    .describe(
      'What summarizer, snapshot and exact values never see: replaced by `[REDACTED:kind:hash]`. The log keeps the original. Default false.',
    ),
  retention: retentionSchema.optional(),
  deadCallAfter: milliseconds
    .optional()
    .describe(
      'Milliseconds after which a tool call that a later user message left behind counts as dead. Default 600,000.',
    ),
  debounceMs: milliseconds
    .optional()
    .describe('Quiet milliseconds to wait for before compacting. Default 0.'),
  idleAfter: milliseconds
    .min(1)
    .optional()
    .describe('Idle milliseconds until the session workflow ends. Default 3,600,000.'),
});

export type PolicyInput = z.infer<typeof policySchema>;
export type Overhead = NonNullable<PolicyInput['overhead']>;

/**
 * The policy as given, checked. Throws `Input.Invalid` with the path of the field (`policy.trigger[0].fraction`) and a hint.
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
      'Leave trigger out for [{fraction: 0.85}], or set enabled: false.',
    );
  }
  if (policy.target !== undefined && policy.target > 0.9 && policy.target <= 1) {
    throw invalid(
      `A target of ${policy.target} leaves too little below the threshold: the next turns would compact again.`,
      'policy.target',
      'Give a share up to 0.9, or a number of tokens.',
    );
  }
  return policy;
}
