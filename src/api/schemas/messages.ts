import { z } from 'zod';
import type { ContextBreakdown } from '../../context/view/breakdown.js';
import type { AppendedTurn } from '../../contract/client.js';
import {
  type ChatMessage,
  type Json,
  type LoggedMessage,
  MessagesText,
  type Native,
  roles,
} from '../../conversation/message.js';
import type { TurnOrText } from '../../library/palimpsest.js';
import { contextFormats, formatNames } from '../../conversation/format-names.js';
import type { MessageWarning } from '../../conversation/validate.js';
import type { ContextEntry, SessionContext } from '../../contract/context.js';
import type { Expansion } from '../../contract/archive.js';
import type { UsageReport } from '../../tokens/reported-usage.js';
import { component, opaque } from './component.js';
import { policy } from './sessions.js';

const noParts = { note: 0, journal: 0, exact: 0, pins: 0, state: 0, snapshot: 0 };

const chat: ChatMessage = { role: 'user', content: 'Where is my order 4711?' };

/** Checked by the session's format, which names the field of the message that is wrong. */
const nativeMessages = opaque<TurnBody['messages']>(
  {
    type: 'array',
    minItems: 1,
    items: { type: 'object' },
    description: "In the session's format, at least one.",
  },
  {
    is: (value) => Array.isArray(value) || value instanceof MessagesText,
    otherwise: 'must be a list of messages',
  },
);

const chatMessage = component<ChatMessage>()(
  'ChatMessage',
  opaque<ChatMessage>({
    type: 'object',
    required: ['role'],
    properties: {
      role: { enum: [...roles] },
      content: {
        anyOf: [
          { type: 'string' },
          {
            type: 'array',
            items: { type: 'object', required: ['type'], properties: { type: { type: 'string' } } },
          },
          { type: 'null' },
        ],
      },
      name: { type: 'string' },
      tool_calls: { type: 'array', items: { type: 'object' } },
      tool_call_id: { type: 'string' },
    },
    additionalProperties: true,
  }),
  {
    description: 'An OpenAI chat-completions message; fields beyond the known ones are kept.',
    example: chat,
  },
);

const json = opaque<Json>({});

const native = component<Native>()(
  'NativeItems',
  z.object({
    format: z.enum(formatNames),
    items: z.array(json).describe('As they came in.'),
    messages: z.int().describe('How many messages of the log they mean, from this one on.'),
  }),
  {
    description: 'What came in, where the session has another format than `openai-chat`.',
    example: {
      format: 'anthropic',
      items: [{ role: 'user', content: [{ type: 'text', text: 'Where is my order 4711?' }] }],
      messages: 1,
    },
  },
);

/** Turns, contexts and the log. */
export const loggedMessage = component<LoggedMessage>()(
  'LoggedMessage',
  z.object({
    seq: z.int().describe('Place in the log, from 1.'),
    message: chatMessage,
    tokens: z.number().describe("Tokens in a request, by the session's tokenizer."),
    at: z.string().optional().describe('When it was said, ISO 8601 in UTC; absent where nobody told.'),
    native: native.optional(),
  }),
  { description: 'An original of the log, exact.', example: { seq: 1, message: chat, tokens: 12 } },
);

const tokens = { type: 'integer', minimum: 0 };
const maybe = { anyOf: [tokens, { type: 'null' }] };
const model = { type: 'string', description: "As the provider names it. Default: the policy's." };

const gemini = {
  type: 'object',
  required: ['promptTokenCount'],
  description: '`usageMetadata` of Gemini; cached content is part of `promptTokenCount`.',
  properties: { promptTokenCount: tokens, candidatesTokenCount: maybe, thoughtsTokenCount: maybe, model },
};

