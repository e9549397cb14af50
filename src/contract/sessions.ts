/** Sessions: their lists, their status, and their erasure. */
import { z } from 'zod';
import { formatNames } from '../conversation/format-names.js';
import type { Policy } from '../policy/defaults.js';
import type { PolicyRow } from '../policy/describe.js';
import type { PolicySource } from '../policy/layers.js';
import type { SkippedPin } from '../summary/answer/pins.js';
import type { Journal } from '../summary/journal/rewrites.js';
import { contextBreakdown } from './context.js';
import { component, failure, id, moment, opaque } from './schema.js';

/** Lists sessions in the order of their ids, page by page. */
export type ListRequest = z.infer<typeof listRequest>;
export const listRequest = z.strictObject({
  after: id().optional().describe('`next` of the page before.'),
  limit: z.int().min(1).max(1_000).optional().describe('Maximum number of sessions. Default 100.'),
  prefix: id().optional().describe('Prefix of the session ids.'),
  failed: z.boolean().optional().describe('Only sessions whose latest attempt failed.'),
});

/** A session as stored. Nothing is computed, so that a page costs one statement. */
export type SessionSummary = z.infer<typeof sessionSummary>;
const sessionSummary = component(
  'SessionSummary',
  z.object({
    session: z.string(),
    format: z.enum(formatNames),
    messages: z.int(),
    turns: z.int(),
    tokens: z.number().describe('Tokens of the context.'),
    budget: z.number().describe('Maximum number of context tokens.'),
    generation: z.int(),
    exhausted: z.boolean(),
    paused: z.boolean(),
    lastError: failure.nullable(),
    closedAt: moment.nullable(),
    createdAt: moment,
    updatedAt: moment,
  }),
  {
    description: 'One line of a list of sessions.',
    example: {
      ...{ session: 's-1', format: 'openai-chat', messages: 2, turns: 1, tokens: 31, budget: 28_672 },
      ...{ generation: 0, exhausted: false, paused: false, lastError: null, closedAt: null },
      ...{ createdAt: '2026-03-02T09:00:00.000Z', updatedAt: '2026-03-02T09:00:01.000Z' },
    },
  },
);

export type SessionList = z.infer<typeof sessionList>;
export const sessionList = component(
  'SessionList',
  z.object({
    sessions: z.array(sessionSummary),
    next: z.string().nullable().describe('Value of `after` for the next page; null at the end.'),
  }),
  { description: 'Sessions in the order of their ids.', example: { sessions: [], next: null } },
);

export const eraseRequest = z.strictObject({
  forks: z
    .boolean()
    .optional()
    .describe('Also erases its forks, their forks, and forks begun meanwhile. Default `false`.'),
});

/** The result of an erasure. */
export type Erased = z.infer<typeof erased>;
export const erased = component(
  'Erased',
  z.object({
    messages: z.int(),
    generations: z.int().describe('Committed compactions.'),
    digests: z.int().describe('Digests that no other session uses.'),
    forks: z.int().describe('Number of forks that were erased as well.'),
    executions: z.int().describe('Workflow executions that Temporal deletes within about a minute.'),
    remaining: z
      .int()
      .nullable()
      .describe(
        'Executions whose deletion Temporal has not yet accepted; null if it did not answer. The sweep or a repeated call deletes them.',
      ),
  }),
  {
    description: 'The deleted rows of the session and of the forks erased with it.',
    example: { messages: 42, generations: 1, digests: 3, forks: 0, executions: 2, remaining: 0 },
  },
);

export type SummaryRecord = z.infer<typeof summaryRecord>;
const summaryRecord = component(
  'SummaryRecord',
  z.object({
    generation: z.int(),
    at: moment,
    reason: z.string(),
    method: z.enum(['model', 'extractive', 'none']),
    fallback: z
      .boolean()
      .describe('The extraction rules summarized some or all chunks, because the model failed.'),
    chunksByRule: z.int().describe('Texts that the fallback wrote because the model failed at them.'),
    range: z
      .object({ fromSeq: z.int(), throughSeq: z.int() })
      .nullable()
      .describe('Evicted messages; null for none.'),
    tokensBefore: z.number(),
    tokensAfter: z.number(),
    evicted: z.int().describe('Number of evicted messages.'),
    summary: z.string().nullable().describe('First 500 characters of the snapshot; null without one.'),
  }),
  {
    description: 'Summary of one committed generation.',
    example: {
      ...{ generation: 1, at: '2026-03-02T09:00:00.000Z', reason: 'trigger', method: 'model' },
      ...{ fallback: false, chunksByRule: 0, range: { fromSeq: 1, throughSeq: 24 } },
      ...{ tokensBefore: 3_100, tokensAfter: 900, evicted: 24 },
      summary: 'The customer asks for order 4711 …',
    },
  },
);

