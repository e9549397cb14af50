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
      .describe('Lower-case name, e.g. `risks`.'),
    title: z
      .string()
      .regex(/^[^\n#]{2,60}$/)
      .optional()
      .describe('Heading in the snapshot.'),
    asks: z.string().max(500).optional().describe('What belongs there, told to the summarizer.'),
  })
  .refine(({ key, title }) => title !== undefined || (sectionKeys as readonly string[]).includes(key), {
    error: 'needs a title',
    params: { hint: `Only ${sectionKeys.join(', ')} have a built-in title.` },
  });

export type SectionInput = z.infer<typeof sectionSchema>;

/** `policy.summary`: who writes the snapshot, how long it may be and what happens when it fails. */
export const summarySchema = z.strictObject({
  method: z
    .enum(['model', 'extractive'])
    .optional()
    .describe('Who writes the snapshot. `extractive` never calls a model. Default `model`.'),
  model: z
    .string()
    .min(1)
    .optional()
    .describe("Summarizer's model. Default: the environment's, else the agent's."),
  contextWindow: tokens
    .optional()
    .describe(
      "Summarizer's window in tokens. Default: registry by `summary.model`, else fallbackContextWindow; without `summary.model` the agent's window.",
    ),
  mode: z
    .enum(['journal', 'incremental', 'full_rewrite', 'layered'])
    .optional()
    .describe(
      '`journal` keeps dated notes with references and a state; `incremental` folds the previous snapshot with the new digests; `full_rewrite` rebuilds from the digests of the whole archive. `layered`, of earlier versions, is read as `journal`. Default `journal`.',
    ),
  maxTokens: z
    .int()
    .min(64)
    .max(100_000)
    .optional()
    .describe(
      'Longest snapshot, tokens. Default 2,000; made smaller where the head would not fit its ceiling.',
    ),
  ledgerTokens: z
    .int()
    .min(0)
    .max(100_000)
    .optional()
    .describe(
      'Most exact values behind the snapshot of `incremental` and `full_rewrite`, tokens; 0 for none. Default 1,000; made smaller with the snapshot.',
    ),
  chunkTokens: z
    .int()
    .min(256)
    .optional()
    .describe(
      "Transcript in one summarizer request, tokens. Default half the summarizer's window, at most 32,000; 0.6 of it, at most 48,000, with a journal.",
    ),
  concurrency: positive
    .max(64)
    .optional()
    .describe('Summarizer requests of one compaction in flight. Default 4.'),
  depthLimit: positive.max(20).optional().describe('Levels of the consolidation tree. Default 5.'),
  reservedOutputTokens: positive
    .optional()
    .describe(
      "Kept free for the summarizer's answer. Default 4,096, at most an eighth of its window, never below maxTokens.",
    ),
  deadline: milliseconds
    .min(1)
    .optional()
    .describe('Milliseconds until the fallback decides. Default 600,000 (10 min).'),
  retryAfterFailure: milliseconds
    .min(1)
    .optional()
    .describe(
      'Milliseconds before a session tries again after a failed compaction; doubles each time. Default 60,000.',
    ),
  prompt: z
    .string()
    .min(1)
    .max(20_000)
    .optional()
    .describe(
      'Instructions of your own in place of the built-in ones; `{sections}` and `{words}` are filled in. That the record is data is always said as well. Default built in.',
    ),
  sections: z
    .array(sectionSchema)
    .min(1)
    .max(20)
    .optional()
    .describe(
      'Sections of the snapshot in order: `{key, title, asks}`. Keys `intent`, `constraints`, `decisions`, `artifacts`, `facts`, `state`, `next` have a built-in title and wording. Default these seven.',
    ),
  structured: z
    .enum(['auto', 'off'])
    .optional()
    .describe(
      '`auto`: JSON by schema where the endpoint offers it, tolerant reading otherwise. Default `auto`.',
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
    .describe("Assistant's reply after the summary turn; false: none."),
  integrityCheck: z
    .boolean()
    .optional()
    .describe(
      'Without effect; of earlier versions. Exact values stand behind every snapshot, and rules that only a tool stated are always moved to its facts.',
    ),
  minGain: z
    .number()
    .min(0)
    .lt(1)
    .optional()
    .describe('Share of the context a compaction must save, or it is refused. Default 0.1.'),
  fallback: z
    .enum(['extractive', 'none'])
    .optional()
    .describe('What serves when the model is out of reach past the deadline. Default `extractive`.'),
});