/** Checked by `readUsage`, which names the field. */
const usage = component<UsageReport>()(
  'ReportedUsage',
  opaque<UsageReport>({
    anyOf: [
      {
        type: 'object',
        required: ['inputTokens', 'outputTokens'],
        properties: {
          inputTokens: {
            ...tokens,
            description: 'The whole request, tokens read from or written to a cache included.',
          },
          outputTokens: tokens,
          model,
        },
        additionalProperties: false,
      },
      {
        type: 'object',
        required: ['prompt_tokens'],
        description: '`usage` of OpenAI’s chat completions; cached tokens are part of `prompt_tokens`.',
        properties: { prompt_tokens: tokens, completion_tokens: maybe, model },
      },
      {
        type: 'object',
        required: ['input_tokens'],
        description:
          '`usage` of OpenAI’s Responses API, where cached tokens are part of `input_tokens`; or of Anthropic’s ' +
          'messages, where the cached ones are added.',
        properties: {
          input_tokens: tokens,
          cache_creation_input_tokens: maybe,
          cache_read_input_tokens: maybe,
          output_tokens: maybe,
          model,
        },
      },
      gemini,
      { type: 'object', required: ['usageMetadata'], properties: { usageMetadata: gemini, model } },
    ],
  }),
  {
    description:
      'What the provider reported for the request behind the first assistant message of the turn: its own usage object ' +
      'as it came, or two numbers.',
    example: { inputTokens: 1_204, outputTokens: 87, model: 'gpt-4o' },
  },
);

export type TurnBody = Omit<TurnOrText, 'session' | 'turnId'> & { turnId?: string };

export const turnBody = component<TurnBody>()(
  'Turn',
  z.strictObject({
    turnId: z
      .string()
      .min(1)
      .optional()
      .describe('Idempotency key within the session; or the header `Idempotency-Key`.'),
    messages: nativeMessages,
    at: z
      .string()
      .optional()
      .describe(
        'When the turn was said, an ISO 8601 instant with its zone. Default: what the messages bear themselves.',
      )
      .meta({ format: 'date-time' }),
    format: z
      .enum(formatNames)
      .optional()
      .describe("Fixed by the first turn. Default: the session's own, `openai-chat` for a new one."),
    policy: policy.optional().describe('Of a new session.'),
    expectedSeq: z
      .int()
      .min(0)
      .optional()
      .describe('Last `seq` the caller has seen; a lost race is refused with `Store.StaleAppend`.'),
    usage: usage.optional(),
  }),
  {
    description: 'One append of messages. The same turn twice is stored once and answered the same.',
    example: { turnId: 't-1', messages: [chat], at: '2026-03-02T09:00:00Z' },
  },
);

const warning = component<MessageWarning>()(
  'MessageWarning',
  z.object({
    index: z.int().describe('In the messages of the turn, from 0.'),
    type: z.enum(['orphan_result', 'result_without_id', 'reused_id', 'empty_turn', 'unanswered_call']),
    message: z.string(),
  }),
  {
    description: 'Something odd that is stored as it came and shown in contexts in a valid form.',
    example: { index: 0, type: 'result_without_id', message: 'The tool result has no tool_call_id.' },
  },
);

export const appendedTurn = component<AppendedTurn>()(
  'AppendedTurn',
  z.object({
    turnId: z.string(),
    fromSeq: z.int(),
    throughSeq: z.int(),
    due: z.boolean().describe("The session's size asks for a measurement."),
    repeated: z.boolean().describe('This turn was stored before.'),
    signalled: z
      .boolean()
      .describe('False: the turn is stored, but Temporal could not be told; the next turn tells it.'),
    warnings: z.array(warning),
  }),
  {
    description: 'A stored turn.',
    example: {
      ...{ turnId: 't-1', fromSeq: 1, throughSeq: 1 },
      ...{ due: false, repeated: false, signalled: true, warnings: [] },
    },
  },
);

const contextEntry = component<ContextEntry>()(
  'ContextEntry',
  z.object({
    seq: z.int().nullable().describe('Message of the log; null for the summary and what belongs to it.'),
    source: z.enum([
      'system',
      'summarization',
      'acknowledgment',
      'carried',
      'log',
      'synthetic',
      'orphan',
      'reduced',
      'omitted',
      'media',
    ]),
    tokens: z.number(),
  }),
  { description: 'Where a message of a context comes from.', example: { seq: 1, source: 'log', tokens: 12 } },
);

