import { z } from 'zod';
import { invalid } from '../errors.js';
import { tokenizerForModel, tokenizerNames, type TokenizerName } from '../tokens/counter.js';
import { complain } from './issues.js';
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

const ceilings = z
  .strictObject({
    messages: positive.optional().describe('Newest messages.'),
    tokens: tokens.optional().describe('Tokens of the newest messages.'),
    fraction: z.number().gt(0).lt(1).optional().describe('The same as a share of the window.'),
  })
  .refine((given) => Object.values(given).some((value) => value !== undefined), {
    error: 'names no ceiling',
    params: { hint: 'Give at least one of messages, tokens, fraction, or leave keep out for the default.' },
  });

/** A policy as people write it. Every field may be left out; unknown fields are errors. */
export const policySchema = z.strictObject({
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
    .union([z.int().min(0), z.array(z.string())])
    .optional()
    .describe('System prompt and tool schemas outside the log: tokens, or the texts to count. Default 0.'),
  tokenizer: z.enum(tokenizerNames).optional().describe("Default: the model's; o200k_base without a model."),
  trigger: z
    .union([clause, z.array(clause).max(20)])
    .optional()
    .describe(
      'When to compact: AND inside a clause, OR across; compared with overhead + context. Default [{fraction: 0.85}].',
    ),
  target: z
    .number()
    .gt(0)
    .optional()
    .describe(
      'Size a compaction must reach. Up to 0.9: share of the smallest threshold without the overhead; above 1: tokens of overhead + context. Default 0.6.',
    ),
  keep: ceilings
    .optional()
    .describe(
      'What stays verbatim; the smallest ceiling given applies. Default {messages: 6, fraction: 0.25}, less where the target asks for less.',
    ),
  summary: summarySchema.optional(),
  pins: z
    .array(z.string().min(1))
    .max(1_000)
    .optional()
    .describe('Texts carried verbatim in every head. Default none.'),
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
export type TriggerClause = z.infer<typeof clause>;
export type KeepCeilings = z.infer<typeof ceilings>;

/** A policy with every default filled in. null: nothing given, `limitsOf` derives it from the window. */
export interface Policy {
  enabled: boolean;
  model: string | null;
  contextWindow: number | null;
  fallbackContextWindow: number;
  reservedOutputTokens: number | null;
  overhead: number | string[];
  tokenizer: TokenizerName;
  trigger: TriggerClause[];
  target: number;
  keep: KeepCeilings | null;
  summary: {
    method: 'model' | 'extractive';
    model: string | null;
    contextWindow: number | null;
    maxTokens: number;
    ledgerTokens: number;
    chunkTokens: number | null;
    concurrency: number;
    depthLimit: number;
    reservedOutputTokens: number | null;
    deadline: number;
    retryAfterFailure: number;
    acknowledgment: string;
    minGain: number;
    fallback: 'extractive' | 'none';
  };
  pins: string[];
  deadCallAfter: number;
  debounceMs: number;
  idleAfter: number;
}

export const DEFAULT_ACKNOWLEDGMENT =
  'Understood. I have the earlier work as summarized above and continue from there.';

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

export function resolvePolicy(input: PolicyInput): Policy {
  const { summary = {} } = input;
  const trigger = input.trigger ?? { fraction: 0.85 };
  return {
    enabled: input.enabled ?? true,
    model: input.model ?? null,
    contextWindow: input.contextWindow ?? null,
    fallbackContextWindow: input.fallbackContextWindow ?? 32_768,
    reservedOutputTokens: input.reservedOutputTokens ?? null,
    overhead: input.overhead ?? 0,
    tokenizer: input.tokenizer ?? tokenizerForModel(input.model),
    trigger: Array.isArray(trigger) ? trigger : [trigger],
    target: input.target ?? 0.6,
    keep: input.keep ?? null,
    summary: {
      method: summary.method ?? 'model',
      model: summary.model ?? null,
      contextWindow: summary.contextWindow ?? null,
      maxTokens: summary.maxTokens ?? 2_000,
      ledgerTokens: summary.ledgerTokens ?? 1_000,
      chunkTokens: summary.chunkTokens ?? null,
      concurrency: summary.concurrency ?? 4,
      depthLimit: summary.depthLimit ?? 5,
      reservedOutputTokens: summary.reservedOutputTokens ?? null,
      deadline: summary.deadline ?? 600_000,
      retryAfterFailure: summary.retryAfterFailure ?? 60_000,
      acknowledgment: summary.acknowledgment ?? DEFAULT_ACKNOWLEDGMENT,
      minGain: summary.minGain ?? 0.1,
      fallback: summary.fallback ?? 'extractive',
    },
    pins: input.pins ?? [],
    deadCallAfter: input.deadCallAfter ?? 600_000,
    debounceMs: input.debounceMs ?? 0,
    idleAfter: input.idleAfter ?? 3_600_000,
  };
}

/** The policy with the environment's summarizer where it names none itself. */
export function withSummarizer(
  policy: PolicyInput,
  { model, contextWindow }: { model?: string; contextWindow?: number },
): PolicyInput {
  if (policy.summary?.model !== undefined || (model === undefined && contextWindow === undefined))
    return policy;
  return {
    ...policy,
    summary: {
      ...policy.summary,
      ...(model === undefined ? {} : { model }),
      ...(contextWindow === undefined || policy.summary?.contextWindow !== undefined
        ? {}
        : { contextWindow }),
    },
  };
}