export type ArchivedTool = z.infer<typeof archivedTool>;
const archivedTool = component(
  'ArchivedTool',
  z.object({
    callId: z.string(),
    tool: z.string().nullable(),
    seq: z.int(),
    part: z.int(),
    tokens: z.number(),
  }),
  {
    description: 'A tool result that was evicted.',
    example: { callId: 'call_1', tool: 'get_order', seq: 3, part: 1, tokens: 812 },
  },
);

const journal = component(
  'Journal',
  z.object({
    entries: z.array(
      z.object({
        fromSeq: z.int(),
        throughSeq: z.int(),
        rank: z
          .int()
          .describe(
            'Number of merges: 0 for an entry as written, otherwise one more than the highest rank of the merged entries.',
          ),
        rewrites: z
          .number()
          .describe('Mean number of merges that its lines went through, weighted by their tokens.'),
        lines: z
          .int()
          .describe(
            'Lines that a summarizer wrote; 0 if an earlier version left only a pointer to the archive.',
          ),
        tokens: z
          .number()
          .describe('Tokens of the lines and of the exact values after them, without the heading.'),
        byRule: z.boolean().describe('No model answered: the extraction rules wrote all or a part of it.'),
      }),
    ),
    rewritesPerLine: z.number().describe('Mean number of merges over all lines.'),
  }) satisfies z.ZodType<Journal>,
  {
    description: 'Entries of `journal` mode, or layers of `layered`, oldest first.',
    example: {
      entries: [
        { fromSeq: 2, throughSeq: 57, rank: 1, rewrites: 1, lines: 9, tokens: 310, byRule: false },
        { fromSeq: 58, throughSeq: 84, rank: 0, rewrites: 0, lines: 9, tokens: 330, byRule: false },
      ],
      rewritesPerLine: 0.5,
    },
  },
);

const knob = component(
  'PolicyKnob',
  z.object({
    path: z.string(),
    value: z.unknown(),
    source: opaque<PolicySource>({
      type: 'string',
      description: 'The layer that set it, or `default`.',
    }),
    warning: z
      .string()
      .optional()
      .describe('Why the field, although set, does not take effect as written; absent otherwise.'),
  }) satisfies z.ZodType<PolicyRow>,
  {
    description: 'One setting of the policy in force.',
    example: { path: 'contextWindow', value: 128_000, source: 'session' },
  },
);

/** The composition of the context, by stored counts. */
const memory = {
  breakdown: contextBreakdown.describe('The parts of `tokens`.'),
  journal: journal
    .nullable()
    .describe('Entries of `journal` mode or layers of `layered`; null in other modes.'),
  promptCache: z
    .object({
      tokens: z
        .number()
        .describe('Tokens at the beginning of `requestTokens` that the request before had as well.'),
      requestTokens: z
        .number()
        .describe('Tokens of the first request after the newest commit, including overhead.'),
    })
    .nullable()
    .describe(
      "The tokens that a provider's prompt cache serves across the newest commit; null before the first commit, after a restore, and for commits of earlier versions.",
    ),
};

const records = {
  summaryRecords: z.array(summaryRecord).describe('Newest first, at most 50.'),
  toolHistoryArchived: z
    .object({ count: z.int(), tokens: z.number(), newest: z.array(archivedTool) })
    .describe('Evicted tool results: their number, their tokens, and the newest, at most 50.'),
  summariesPerformed: z.int().describe('Compactions that replaced messages by a summary.'),
  tokensSummarized: z.number().describe('Tokens of the messages that these compactions evicted.'),
  lastSummary: z
    .string()
    .nullable()
    .describe('First 500 characters of the present snapshot; null without one.'),
  said: z
    .object({ first: moment.nullable(), last: moment.nullable() })
    .describe(
      'When the first message after the instructions and the last message were said; null if this is unknown.',
    ),
};

export type SessionMemory = Pick<Status, keyof typeof memory>;
export type SessionRecords = Pick<Status, keyof typeof records>;
/** The reason why the session is exhausted. The next compaction is tried once the context has grown by `minGain`. */
export type Exhausted = NonNullable<Status['exhausted']>;
/**
 * The failure of the latest attempt. `fallback`: the model failed, and compactions continue without it until it may
 * be asked again.
 */
export type LastError = NonNullable<Status['lastError']> & { fallback?: boolean };

