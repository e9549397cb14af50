import { z } from 'zod';

const MONTH_MS = 30 * 24 * 3_600_000;

export const positive = z.int().min(1);
export const milliseconds = z.int().min(0).max(MONTH_MS);
export const tokens = positive.max(100_000_000);

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
      .describe('Content of the section, as an instruction to the summarizer.'),
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
  model: z
    .string()
    .min(1)
    .optional()
    .describe("Summarizer's model. Default: the environment's, else the agent's."),
  contextWindow: tokens
    .optional()
    .describe(
      "Summarizer's window in tokens. Default: the registry's for `summary.model`, else fallbackContextWindow; without `summary.model`, the agent's window.",
    ),
  mode: z
    .enum(['journal', 'incremental', 'full_rewrite', 'layered'])
    .optional()
    .describe(
      '`journal` keeps dated notes with references, and a state. `incremental` merges the previous snapshot with the new digests. `full_rewrite` rebuilds the snapshot from the digests of the whole archive. `layered`, a mode of earlier versions, is read as `journal`. Default `journal`.',
    ),
  maxTokens: z
    .int()
    .min(64)
    .max(100_000)
    .optional()
    .describe(
      'Maximum length of the snapshot in tokens. Default 2,000; reduced if the head would exceed its ceiling.',
    ),
  ledgerTokens: z
    .int()
    .min(0)
    .max(100_000)
    .optional()
    .describe(
      'Maximum tokens of exact values after the snapshot of `incremental` and `full_rewrite`; 0 for none. Default 1,000; reduced with the snapshot.',
    ),
  chunkTokens: z
    .int()
    .min(256)
    .optional()
    .describe(
      "Tokens of transcript in one summarizer request. Default half the summarizer's window, at most 32,000; with a journal 0.6 of the window, at most 48,000.",
    ),
  concurrency: positive
    .max(64)
    .optional()
    .describe('Maximum number of summarizer requests in flight for one compaction. Default 4.'),
  depthLimit: positive
    .max(20)
    .optional()
    .describe('Maximum number of levels in the consolidation tree. Default 5.'),
  reservedOutputTokens: positive
    .optional()
    .describe(
      "Tokens reserved for the summarizer's answer. Default 4,096, at most an eighth of its window, never below maxTokens.",
    ),
  deadline: milliseconds
    .min(1)
    .optional()
    .describe('Milliseconds until the fallback applies. Default 600,000 (10 min).'),
  retryAfterFailure: milliseconds
    .min(1)
    .optional()
    .describe(
      'Milliseconds before a session retries a failed compaction; doubles with each failure. Default 60,000.',
    ),
  prompt: z
    .string()
    .min(1)
    .max(20_000)
    .optional()
    .describe(
      'Instructions that replace the built-in ones; `{sections}` and `{words}` are filled in. The prompt always adds that the record is data. Default built in.',
    ),
  sections: z
    .array(sectionSchema)
    .min(1)
    .max(20)
    .optional()
    .describe(
      'Sections of the snapshot in order: `{key, title, asks}`. Keys `intent`, `constraints`, `decisions`, `artifacts`, `facts`, `state`, `next` have a built-in title and wording. Default: these seven.',
    ),
  structured: z
    .enum(['auto', 'off'])
    .optional()
    .describe(
      '`auto` requests JSON by schema if the endpoint offers it, and parses answers tolerantly otherwise. Default `auto`.',
    ),
  form: z
    .enum(['restoration', 'plain'])
    .optional()
    .describe(
      'Opening of the summary turn: a note on restored data, or "Here is a summary of the conversation to date:". Default `restoration`.',
    ),
  acknowledgment: z
    .union([z.literal(false), z.string().min(1).max(2_000)])
    .optional()
    .describe("The assistant's reply after the summary turn; false for none."),
  integrityCheck: z
    .boolean()
    .optional()
    .describe(
      'No effect; kept from earlier versions. Exact values follow every snapshot, and rules that only a tool stated are always moved to its facts.',
    ),
  minGain: z
    .number()
    .min(0)
    .lt(1)
    .optional()
    .describe('Share of the context that a compaction must save; a smaller saving is refused. Default 0.1.'),
  fallback: z
    .enum(['extractive', 'none'])
    .optional()
    .describe('Summarizer used if the model is unreachable past the deadline. Default `extractive`.'),
});
