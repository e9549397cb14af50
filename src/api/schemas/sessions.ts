import { z } from 'zod';
import type { Erased, SessionList, SessionPolicy, SessionSummary } from '../../contract/client.js';
import type { CompactionOutcome } from '../../contract/workflows.js';
import type {
  Forked,
  ForkRequest,
  Timeline,
  TimelineCompaction,
  TimelineTurn,
} from '../../contract/sessions.js';
import { formatNames } from '../../conversation/format-names.js';
import { type PolicyInput, policySchema } from '../../policy/schema.js';
import { component, moment } from './component.js';

const policyExample: PolicyInput = { contextWindow: 128_000, trigger: { fraction: 0.8 } };

export const policy = component<PolicyInput>()('Policy', policySchema, {
  description: 'A policy as people write it: what is left out has its default; README has the table.',
  example: policyExample,
});

const lastError = z.object({ type: z.string(), message: z.string() }).nullable();

const sessionSummary = component<SessionSummary>()(
  'SessionSummary',
  z.object({
    session: z.string(),
    format: z.enum(formatNames),
    messages: z.int(),
    turns: z.int(),
    tokens: z.number().describe('Of the context.'),
    budget: z.number(),
    generation: z.int(),
    exhausted: z.boolean(),
    paused: z.boolean(),
    lastError,
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

/** Sessions, what was done to them, and their policies. */
export const sessionList = component<SessionList>()(
  'SessionList',
  z.object({
    sessions: z.array(sessionSummary),
    next: z.string().nullable().describe('Give it as `after` to read on; null at the end.'),
  }),
  { description: 'Sessions in order of their ids.', example: { sessions: [], next: null } },
);

export const compactionOutcome = component<CompactionOutcome>()(
  'CompactionOutcome',
  z.object({
    generation: z.int(),
    reason: z.string(),
    method: z.string(),
    tokensBefore: z.number(),
    tokensAfter: z.number(),
    evicted: z.int().describe('Messages.'),
    chunks: z.int(),
    chunksByRule: z.int().describe('Chunks that the fallback served, because the model failed at them.'),
    modelCalls: z.int(),
    modelInputTokens: z.number(),
    modelOutputTokens: z.number(),
    modelMs: z.number().describe('Milliseconds in which a model call was in flight.'),
    overheadMs: z.number().describe("The rest of the compaction's milliseconds."),
    archivePart: z.int().nullable(),
    savedPerTurn: z.number().describe('Tokens by which every later context is smaller.'),
    cachedTokens: z
      .number()
      .nullable()
      .describe(
        'Of `tokensAfter`: the beginning that the context had before as well; null for a restore, and for what earlier versions committed.',
      ),
    cost: z.number().nullable(),
    currency: z.string().nullable(),
    paysBackAfter: z.number().nullable().describe('Context reads; null: never.'),
    workflowId: z.string(),
    runId: z.string(),
  }),
  {
    description: 'One committed compaction in numbers.',
    example: {
      ...{ generation: 1, reason: 'manual', method: 'model', tokensBefore: 3_100, tokensAfter: 900 },
      ...{
        evicted: 24,
        chunks: 1,
        chunksByRule: 0,
        modelCalls: 1,
        modelInputTokens: 2_600,
        modelOutputTokens: 310,
      },
      ...{ modelMs: 840, overheadMs: 61, archivePart: 1, savedPerTurn: 2_200, cachedTokens: 140 },
      ...{ cost: null, currency: null, paysBackAfter: null },
      ...{ workflowId: 'compaction/acme/s-1/1', runId: '0198d2f7-53b7-7a6c-8f0e-51c9a0a0a0a0' },
    },
  },
);

export const compactionAnswer = component<CompactionOutcome | null>()(
  'CompactionAnswer',
  compactionOutcome.nullable(),
  { description: 'The outcome; null: there was nothing to do.', example: null },
);

export const compactionList = component<{ compactions: CompactionOutcome[] }>()(
  'CompactionList',
  z.object({ compactions: z.array(compactionOutcome) }),
  { description: 'Every committed compaction, oldest first.', example: { compactions: [] } },
);

const turnOfTimeline = component<TimelineTurn>()(
  'TimelineTurn',
  z.object({
    turn: z.int().describe('From 1.'),
    turnId: z.string(),
    at: moment,
    saidAt: moment.nullable().describe('When its first message was said; null where nobody told.'),
    fromSeq: z.int(),
    throughSeq: z.int(),
    tokens: z.number().describe("Of the turn's messages."),
    logTokens: z.number().describe('Of all messages up to here: the context without compactions.'),
    contextTokens: z.number().describe('Of the context after this turn.'),
  }),
  {
    description: 'A turn and the sizes after it.',
    example: {
      ...{ turn: 1, turnId: 't-1', at: '2026-03-02T09:00:01.000Z', saidAt: null, fromSeq: 1, throughSeq: 2 },
      ...{ tokens: 31, logTokens: 31, contextTokens: 31 },
    },
  },
);

const compactionOfTimeline = component<TimelineCompaction>()(
  'TimelineCompaction',
  z.object({
    generation: z.int(),
    at: moment,
    turn: z.int().describe('The turn behind which it was committed; 0: before the first.'),
    reason: z.string(),
    method: z.string(),
    tokensBefore: z.number(),
    tokensAfter: z.number(),
    evicted: z.int().describe('Messages.'),
    chunks: z.int(),
    chunksByRule: z.int().describe('Chunks that the fallback served, because the model failed at them.'),
    part: z.int().nullable().describe('The archive part.'),
  }),
  {
    description: 'A compaction and what it made of the context.',
    example: {
      ...{ generation: 1, at: '2026-03-02T09:20:00.000Z', turn: 12, reason: 'trigger', method: 'model' },
      ...{ tokensBefore: 3_100, tokensAfter: 900, evicted: 24, chunks: 1, chunksByRule: 0, part: 1 },
    },
  },
);

export const timeline = component<Timeline>()(
  'Timeline',
  z.object({
    session: z.string(),
    tokens: z.number().describe('Of the context now.'),
    budget: z.number(),
    measureAt: z.number().nullable().describe('Tokens at which it is measured next; null: at none.'),
    turns: z.array(turnOfTimeline),
    compactions: z.array(compactionOfTimeline),
  }),
  {
    description: "How the context's size went.",
    example: {
      ...{ session: 's-1', tokens: 31, budget: 28_672, measureAt: 24_371, turns: [], compactions: [] },
    },
  },
);

export const accepted = component<{ status: string }>()(
  'Accepted',
  z.object({ status: z.string().describe('Path of the status of the session, also in `location`.') }),
  { description: 'The compaction goes on.', example: { status: '/v1/sessions/s-1/status' } },
);

export const erased = component<Erased>()(
  'Erased',
  z.object({
    messages: z.int(),
    generations: z.int().describe('Committed compactions.'),
    digests: z.int().describe('Texts that models wrote and that no other session refers to.'),
    forks: z.int().describe('Forks that were erased as well.'),
    executions: z
      .int()
      .describe('Workflow executions that Temporal was told to delete, which it does within about a minute.'),
    remaining: z
      .int()
      .nullable()
      .describe(
        'Executions that it was not told to delete yet; null: it did not answer. They are deleted later.',
      ),
  }),
  {
    description: 'What was deleted, over the session and the forks erased with it.',
    example: { messages: 42, generations: 1, digests: 3, forks: 0, executions: 2, remaining: 0 },
  },
);

export const sessionPolicy = component<SessionPolicy>()(
  'SessionPolicy',
  z.object({ policy, policyVersion: z.int() }),
  {
    description: 'The policy as given here; `{}` where nothing is.',
    example: { policy: policyExample, policyVersion: 2 },
  },
);

export const policyBody = component<{ policy: PolicyInput }>()('PolicyRequest', z.strictObject({ policy }), {
  description: 'Replaces the policy.',
  example: { policy: policyExample },
});

export const policyVersion = component<{ policyVersion: number }>()(
  'PolicyVersion',
  z.object({ policyVersion: z.int() }),
  { description: 'The version now in force.', example: { policyVersion: 3 } },
);

type Pins = NonNullable<PolicyInput['pins']>;

export const pinsBody = component<{ pins: Pins }>()(
  'Pins',
  z.strictObject({ pins: policySchema.shape.pins.unwrap() }),
  {
    description: "The pins of the session's own policy: texts, `{seq}` of messages, `{pattern}`.",
    example: { pins: ['Never contact the customer by phone.', { seq: 1 }] },
  },
);

export const restoreBody = component<{ generation: number }>()(
  'RestoreRequest',
  z.strictObject({
    generation: z.int().min(0).describe('Its head is committed as a new generation; 0: the whole log.'),
  }),
  { description: 'Goes back to an earlier generation.', example: { generation: 0 } },
);

export const forkBody = component<ForkRequest>()(
  'ForkRequest',
  z.strictObject({
    to: z.string().min(1).describe('Id of the new session.'),
    throughSeq: z.int().min(1).describe('Last message that it takes over.'),
  }),
  { description: "A new session with this one's past.", example: { to: 's-1-retry', throughSeq: 12 } },
);

export const forked = component<Forked>()(
  'Forked',
  z.object({
    session: z.string(),
    messages: z.int(),
    generation: z.int(),
    repeated: z.boolean().describe('This very fork was made before.'),
  }),
  {
    description: 'The new session.',
    example: { session: 's-1-retry', messages: 12, generation: 0, repeated: false },
  },
);
