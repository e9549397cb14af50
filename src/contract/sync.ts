/** Synchronization: a caller sends the whole list of messages that it holds, and gets the context for its next request. */
import { z } from 'zod';
import { component } from './schema.js';
import { contextExample, contextRequest, type SessionContext, sessionContext } from './context.js';
import { appendedTurn, chatExample, sentMessages, turnFields, type Turn } from './turns.js';

const { format, policy, usage } = turnFields;
const { budget } = contextRequest.shape;

export const syncBody = component(
  'SyncRequest',
  z.strictObject({
    messages: sentMessages(
      "The whole list that the caller holds, in the session's format: what it sent before or a context that `sync` answered, and " +
        'what came since. An empty list stores nothing.',
    ),
    onEdit: z
      .enum(['refuse', 'fork', 'append'])
      .optional()
      .describe(
        'What to do if the list lacks messages of the log, or has others in their place. `refuse`: fail with `Store.ListEdited`. ' +
          '`fork`: go on in a fork that ends where list and log part; later calls use this fork. If the list has the whole log of ' +
          'the session or of an earlier fork, go on there. `append`: append the messages that the log does not have. Default: ' +
          '`refuse`.',
      ),
    expectedSession: z
      .string()
      .min(1)
      .optional()
      .describe(
        'The `session` of the answer whose context the list begins with. If the session goes on in another fork by now, the call ' +
          'fails with `Store.ListEdited` and stores nothing, so that messages which were removed meanwhile are not stored again.',
      ),
    instead: z
      .strictObject({
        at: z.int().min(0).describe('Index of the first of these items in `messages`.'),
        items: z.int().min(1).describe('Number of these items.'),
        messages: sentMessages('The messages that the log gets in place of these items.', { minItems: 1 }),
      })
      .optional()
      .describe(
        'Items of the list for which the log has other messages: a caller in front of an agent answers some calls of the model ' +
          'itself, and the agent holds the answer without them. It has no effect if the session knows these items already.',
      ),
    ...{ at: turnFields.at, format, policy, usage, budget },
  }),
  {
    description: 'A list of messages, of which the session stores what it does not have.',
    example: { messages: [chatExample] },
  },
);

/** A request whose messages may be JSON text. */
export type SyncOrText = z.infer<typeof syncBody>;

export type SyncRequest = Omit<SyncOrText, 'messages' | 'instead'> & {
  messages: Turn['messages'];
  instead?: { at: number; items: number; messages: Turn['messages'] };
};

export type Synced<Message = unknown, System = unknown> = Omit<z.infer<typeof synced>, 'context'> & {
  context: SessionContext<Message, System>;
};
export const synced = component(
  'Synced',
  z.object({
    session: z
      .string()
      .describe('The session that has the messages: the one asked for, or the fork that continues it.'),
    known: z.int().describe('Number of the first messages of the list that were stored before.'),
    stored: appendedTurn
      .nullable()
      .describe('The turn with the other messages; null if there was nothing to store.'),
    edited: z
      .object({
        commonSeq: z.int().describe('Last message of the log that the list has too.'),
        lastSeq: z.int().describe('Last message of the log before this call.'),
      })
      .nullable()
      .describe('Where the list and the log part; null if the list has the whole log.'),
    throughSeq: z.int().describe('Last message of the log now.'),
    unchanged: z
      .boolean()
      .describe(
        'The context has all messages of the list and no others, none shortened: the list can be sent to the model as it is. ' +
          'The messages of the context may differ in form, as the provider wants them.',
      ),
    context: sessionContext,
  }),
  {
    description: 'What was stored, and the messages to send to the model now.',
    example: {
      ...{ session: 's-1', known: 0, edited: null },
      stored: {
        ...{ turnId: 'sync:9f86d081:0', fromSeq: 1, throughSeq: 1 },
        ...{ due: false, repeated: false, signalled: true, warnings: [] },
      },
      ...{ throughSeq: 1, unchanged: true },
      context: contextExample,
    },
  },
);
