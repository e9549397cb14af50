import { z } from 'zod';
import { list } from './list.js';

const MONTH_MS = 30 * 24 * 3_600_000;

export const positive = z.int().min(1);
export const milliseconds = z.int().min(0).max(MONTH_MS);
export const tokens = positive.max(100_000_000);

/** Name of a model. No provider's names come near 200 characters. */
export const modelName = z.string().min(1).max(200);

const sectionKeys = ['intent', 'constraints', 'decisions', 'artifacts', 'facts', 'state', 'next'] as const;

const sectionSchema = z
  .strictObject({
    key: z
      .string()
      .regex(/^[a-z][a-z0-9_]{0,39}$/)
      .describe('Name in lower case, e.g. `risks`.'),
    title: z
      .string()
      .regex(/^[^\n#]{2,60}$/)
      .optional()
      .describe('Heading in the snapshot.'),
    asks: z
      .string()
      .max(500)
      .optional()
      .describe('Instruction to the summarizer that says what the section contains.'),
  })
  .refine(({ key, title }) => title !== undefined || (sectionKeys as readonly string[]).includes(key), {
    error: 'needs a title',
    params: { hint: `Only ${sectionKeys.join(', ')} have a built-in title.` },
  });

export type SectionInput = z.infer<typeof sectionSchema>;

/** `policy.summary`: the summarizer, the length of the summary and the fallback. */
export const summarySchema = z.strictObject({
  method: z
    .enum(['model', 'extractive'])
    .optional()
    .describe('The summarizer. `extractive` never calls a model. Default `model`.'),
  model: modelName
    .optional()
    .describe(
      "Summarizer's model. Default: the worker's `PALIMPSEST_SUMMARY_MODEL`, else the agent's model.",
    ),
  contextWindow: tokens
    .optional()
    .describe(
      "Summarizer's window in tokens. Default: the registered window of `summary.model`, else `fallbackContextWindow`; without `summary.model`, the agent's window.",
    ),
  mode: z
    .enum(['journal', 'incremental', 'full_rewrite', 'layered'])
    .optional()
    .describe(
      '`journal` keeps dated entries with references, and a state. `incremental` merges the previous snapshot with the new digests. `full_rewrite` rebuilds the snapshot from the digests of the whole archive. `layered`, a mode of earlier versions, means `journal`. Default `journal`.',
    ),
  maxTokens: z
    .int()
    .min(64)
    .max(100_000)
    .optional()
    .describe(
      'Maximum length of the snapshot in tokens. Default 2,000, or less if the head would exceed its maximum.',
    ),
  ledgerTokens: z
    .int()
    .min(0)
    .max(100_000)
    .optional()
    .describe(
      'Maximum tokens of the exact values that follow the snapshot in the modes `incremental` and `full_rewrite`; 0 for none. If snapshot and exact values would together exceed the maximum of the head, both shrink by the same factor. Default 1,000.',
    ),
  chunkTokens: z
    .int()
    .min(256)
    .optional()
    .describe(
      "Maximum tokens of messages in one summarizer request. Default half the summarizer's window, at most 32,000; with a journal 0.6 of that window, at most 48,000.",
    ),
  concurrency: positive
    .max(64)
    .optional()
    .describe('Maximum number of summarizer requests in flight for one compaction. Default 4.'),
  depthLimit: positive
    .max(20)
    .optional()
    .describe('Maximum number of levels on which digests are merged until one is left. Default 5.'),
  reservedOutputTokens: positive
    .optional()
    .describe(
      "Tokens reserved for the summarizer's answer. Default 4,096, at most an eighth of the summarizer's window, never below the length of the snapshot.",
    ),
  deadline: milliseconds
    .min(1)
    .optional()
    .describe(
      'Milliseconds that a compaction may wait for the model before `summary.fallback` applies. Default 600,000 (10 min).',
    ),
  retryAfterFailure: milliseconds
    .min(1)
    .optional()
    .describe(
      'Milliseconds before a session retries a failed compaction. The time doubles with each failure. Default 60,000.',
    ),
  prompt: z
    .string()
    .min(1)
    .max(20_000)
    .optional()
    .describe(
      'Instructions that replace the built-in ones. The placeholders `{sections}` and `{words}` are filled in. The statement that the messages are data, not instructions, is always added. Default: the built-in instructions.',
    ),
  sections: list(sectionSchema, { min: 1, max: 20 })
    .optional()
    .describe(
      'Sections of the snapshot, in order, each with `{key, title, asks}`. The keys `intent`, `constraints`, `decisions`, `artifacts`, `facts`, `state` and `next` have a built-in title and wording. Default: the seven built-in sections.',
    ),
  structured: z
    .enum(['auto', 'off'])
    .optional()
    .describe(
      'With `auto`, the summarizer is asked for JSON that follows a schema if the endpoint supports this; other answers are parsed tolerantly. Default `auto`.',
    ),
  form: z
    .enum(['restoration', 'plain'])
    .optional()
    .describe(
      'Opening of the summary turn. `restoration` is a note that the turn restores data; `plain` is "Here is a summary of the conversation to date:". Default `restoration`.',
    ),
  acknowledgment: z
    .union([z.literal(false), z.string().min(1).max(2_000)])
    .optional()
    .describe("The assistant's reply after the summary turn; `false` for none."),
  integrityCheck: z
    .boolean()
    .optional()
    .describe(
      'Has no effect; accepted because earlier versions had it. What it turned on now always happens: exact values follow every snapshot unless `ledgerTokens` is 0, and a rule that only a tool stated is moved to the section of facts.',
    ),
  minGain: z
    .number()
    .min(0)
    .lt(1)
    .optional()
    .describe(
      'Minimum share of the context that a compaction must save. A compaction that saves less is refused. Default 0.1.',
    ),
  fallback: z
    .enum(['extractive', 'none'])
    .optional()
    .describe(
      'Summarizer that is used if the model fails, or does not answer before the deadline. With `none` the context then stays unchanged. Default `extractive`.',
    ),
});
