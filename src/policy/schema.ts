import { z } from 'zod';
import { invalid } from '../errors.js';
import { tokenizerNames } from '../tokens/counter.js';
import { complain } from './issues.js';
import { pricesSchema, spendSchema } from './money-schema.js';
import { reduceSchema } from './reduce-schema.js';
import { milliseconds, summarySchema, tokens } from './summary-schema.js';
import { ceilingsSchema, patternSchema, pinSchema, triggerSchema } from './trigger-schema.js';

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
    .max(0.6)
    .optional()
    .describe('Share of the budget that notes and state may take. Default 0.5.'),
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
      'Size a compaction must reach. Up to 0.9: share of the smallest threshold without the overhead; above 1: tokens of overhead + context. Default 0.6; with `{economic: true}` at most head + what `keep` asks for.',
    ),
  keep: ceilingsSchema
    .optional()
    .describe(
      'What stays verbatim; the smallest ceiling given applies. Default {messages: 6, fraction: 0.25}, less where the target asks for less.',
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
      'What summarizer, snapshot and ledger never see: replaced by `[REDACTED:kind:hash]`. The log keeps the original. Default false.',
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
