/** The context: the messages that the agent's model receives. */
import { z } from 'zod';
import type { ContextBreakdown } from '../context/view/breakdown.js';
import type { ViewItem } from '../context/view/view.js';
import { contextFormats } from '../conversation/format-names.js';
import type { ChatMessage, Json } from '../conversation/message.js';
import { longestWaitMs } from './routes.js';
import { component, opaque } from './schema.js';
import { chatExample } from './turns.js';

export type ContextShape = Omit<z.infer<typeof contextRequest>, 'waitMs'>;
export const contextRequest = z.strictObject({
  format: z
    .enum(contextFormats)
    .optional()
    .describe(
      "Format of the messages. Default: the session's own format; for a session in the file format of an agent, the format of the agent's provider.",
    ),
  budget: z
    .int()
    .min(1)
    .max(100_000_000)
    .optional()
    .describe("Maximum number of context tokens. Default: the budget of the session's policy."),
  waitMs: z
    .int()
    .min(0)
    .max(longestWaitMs)
    .optional()
    .describe(
      'Maximum number of milliseconds to wait for a compaction in flight. Default 0: answer at once.',
    ),
});

export type ContextEntry = z.infer<typeof contextEntry>;
const contextEntry = component(
  'ContextEntry',
  z.object({
    seq: z
      .int()
      .nullable()
      .describe(
        'Number of the message in the log; null for the summary turn, its acknowledgment and synthetic results.',
      ),
    source: z
      .enum([
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
      ])
      .describe(
        '`system`: a leading system message. `summarization`: the summary turn. `acknowledgment`: the reply to it. ' +
          '`carried`: the request that began the run that the cut divides. `log`: a message of the tail. `reduced`: a shorter ' +
          'text for one message. `omitted`: one text for several messages. `synthetic`: a stand-in for a result that the log does not ' +
          'have. `orphan`: a result whose call is not shown. `media`: images or files of another message.',
      ) satisfies z.ZodType<ViewItem['source']>,
    tokens: z.number(),
  }),
  { description: 'The source of one message of a context.', example: { seq: 1, source: 'log', tokens: 12 } },
);

export const contextBreakdown = component(
  'ContextBreakdown',
  z.object({
    system: z.number().describe('Leading system messages.'),
    head: z.number().describe('The summary turn and its acknowledgment.'),
    parts: z
      .object({
        note: z
          .number()
          .describe('The text around the other parts: opening, delimiters, pointer, acknowledgment.'),
        journal: z.number().describe('Entries of `journal` mode with their headings.'),
        exact: z.number().describe('Exact values after the entries.'),
        pins: z.number(),
        state: z
          .number()
          .describe(
            'The state of `journal` mode: rules, requests and questions in force, the progress and the next step.',
          ),
        snapshot: z.number().describe('The snapshot of the other modes.'),
      })
      .nullable()
      .describe('The parts of `head`; null if an earlier version wrote it.'),
    carried: z.number().describe('The request of the run that the cut divides.'),
    tail: z.number().describe('Messages after the cut, as reduced, with the tokens of their separators.'),
  }) satisfies z.ZodType<ContextBreakdown>,
  {
    description: 'The tokens of a context by part. Their total is system + head + carried + tail.',
    example: {
      ...{ system: 120, head: 1_030 },
      parts: { note: 130, journal: 640, exact: 60, pins: 0, state: 200, snapshot: 0 },
      ...{ carried: 0, tail: 3_400 },
    },
  },
);

export const contextExample = {
  ...{ session: 's-1', generation: 0, format: 'openai-chat' as const, messages: [chatExample] },
  entries: [{ seq: 1, source: 'log' as const, tokens: 12 }],
  breakdown: {
    ...{ system: 0, head: 0, carried: 0, tail: 12 },
    parts: { note: 0, journal: 0, exact: 0, pins: 0, state: 0, snapshot: 0 },
  },
  ...{ tokens: 12, budget: 28_672, window: 32_768, etag: '4bb1c1c1f0f63a3ad8cbd8d0fb0a4a1c' },
};

/** `Message` and `System` are types of its format: see `ReadContext`. */
export type SessionContext<Message = ChatMessage, System = Json> = Omit<
  z.infer<typeof sessionContext>,
  'messages' | 'system'
> & { messages: Message[]; system?: System };
export const sessionContext = component(
  'SessionContext',
  z.object({
    session: z.string(),
    generation: z.int(),
    format: z.enum(contextFormats),
    messages: opaque<ChatMessage[]>({
      type: 'array',
      items: { type: 'object', additionalProperties: true },
      description:
        'The messages to send to the model, in `format`: valid for its provider and, unless the policy has `enabled: false`, within `budget`.',
    }),
    system: opaque<Json>({
      description: 'The instructions, in formats whose provider takes them separately from the messages.',
    }).optional(),
    entries: z
      .array(contextEntry)
      .describe(
        'One entry for each message that is counted. In the format `openai-chat` these are exactly `messages`.',
      ),
    tokens: z.number().describe('Tokens of `messages`, without the overhead of the request.'),
    breakdown: contextBreakdown.describe('`tokens` by part.'),
    budget: z.number().describe('Maximum of `tokens`.'),
    window: z.number().describe('Maximum number of tokens of a request and its answer, as counted here.'),
    etag: z.string().describe('Changes whenever another field of this answer changes.'),
  }),
  {
    description:
      "The messages that the agent's model receives: leading system messages, head and tail. They fit the budget, unless the policy has `enabled: false`.",
    example: contextExample,
  },
);