export type Status = z.infer<typeof status>;
export const status = component(
  'Status',
  z.object({
    session: z.string(),
    continuedIn: z
      .string()
      .nullable()
      .describe(
        'The fork in which `sync` goes on for this session, after messages were edited or removed. Other operations reach the ' +
          'present messages under this id. null: there is none.',
      ),
    messages: z.int().describe('Messages in the log.'),
    liveMessages: z.int().describe('Messages in the context.'),
    tokens: z.number().describe('Tokens of the context.'),
    window: z
      .object({
        tokens: z
          .number()
          .describe(
            'As counted here, like all sizes of this answer: `given` divided by `calibration.applied`.',
          ),
        given: z.number().describe("In the provider's tokens."),
        source: z
          .string()
          .describe(
            'Source of `given`: `explicit` (the policy), `model` (the registered window of the model) or `fallback`.',
          ),
      })
      .describe('Maximum number of tokens of a request and its answer.'),
    budget: z.number().describe('Maximum number of context tokens.'),
    ...memory,
    measureAt: z
      .number()
      .nullable()
      .describe('Context tokens at which the next measurement is due; null if nothing triggers one.'),
    generation: z.int(),
    phase: z
      .enum(['idle', 'appending', 'debouncing', 'measuring', 'compacting', 'asleep', 'unknown'])
      .describe(
        '`asleep`: no workflow runs, because none was needed for `idleAfter`; `unknown`: no worker answers.',
      ),
    overdue: moment
      .nullable()
      .describe(
        'Since when the session has needed a compaction that no workflow is known to work on; null for none. ' +
          'The sweep signals such a session.',
      ),
    paused: z
      .boolean()
      .describe('An operator has paused the session: no compaction begins until it is resumed.'),
    compaction: z.object({ generation: z.int(), workflowId: z.string(), startedAt: z.number() }).nullable(),
    exhausted: z.object({ atSeq: z.int(), tokens: z.number(), reason: z.string() }).nullable(),
    failures: z.int(),
    retryAt: moment.nullable(),
    lastError: failure.nullable(),
    skippedPins: z
      .array(z.object({ path: z.string(), reason: z.string() }) satisfies z.ZodType<SkippedPin>)
      .describe(
        'Stored pins whose patterns are skipped because this version refuses them, with the reasons.',
      ),
    rejectedTurns: z
      .array(z.object({ turnId: z.string(), ...failure.shape }))
      .describe('Inline turns that were refused, newest last, at most 20.'),
    policy: opaque<Policy>({
      type: 'object',
      description: 'The policy in force, with all defaults filled in.',
    }),
    knobs: z.array(knob).describe('The settings of the policy, each with its source.'),
    policyVersion: z.int().describe('Rises with every change of the policy or of the calibration in use.'),
    calibration: z.object({
      model: z
        .string()
        .describe("The policy's model; empty if neither the policy nor reported usage names one."),
      factor: z.number().describe("Provider's tokens for one counted token, derived from reported usage."),
      overhead: z.number().describe("Provider's tokens of a request in addition to its context."),
      samples: z.int().describe('Number of requests behind these values.'),
      applied: z.number().describe('The factor used for the sizes above.'),
      appliedOverhead: z.number().describe('The overhead used for the sizes above.'),
      warning: z
        .string()
        .nullable()
        .describe('A recent usage report that cannot belong to its request and was ignored.'),
    }),
    ...records,
  }),
  {
    description: "Sizes, effective policy, and what the session's workflow is doing now.",
    example: {
      ...{
        session: 's-1',
        continuedIn: null,
        messages: 2,
        liveMessages: 2,
        tokens: 31,
        budget: 28_672,
        generation: 0,
      },
      ...{ failures: 0, journal: null, promptCache: null, measureAt: 25_804 },
      breakdown: {
        ...{ system: 0, head: 0, carried: 0, tail: 31 },
        parts: { note: 0, journal: 0, exact: 0, pins: 0, state: 0, snapshot: 0 },
      },
      window: { tokens: 32_768, given: 32_768, source: 'fallback' },
      ...{ phase: 'idle', overdue: null, paused: false, compaction: null, exhausted: null },
      ...{ retryAt: null, lastError: null, skippedPins: [], rejectedTurns: [] },
      ...{ policy: {}, knobs: [], policyVersion: 1 },
      calibration: {
        ...{ model: '', factor: 1, overhead: 0, samples: 0 },
        ...{ applied: 1, appliedOverhead: 0, warning: null },
      },
      ...{ summaryRecords: [], toolHistoryArchived: { count: 0, tokens: 0, newest: [] } },
      ...{ summariesPerformed: 0, tokensSummarized: 0, lastSummary: null },
      said: { first: '2026-03-02T09:00:00.000Z', last: '2026-03-02T09:41:00.000Z' },
    },
  },
);
