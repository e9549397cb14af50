import { z } from 'zod';
import type { Policy } from '../../policy/resolve.js';
import type { PolicyRow } from '../../policy/describe.js';
import type { ArchivedTool, Status, SummaryRecord } from '../../contract/sessions.js';
import type { Journal } from '../../summary/journal/rewrites.js';
import { component, moment, opaque } from './component.js';
import { contextBreakdown } from './messages.js';

const summaryRecord = component<SummaryRecord>()(
  'SummaryRecord',
  z.object({
    generation: z.int(),
    at: moment,
    reason: z.string(),
    method: z.enum(['model', 'extractive', 'none']),
    fallback: z.boolean().describe('The extractive summarizer served because the model could not.'),
    chunksByRule: z.int().describe('Chunks that it served.'),
    range: z.object({ fromSeq: z.int(), throughSeq: z.int() }).nullable(),
    tokensBefore: z.number(),
    tokensAfter: z.number(),
    evicted: z.int(),
    summary: z.string().nullable().describe("The snapshot's first 500 characters."),
  }),
  {
    description: 'One committed generation, briefly.',
    example: {
      ...{
        generation: 1,
        at: '2026-03-02T09:00:00.000Z',
        reason: 'trigger',
        method: 'model',
        fallback: false,
        chunksByRule: 0,
      },
      ...{ range: { fromSeq: 1, throughSeq: 24 }, tokensBefore: 3_100, tokensAfter: 900, evicted: 24 },
      summary: 'The customer asks for order 4711 …',
    },
  },
);

const archivedTool = component<ArchivedTool>()(
  'ArchivedTool',
  z.object({
    callId: z.string(),
    tool: z.string().nullable(),
    seq: z.int(),
    part: z.int(),
    tokens: z.number(),
  }),
  {
    description: 'A result of a tool behind the head.',
    example: { callId: 'call_1', tool: 'get_order', seq: 3, part: 1, tokens: 812 },
  },
);

const journal = component<Journal>()(
  'Journal',
  z.object({
    entries: z.array(
      z.object({
        fromSeq: z.int(),
        throughSeq: z.int(),
        rank: z
          .int()
          .describe(
            'Merges that it went through: 0 as written, then one more than the highest that went in.',
          ),
        rewrites: z.number().describe('Merges that its lines went through in the mean, by tokens.'),
        lines: z.int().describe('That a summarizer wrote; 0 where only a pointer to the archive is left.'),
        tokens: z.number().describe('With what code has put behind these lines; without the heading.'),
        byRule: z.boolean().describe('No model answered: the rules wrote it, or a part of it.'),
      }),
    ),
    rewritesPerLine: z.number().describe('Mean over the lines.'),
  }),
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

const knob = component<PolicyRow>()(
  'PolicyKnob',
  z.object({
    path: z.string(),
    value: z.unknown(),
    source: opaque<PolicyRow['source']>({
      type: 'string',
      description: 'The layer that gave it, or `default`.',
    }),
    warning: z.string().optional().describe('The field was given and does not do what it says.'),
  }),
  {
    description: 'One knob of the policy in force.',
    example: { path: 'contextWindow', value: 128_000, source: 'session' },
  },
);

const exampleCounts = {
  messages: 2,
  liveMessages: 2,
  tokens: 31,
  budget: 28_672,
  generation: 0,
  failures: 0,
};

export const status = component<Omit<Status, 'policy'> & { policy: Partial<Policy> }>()(
  'Status',
  z.object({
    session: z.string(),
    messages: z.int().describe('In the log.'),
    liveMessages: z.int().describe('In the context.'),
    tokens: z.number(),
    window: z.object({ tokens: z.number(), source: z.string() }),
    budget: z.number(),
    breakdown: contextBreakdown.describe('Of `tokens`.'),
    journal: journal.nullable().describe('Null in other modes.'),
    promptCache: z
      .object({
        tokens: z.number().describe('Of `requestTokens`, those that the request before began with.'),
        requestTokens: z
          .number()
          .describe('Of the first request after the newest commit, overhead included.'),
      })
      .nullable()
      .describe(
        "What a provider's prompt cache serves across the newest commit; null before the first, behind a restore, and where an earlier version committed.",
      ),
    measureAt: z.number().nullable().describe('Context tokens at which the next measurement is due.'),
    generation: z.int(),
    phase: z.enum(['idle', 'appending', 'debouncing', 'measuring', 'compacting', 'asleep', 'unknown']),
    overdue: moment
      .nullable()
      .describe(
        'Since when it asks for a compaction that no workflow is known to be at work on; the sweep signals it.',
      ),
    paused: z.boolean().describe('No compaction begins until it is resumed.'),
    compaction: z.object({ generation: z.int(), workflowId: z.string(), startedAt: z.number() }).nullable(),
    exhausted: z.object({ atSeq: z.int(), tokens: z.number(), reason: z.string() }).nullable(),
    failures: z.int(),
    retryAt: moment.nullable(),
    lastError: z.object({ type: z.string(), message: z.string() }).nullable(),
    skippedPins: z
      .array(z.object({ path: z.string(), reason: z.string() }))
      .describe('Patterns of stored pins that are not matched, and why.'),
    rejectedTurns: z.array(z.object({ turnId: z.string(), type: z.string(), message: z.string() })),
    policy: opaque<Partial<Policy>>({ type: 'object', description: 'In force, every default filled in.' }),
    knobs: z.array(knob).describe('The same, with who set each.'),
    policyVersion: z.int(),
    calibration: z.object({
      model: z.string(),
      factor: z.number().describe("Provider's tokens for one of ours."),
      overhead: z.number().describe("Provider's tokens of a request beside its context."),
      samples: z.int(),
      applied: z.number().describe('The factor that the sizes above take.'),
      appliedOverhead: z.number(),
      warning: z.string().nullable().describe('A report of late that cannot be of its request.'),
    }),
    summaryRecords: z.array(summaryRecord).describe('Newest first, at most 50.'),
    toolHistoryArchived: z.object({ count: z.int(), tokens: z.number(), newest: z.array(archivedTool) }),
    summariesPerformed: z.int(),
    tokensSummarized: z.number(),
    lastSummary: z.string().nullable(),
    said: z
      .object({ first: moment.nullable(), last: moment.nullable() })
      .describe(
        'When the first message behind the instructions and the last one were said; null: nobody told.',
      ),
  }),
  {
    description: 'Sizes, effective policy, and what the workflow of the session is doing.',
    example: {
      ...{
        session: 's-1',
        ...exampleCounts,
        breakdown: {
          ...{ system: 0, head: 0, carried: 0, tail: 31 },
          parts: { note: 0, journal: 0, exact: 0, pins: 0, state: 0, snapshot: 0 },
        },
        journal: null,
        promptCache: null,
        window: { tokens: 32_768, source: 'fallback' },
        measureAt: 25_804,
      },
      ...{
        phase: 'idle',
        overdue: null,
        paused: false,
        compaction: null,
        exhausted: null,
        retryAt: null,
        lastError: null,
        skippedPins: [],
        rejectedTurns: [],
      },
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