export const contextBreakdown = component<ContextBreakdown>()(
  'ContextBreakdown',
  z.object({
    system: z.number().describe('Leading system messages.'),
    head: z.number().describe('The summary turn and its acknowledgment.'),
    parts: z
      .object({
        note: z.number().describe('What frames the others: opening, delimiters, pointer, acknowledgment.'),
        journal: z.number().describe('Entries of `journal` mode with their headings.'),
        exact: z.number().describe('Exact values behind the entries.'),
        pins: z.number(),
        state: z.number().describe('Rules, requests and questions in force in `journal` mode.'),
        snapshot: z.number().describe('Of the other modes.'),
      })
      .nullable()
      .describe('Of `head`, all of it; null where an earlier version wrote it.'),
    carried: z.number().describe('The request of the run that the cut lies in.'),
    tail: z.number().describe('Messages since the cut as they are shown, with what joins them.'),
  }),
  {
    description: 'What the tokens of a context stand for: system, head, carried and tail are all of them.',
    example: {
      ...{ system: 120, head: 1_030 },
      parts: { note: 130, journal: 640, exact: 60, pins: 0, state: 200, snapshot: 0 },
      ...{ carried: 0, tail: 3_400 },
    },
  },
);

export const sessionContext = component<SessionContext>()(
  'SessionContext',
  z.object({
    session: z.string(),
    generation: z.int(),
    format: z.enum(contextFormats),
    messages: opaque<ChatMessage[]>({
      type: 'array',
      items: { type: 'object' },
      description: 'What to send to the model, in `format`: valid for its provider and within `budget`.',
    }),
    system: opaque<Json>({
      description: 'The instructions, in formats whose provider wants them apart.',
    }).optional(),
    entries: z
      .array(contextEntry)
      .describe('One for each message as it is logged: for each of `messages` in the format `openai-chat`.'),
    tokens: z.number().describe('Of `messages`.'),
    breakdown: contextBreakdown.describe('Of `tokens`.'),
    budget: z.number(),
    window: z.number(),
    etag: z.string().describe('Changes whenever `messages` change.'),
  }),
  {
    description: 'What the model is sent: summary, tail and reductions, never longer than the budget.',
    example: {
      ...{ session: 's-1', generation: 0, format: 'openai-chat', messages: [chat] },
      entries: [{ seq: 1, source: 'log', tokens: 12 }],
      breakdown: { system: 0, head: 0, parts: noParts, carried: 0, tail: 12 },
      ...{ tokens: 12, budget: 28_672, window: 32_768, etag: '4bb1c1c1f0f63a3ad8cbd8d0fb0a4a1c' },
    },
  },
);

export const expansion = component<Expansion>()(
  'Expansion',
  z.object({
    part: z.int().nullable(),
    messages: z.array(loggedMessage),
    nextSeq: z.int().nullable().describe('Where the next page begins; null at the end.'),
  }),
  {
    description: 'A page of originals, each checked against its hash.',
    example: { part: null, messages: [{ seq: 1, message: chat, tokens: 12 }], nextSeq: null },
  },
);

export const messagePage = component<{ messages: LoggedMessage[]; next: number | null }>()(
  'MessagePage',
  z.object({
    messages: z.array(loggedMessage),
    next: z.int().nullable().describe('Give it as `after` to read on; null at the end.'),
  }),
  {
    description: 'A page of the replay.',
    example: { messages: [{ seq: 1, message: chat, tokens: 12 }], next: null },
  },
);

export const messageList = component<{ messages: LoggedMessage[] }>()(
  'MessageList',
  z.object({ messages: z.array(loggedMessage) }),
  {
    description: 'The originals of one archive part.',
    example: { messages: [{ seq: 1, message: chat, tokens: 12 }] },
  },
);
