/** Appending: turns, their messages and their reported usage. */
import { z } from 'zod';
import {
  type ChatMessage,
  type Json,
  type LoggedMessage,
  MessagesText,
  type Native,
  roles,
} from '../conversation/message.js';
import { formatNames } from '../conversation/format-names.js';
import type { MessageWarning } from '../conversation/validate.js';
import type { UsageReport } from '../tokens/reported-usage.js';
import { policy } from './policies.js';
import type { SentMessage } from './native.js';
import { component, id, opaque } from './schema.js';

export const chatExample: ChatMessage = { role: 'user', content: 'Where is my order 4711?' };

type SentMessages = readonly (ChatMessage | SentMessage)[] | readonly Json[];

/** The session's format checks the messages and names the wrong field. */
export const sentMessages = (description: string, more: { minItems?: number } = {}) =>
  opaque<SentMessages | MessagesText>(
    { type: 'array', ...more, items: { type: 'object', additionalProperties: true }, description },
    {
      is: (value) => Array.isArray(value) || value instanceof MessagesText,
      otherwise: 'must be a list of messages',
    },
  );

const messages = sentMessages("At least one message in the session's format.", { minItems: 1 });

const chatMessage = component(
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
            items: {
              type: 'object',
              required: ['type'],
              properties: { type: { type: 'string' } },
              additionalProperties: true,
            },
          },
          { type: 'null' },
        ],
      },
      name: { type: ['string', 'null'] },
      tool_calls: { type: ['array', 'null'], items: { type: 'object', additionalProperties: true } },
      tool_call_id: { type: ['string', 'null'] },
    },
    additionalProperties: true,
  }),
  {
    description: 'An OpenAI chat-completions message. Unknown fields are kept.',
    example: chatExample,
  },
);

const native = component(
  'NativeItems',
  z.object({
    format: z.enum(formatNames),
    items: z.array(opaque<Json>({})).describe('The items as received.'),
    messages: z
      .int()
      .describe('Number of messages in the log that the items stand for, beginning with this one.'),
  }) satisfies z.ZodType<Native>,
  {
    description:
      'The original items of the unit that begins with this message; absent if they are this message alone.',
    example: {
      format: 'anthropic',
      items: [{ role: 'user', content: [{ type: 'text', text: 'Where is my order 4711?' }] }],
      messages: 1,
    },
  },
);

export const loggedMessage = component(
  'LoggedMessage',
  z.object({
    seq: z.int().describe('Position in the log, from 1.'),
    message: chatMessage,
    tokens: z.number().describe("Tokens in a request, including framing, by the session's tokenizer."),
    at: z
      .string()
      .optional()
      .describe('When the message was said, ISO 8601 in UTC; absent if this is unknown.'),
    native: native.optional(),
    erased: z
      .object({
        at: z.string().describe('When it was erased, ISO 8601 in UTC.'),
        sha256: z.string().describe('Hash of the body that was received.'),
        reason: z.string().optional().describe('The reason given.'),
      })
      .optional()
      .describe('The message was erased: `message` is its tombstone. Absent for an original.'),
  }) satisfies z.ZodType<LoggedMessage>,
  {
    description: 'An exact original of the log, or the tombstone of an erased message.',
    example: { seq: 1, message: chatExample, tokens: 12 },
  },
);

const tokens = { type: 'integer', minimum: 0 };
const maybe = { anyOf: [tokens, { type: 'null' }] };
const model = {
  type: 'string',
  description: "The provider's name of the model. Default: the policy's model.",
};

const gemini = component(
  'GeminiUsage',
  opaque<UsageReport>({
    type: 'object',
    required: ['promptTokenCount'],
    properties: { promptTokenCount: tokens, candidatesTokenCount: maybe, thoughtsTokenCount: maybe, model },
  }),
  {
    description: '`usageMetadata` of Gemini; cached content is part of `promptTokenCount`.',
    example: { promptTokenCount: 1_204, candidatesTokenCount: 87 },
  },
);

