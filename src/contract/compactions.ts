/** Results of compactions, and going back to earlier generations. */
import { z } from 'zod';
import { component, id, moment } from './schema.js';

const committed = {
  reason: z.string(),
  method: z.string(),
  tokensBefore: z.number(),
  tokensAfter: z.number(),
  evicted: z.int().describe('Number of evicted messages.'),
  chunks: z.int(),
  chunksByRule: z
    .int()
    .describe(
      'Texts that the fallback wrote because the model failed at them: digests of chunks, merged digests, summaries of messages.',
    ),
};

export type CompactionOutcome = z.infer<typeof compactionOutcome>;
export const compactionOutcome = component(
  'CompactionOutcome',
  z.object({
    generation: z.int(),
    ...committed,
    modelCalls: z.int(),
    modelInputTokens: z.number(),
    modelOutputTokens: z.number(),
    modelMs: z.number().describe('Milliseconds during which at least one model call was running.'),
    overheadMs: z.number().describe("The rest of the compaction's wall time, in milliseconds."),
    archivePart: z.int().nullable(),
    savedPerTurn: z.number().describe('Tokens that every later context saves.'),
    cachedTokens: z
      .number()
      .nullable()
      .describe(
        "Tokens at the beginning of the new context that the old one had as well, which a provider's prompt cache still serves; " +
          'null for a restore, and for commits of earlier versions.',
      ),
    cost: z.number().nullable().describe('Cost of the summarizer; null without prices.'),
    currency: z.string().nullable(),
    paysBackAfter: z
      .number()
      .nullable()
      .describe(
        'Number of later context reads after which the compaction has paid for itself, including the cache writes of the new head; null: never.',
      ),
    workflowId: z.string(),
    runId: z.string(),
  }),
  {
    description: 'One committed compaction in numbers.',
    example: {
      ...{ generation: 1, reason: 'manual', method: 'model', tokensBefore: 3_100, tokensAfter: 900 },
      ...{ evicted: 24, chunks: 1, chunksByRule: 0, modelCalls: 1 },
      ...{ modelInputTokens: 2_600, modelOutputTokens: 310 },
      ...{ modelMs: 840, overheadMs: 61, archivePart: 1, savedPerTurn: 2_200, cachedTokens: 140 },
      ...{ cost: null, currency: null, paysBackAfter: null },
      ...{ workflowId: 'compaction/acme/s-1/1', runId: '0198d2f7-53b7-7a6c-8f0e-51c9a0a0a0a0' },
    },
  },
);

export const compactionAnswer = component('CompactionAnswer', compactionOutcome.nullable(), {
  description:
    'The outcome; null if there was nothing to do or the result was refused (not smaller, or without a pin).',
  example: null,
});

export const compactionList = component(
  'CompactionList',
  z.object({ compactions: z.array(compactionOutcome) }),
  { description: 'The committed compactions, oldest first.', example: { compactions: [] } },
);

export const accepted = component(
  'Accepted',
  z.object({ status: z.string().describe("Path of the session's status, as in the header `location`.") }),
  { description: 'The compaction continues.', example: { status: '/v1/sessions/s-1/status' } },
);

export type TimelineTurn = z.infer<typeof timelineTurn>;
const timelineTurn = component(
  'TimelineTurn',
  z.object({
    turn: z.int().describe('Number of the turn, from 1.'),
    turnId: z.string(),
    at: moment.describe('When the turn was stored.'),
    saidAt: moment.nullable().describe('When its first message was said; null if this is unknown.'),
    fromSeq: z.int(),
    throughSeq: z.int(),
    tokens: z.number().describe("Tokens of the turn's messages."),
    logTokens: z
      .number()
      .describe('Tokens of all messages so far: the size of the context without compactions.'),
    contextTokens: z.number().describe('Tokens of the context after this turn.'),
  }),
  {
    description: 'A turn and the sizes after it.',
    example: {
      ...{ turn: 1, turnId: 't-1', at: '2026-03-02T09:00:01.000Z', saidAt: null, fromSeq: 1, throughSeq: 2 },
      ...{ tokens: 31, logTokens: 31, contextTokens: 31 },
    },
  },
);

export type TimelineCompaction = z.infer<typeof timelineCompaction>;
const timelineCompaction = component(
  'TimelineCompaction',
  z.object({
    generation: z.int(),
    at: moment,
    turn: z.int().describe('The turn after which the compaction was committed; 0: before the first.'),
    ...committed,
    part: z.int().nullable().describe('The archive part.'),
  }),
  {
    description: 'A compaction and its effect on the context.',
    example: {
      ...{ generation: 1, at: '2026-03-02T09:20:00.000Z', turn: 12, reason: 'trigger', method: 'model' },
      ...{ tokensBefore: 3_100, tokensAfter: 900, evicted: 24, chunks: 1, chunksByRule: 0, part: 1 },
    },
  },
);

export type Timeline = z.infer<typeof timeline>;
export const timeline = component(
  'Timeline',
  z.object({
    session: z.string(),
    tokens: z.number().describe('Tokens of the present context.'),
    budget: z.number().describe('Maximum number of context tokens.'),
    measureAt: z
      .number()
      .nullable()
      .describe('Context tokens at which the next measurement is due; null for none.'),
    turns: z.array(timelineTurn),
    compactions: z.array(timelineCompaction),
  }),
  {
    description: "The history of the context's size.",
    example: {
      ...{ session: 's-1', tokens: 31, budget: 28_672, measureAt: 24_371, turns: [], compactions: [] },
    },
  },
);

export const restoreRequest = component(
  'RestoreRequest',
  z.strictObject({
    generation: z
      .int()
      .min(0)
      .max(2 ** 31 - 1)
      .describe('The generation whose head is committed as a new generation; 0: the whole log.'),
  }),
  { description: 'Restores an earlier generation.', example: { generation: 0 } },
);

export type ForkRequest = z.infer<typeof forkRequest>;
export const forkRequest = component(
  'ForkRequest',
  z.strictObject({
    to: id().describe('Id of the new session.'),
    throughSeq: z.int().min(0).describe('Last message that the fork contains; 0 for none.'),
    expectedSeq: z
      .int()
      .min(0)
      .optional()
      .describe(
        'Last `seq` of this session that the caller has seen. A stale value is refused with `Store.StaleAppend`.',
      ),
    continues: id()
      .optional()
      .describe(
        'Session whose later `sync` calls use the fork. It must use the forked session until now: the session itself, or a fork that continues it. The fork may have been made before, without this field.',
      ),
  }),
  {
    description: 'A new session with the history of this one.',
    example: { to: 's-1-retry', throughSeq: 12 },
  },
);

export type Forked = z.infer<typeof forked>;
export const forked = component(
  'Forked',
  z.object({
    session: z.string(),
    messages: z.int().describe('Messages that the fork contains.'),
    generation: z.int().describe('Generation that the fork begins with.'),
    repeated: z.boolean().describe('The same fork was made before, and this call wrote nothing.'),
  }),
  {
    description: 'The new session.',
    example: { session: 's-1-retry', messages: 12, generation: 0, repeated: false },
  },
);
