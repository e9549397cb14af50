/** Erasing single messages, and finding those that contain a text. */
import { z } from 'zod';
import { list } from '../policy/list.js';
import { component } from './schema.js';

/** Maximum number of messages of one request. */
const mostSeqs = 10_000;

const seq = z.int().min(1);
const seqs = z.array(seq);

export type EraseMessagesRequest = z.infer<typeof eraseMessagesRequest>;
export const eraseMessagesRequest = z.strictObject({
  seqs: list(seq.max(2 ** 31 - 1).describe('Number (`seq`) of a message in the log.'), {
    min: 1,
    max: mostSeqs,
  }).describe('The messages to erase.'),
  forks: z
    .boolean()
    .optional()
    .describe(
      'Also erases them in every session that shares them: forks, their forks, and the session that this one was forked from. Default `false`.',
    ),
  reason: z.string().min(1).max(500).optional().describe('Stored with each tombstone, and shown with it.'),
  dryRun: z
    .boolean()
    .optional()
    .describe('Answers what an erasure would replace, and changes nothing. Default `false`.'),
});

const replaced = {
  messages: z
    .array(
      z.object({
        seq: z.int(),
        sha256: z.string().describe('Hash of the body that was received.'),
        erasedAt: z.iso.datetime(),
        reason: z.string().optional(),
      }),
    )
    .describe('The tombstones of the requested messages.'),
  originals: seqs.describe(
    'Other messages whose original in the format of the session was replaced, because it repeated an erased message.',
  ),
  generations: z.array(z.int()).describe('Generations whose texts were written again by rule.'),
  digests: z.int().describe('Deleted results of models.'),
  sharedDigests: z.int().describe('Results of models that stay because another session uses them.'),
  reductions: z.int().describe('Deleted reductions.'),
  texts: z.int().describe('Deleted search rows.'),
  vectors: z.int().describe('Deleted vectors.'),
};

/** The result of an erasure of messages. */
export type MessagesErased = z.infer<typeof messagesErased>;
export const messagesErased = component(
  'MessagesErased',
  z.object({
    dryRun: z.boolean(),
    ...replaced,
    already: seqs.describe('Requested messages that an earlier call had erased.'),
    forks: z
      .array(z.object({ session: z.string(), ...replaced }))
      .describe('Other sessions in which the messages were erased as well.'),
    remaining: z
      .array(z.object({ session: z.string(), seqs }))
      .describe('Sessions with the same origin that still have some of the messages.'),
  }),
  {
    description: 'What an erasure of messages replaced, and which sessions still have the messages.',
    example: {
      ...{ dryRun: false, originals: [], generations: [1], digests: 2, sharedDigests: 0, reductions: 1 },
      ...{ texts: 1, vectors: 0, already: [], forks: [], remaining: [{ session: 's-2', seqs: [3] }] },
      messages: [{ seq: 3, sha256: '9f86d081884c7d65', erasedAt: '2026-03-02T09:00:00.000Z' }],
    },
  },
);

export const findMessagesRequest = z.strictObject({
  text: z
    .string()
    .min(2)
    .max(1_000)
    .describe('Exact text. Letter case, Unicode form and the kind of white space make no difference.'),
});

export type FoundMessages = z.infer<typeof foundMessages>;
export const foundMessages = component(
  'FoundMessages',
  z.object({
    hits: z
      .array(z.object({ seq: z.int(), role: z.string(), erased: z.boolean() }))
      .describe(
        'Messages whose stored form contains the text anywhere: content, names, call ids, arguments. `erased`: its tombstone still does.',
      ),
    elsewhere: z
      .array(z.enum(['session id', 'turn id', 'policy']))
      .describe('Other places that contain the text. An erasure of messages does not change them.'),
  }),
  {
    description: 'The messages that contain a text.',
    example: { hits: [{ seq: 3, role: 'user', erased: false }], elsewhere: [] },
  },
);