/** Checked by `readUsage`, which names the wrong field. */
const usage = component(
  'ReportedUsage',
  z.union([
    opaque<UsageReport>({
      title: 'TwoNumbers',
      type: 'object',
      required: ['inputTokens', 'outputTokens'],
      properties: {
        inputTokens: {
          ...tokens,
          description: 'Tokens of the whole request, including those read from or written to a cache.',
        },
        outputTokens: tokens,
        model,
        countedTokens: {
          ...tokens,
          description:
            'Tokens of the whole request as Palimpsest counts them: the context that was sent, tools and instructions. ' +
            "Default: the session's context and the policy's overhead.",
        },
      },
      additionalProperties: false,
    }),
    opaque<UsageReport>({
      title: 'OpenaiChat',
      type: 'object',
      required: ['prompt_tokens'],
      description: '`usage` of OpenAI’s chat completions; cached tokens are part of `prompt_tokens`.',
      properties: { prompt_tokens: tokens, completion_tokens: maybe, model },
    }),
    opaque<UsageReport>({
      title: 'ResponsesOrAnthropic',
      type: 'object',
      required: ['input_tokens'],
      description:
        '`usage` of OpenAI’s Responses API, where cached tokens are part of `input_tokens`, or of Anthropic’s ' +
        'messages, where cached tokens are added.',
      properties: {
        input_tokens: tokens,
        cache_creation_input_tokens: maybe,
        cache_read_input_tokens: maybe,
        output_tokens: maybe,
        model,
      },
    }),
    opaque<UsageReport>({
      title: 'AiSdk',
      type: 'object',
      required: ['inputTokenDetails'],
      description:
        '`usage` of the AI SDK, version 6; cached tokens are part of `inputTokens`, which is absent if the provider ' +
        'reported nothing.',
      properties: { inputTokens: maybe, inputTokenDetails: {}, outputTokens: maybe, model },
    }),
    gemini,
    z
      .object({ usageMetadata: gemini, model: opaque<string>(model).optional() })
      .meta({ title: 'GeminiResponse' }),
  ]),
  {
    description:
      "The provider's usage report for the request that made the first assistant message of the turn: its own usage object " +
      "unchanged, or two numbers. It corrects the session's counts.",
    example: { inputTokens: 1_204, outputTokens: 87, model: 'gpt-4o' },
  },
);

export const turnFields = {
  messages,
  at: z
    .string()
    .optional()
    .describe(
      'When the turn was said, an ISO 8601 instant with a time zone; for a live turn `new Date().toISOString()`. Messages ' +
        'with a time in their log keep that time, and a repeated turn keeps its first `at`. ' +
        'Default: the times in the messages, otherwise unknown.',
    )
    .meta({ format: 'date-time' }),
  format: z
    .enum(formatNames)
    .optional()
    .describe("The first turn fixes it. Default: the session's format, `openai-chat` for a new session."),
  policy: policy.optional().describe('Policy of a new session. Use `configure` for an existing one.'),
  expectedSeq: z
    .int()
    .min(0)
    .optional()
    .describe('Last `seq` that the caller has seen. A stale value is refused with `Store.StaleAppend`.'),
  usage: usage.optional(),
};

/** A turn in HTTP, where the id may be in a header. */
export const turnBody = component(
  'Turn',
  z.strictObject({
    turnId: id('stored')
      .optional()
      .describe('Idempotency key within the session. Alternative to the header `Idempotency-Key`.'),
    ...turnFields,
  }),
  {
    description: 'One append of messages. A repeated turn is stored once and gets the same answer.',
    example: { turnId: 't-1', messages: [chatExample], at: '2026-03-02T09:00:00Z' },
  },
);

/** A turn whose messages may be JSON text. */
export type TurnOrText = z.infer<typeof turnBody> & { session: string; turnId: string };

export type Turn = Omit<TurnOrText, 'messages'> & { messages: SentMessages };

const warning = component(
  'MessageWarning',
  z.object({
    index: z.int().describe('Index in the messages of the turn, from 0.'),
    type: z.enum(['orphan_result', 'result_without_id', 'reused_id', 'empty_turn', 'unanswered_call']),
    message: z.string(),
  }) satisfies z.ZodType<MessageWarning>,
  {
    description: 'An irregularity that is stored unchanged and shown in contexts in a valid form.',
    example: { index: 0, type: 'result_without_id', message: 'The tool result has no tool_call_id.' },
  },
);

export type AppendedTurn = z.infer<typeof appendedTurn>;
export const appendedTurn = component(
  'AppendedTurn',
  z.object({
    turnId: z.string(),
    fromSeq: z.int(),
    throughSeq: z.int(),
    due: z.boolean().describe('The session has reached a size at which its workflow measures it.'),
    repeated: z.boolean().describe('The turn was stored before.'),
    signalled: z
      .boolean()
      .describe(
        "False if the session's workflow needed a signal and Temporal did not take it. The turn is stored and the context " +
          'complete. The next turn that is due, the same one repeated, or the sweep sends the signal.',
      ),
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
